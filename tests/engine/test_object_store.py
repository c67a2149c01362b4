"""Items, edges and models in an object store: moto's S3 server on loopback."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pyarrow import fs

from jlgcn.engine import ShardedModel
from jlgcn.engine.store import Store
from tests.engine.tables import OPTIONS, draw, read, write

server = pytest.importorskip("moto.server", reason="pip install moto[server]")


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[fs.S3FileSystem]:
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    files = fs.S3FileSystem(endpoint_override=f"http://{host}:{port}", allow_bucket_creation=True)
    files.create_dir("bucket")
    yield files
    running.stop()


def test_an_object_store_gives_the_predictions_of_a_disk(
    s3: fs.S3FileSystem, tmp_path: Path
) -> None:
    items = draw(300)
    write(items, tmp_path)
    new = draw(100, seed=1)
    write(replace(new, ids=np.char.add("new ", new.ids)), tmp_path / "new")
    for path in tmp_path.rglob("*.parquet"):
        with s3.open_output_stream(f"bucket/{path.relative_to(tmp_path)}") as file:
            file.write(path.read_bytes())
    found = []
    for root in (str(tmp_path), "s3://bucket"):
        ShardedModel.fit(
            f"{root}/items",
            label="kind",
            id_column="id",
            edges=f"{root}/edges.parquet",
            out=f"{root}/model",
            num_workers=1,
            options=OPTIONS,
            shard_rows=128,
        )
        model = ShardedModel.load(f"{root}/model")
        model.predict(f"{root}/items", f"{root}/out", num_workers=1, shard_rows=128)
        files = s3 if root.startswith("s3") else None
        place = root.removeprefix("s3://")
        found += [read(f"{place}/{folder}", files) for folder in ("model/predictions", "out")]
        edges = f"{root}/new/edges.parquet"
        updated = model.update(f"{root}/new/items", edges=edges, num_workers=1, shard_rows=128)
        assert updated.num_rows == 400
        found.append(read(f"{place}/model/predictions", files))
    on_disk, on_s3 = found[:3], found[3:]
    for mine, theirs in zip(on_disk, on_s3, strict=True):
        assert mine.equals(theirs)
    # Of intermediate files nothing is left, neither there nor in the cache.
    names = {info.base_name for info in s3.get_file_info(fs.FileSelector("bucket/model/parts"))}
    assert not any(name.startswith(("rank", "search", "diffuse")) for name in names)


def test_a_server_may_be_named_in_the_uri(
    s3: fs.S3FileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, host = os.environ["AWS_ENDPOINT_URL"].partition("//")
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    out = f"s3://bucket/named/model/?scheme=http&endpoint_override={host}"
    write(draw(100), tmp_path)
    rows = str(tmp_path / "items")
    model = ShardedModel.fit(
        rows, label="kind", id_column="id", out=out, num_workers=1, options=OPTIONS
    )
    found = s3.get_file_info(fs.FileSelector("bucket/named", recursive=True))
    folders = {info.path.rpartition("/")[0] for info in found if info.is_file}
    model_folder = "bucket/named/model"
    assert folders == {model_folder, f"{model_folder}/parts", f"{model_folder}/predictions"}
    edges = str(tmp_path / "edges.parquet")
    updated = ShardedModel.load(out).update(edges=edges, num_workers=1)
    assert updated.document["edges"] != model.document["edges"]
    assert updated.predict(rows, str(tmp_path / "out"), num_workers=1) == 100


@pytest.mark.usefixtures("s3")
def test_what_fails_while_it_is_written_does_not_appear() -> None:
    store = Store("s3://bucket/parts")

    def write_half(content: bytes) -> None:
        with store.writing("kept-1.data") as file:
            file.write(content)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half(b"half")
    assert not store.has("kept-1", ".data")
    with store.writing("kept-1.data") as file:
        file.write(b"whole")
    with pytest.raises(ZeroDivisionError):
        write_half(b"half")
    assert store.read("kept-1.data") == b"whole"
