"""ModelNet40 rehearsed: a folder of its layout, written here, up to the table of the report."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from typer.testing import CliRunner

from jlgcn import _memory
from jlgcn.cli import app
from jlgcn.paper import cloud_download, load_clouds
from jlgcn.paper.cloud_download import download_clouds, unpack_clouds
from jlgcn.paper.recipes import get_recipe

runner = CliRunner()

NAME = "modelnet40_ply_hdf5_2048"
CLASSES = ("airplane", "bathtub", "bed", "bench", "bookshelf")


def write_modelnet40(root: Path, *, per_file: int = 30) -> Path:
    """Write two files of training clouds and one of test clouds, with 2,048 points each."""
    folder = root / NAME
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for part, count in (("train", 2), ("test", 1)):
        names = [f"ply_data_{part}{i}.h5" for i in range(count)]
        for name in names:
            label = (np.arange(per_file) % len(CLASSES)).astype(np.uint8)[:, None]
            data = generator.normal(size=(per_file, 2048, 3)) * (1 + label[:, :, None])
            data[:, :, 0] /= 1 + 2 * label
            data /= np.linalg.norm(data, axis=-1).max(-1)[:, None, None]
            with h5py.File(folder / name, "w") as file:
                file.create_dataset("data", data=data.astype(np.float32), compression="gzip")
                file.create_dataset("label", data=label)
                file.create_dataset("normal", data=data.astype(np.float32))  # which nobody reads
        lines = "".join(f"data/{NAME}/{name}\n" for name in names)
        (folder / f"{part}_files.txt").write_text(lines)
    (folder / "shape_names.txt").write_text("".join(f"{name}\n" for name in CLASSES))
    return folder


def run(root: Path, out: Path, *others: str) -> Any:  # noqa: ANN401
    settings = ("--set", "epochs=1", "--set", "num_points=32", "--set", "batch_size=16")
    place = ("--data", str(root), "--out", str(out))
    return runner.invoke(app, ["paper", "run", "clouds/modelnet40", *settings, *place, *others])


@pytest.mark.slow
def test_modelnet40_is_trained_recorded_and_reported(tmp_path: Path) -> None:
    write_modelnet40(tmp_path / "data")
    runs, results = tmp_path / "runs", tmp_path / "results"
    done = run(tmp_path / "data", runs, "--variant", "all", "--threads", "1")
    assert done.exit_code == 0, done.output
    found = [json.loads(path.read_text()) for path in runs.rglob("result.json")]
    names = [variant.name for variant in get_recipe("clouds/modelnet40").variants]
    assert sorted(line["variant"].split(" epochs")[0] for line in found) == sorted(names)
    assert {len(line["parameter_sha256"]) for line in found} == {64}
    for line in found:
        assert set(line["accuracy_missing"]) == {"0", "0.25", "0.5", "0.75", "0.9"}
    arguments = ["paper", "record", "--runs", str(runs), "--results", str(results)]
    assert runner.invoke(app, arguments).exit_code == 0
    report = runner.invoke(app, ["paper", "report", "--results", str(results)])
    assert "clouds/modelnet40 | knn-gcn, no concatenation" in report.output


@pytest.mark.slow
def test_a_recipe_for_clouds_runs_in_bfloat16_on_a_device(tmp_path: Path) -> None:
    write_modelnet40(tmp_path / "data")
    more = ("--set", "precision=bfloat16", "--device", "cpu:0")
    done = run(tmp_path / "data", tmp_path / "runs", "--variant", "knn-gcn", *more)
    assert done.exit_code == 0, done.output
    (path,) = (tmp_path / "runs").rglob("result.json")
    assert json.loads(path.read_text())["configuration"]["train"]["precision"] == "bfloat16"


def test_the_layout_is_read_whole(tmp_path: Path) -> None:
    write_modelnet40(tmp_path)
    data = load_clouds(NAME, tmp_path)
    assert data.points.shape == (90, 2048, 3)
    assert (len(data.train), len(data.val), len(data.test)) == (50, 10, 30)
    assert data.class_names == CLASSES


def pack(folder: Path, *, more: dict[str, bytes] | None = None) -> bytes:
    """Return an archive of a folder, as it is published: with its name before each file's."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(f"{folder.name}/", "")
        for path in sorted(folder.iterdir()):
            archive.writestr(f"{folder.name}/{path.name}", path.read_bytes())
        for name, text in (more or {}).items():
            archive.writestr(name, text)
    return content.getvalue()


def serve(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    def write(url: str, path: Path, sha256: str) -> Path:
        assert url == cloud_download.ADDRESSES[NAME]
        assert hashlib.sha256(content).hexdigest() == sha256.lower()  # as io.download checks
        path.write_bytes(content)
        return path

    monkeypatch.setattr(cloud_download, "download", write)


def test_it_is_downloaded_by_a_hash_that_the_user_trusts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_modelnet40(tmp_path / "there")
    content = pack(folder, more={"../../evil.txt": b"x", f"{NAME}/run.sh": b"rm"})
    serve(monkeypatch, content)
    sha256 = hashlib.sha256(content).hexdigest()
    path = download_clouds(NAME, tmp_path / "here", sha256=sha256)
    assert load_clouds(path).sha256 == load_clouds(folder).sha256
    names = {each.name for each in path.iterdir()}
    assert names == {each.name for each in folder.iterdir()} | {"evil.txt"}  # inside, if anywhere
    assert sorted(each.name for each in (tmp_path / "here").iterdir()) == [NAME]
    assert not (tmp_path / "evil.txt").exists()
    assert download_clouds(NAME, tmp_path / "here", sha256=None) == path  # which is there


def test_without_a_hash_nothing_is_downloaded(tmp_path: Path) -> None:
    done = run(tmp_path, tmp_path / "runs", "--download")
    assert done.exit_code == 1
    message = " ".join(done.output.split())
    assert "is not downloaded without a SHA-256 to compare it with" in message
    assert "train_files.txt, test_files.txt, shape_names.txt and the ply_data_*.h5" in message
    assert "--sha256" in message
    with pytest.raises(ValueError, match=r"shapes69.* no address is known; put the files there"):
        download_clouds("shapes69_hdf5_1024", tmp_path, sha256="0" * 64)
    assert list(tmp_path.iterdir()) in ([], [tmp_path / "runs"])


def test_an_archive_of_another_hash_or_content_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed, path = tmp_path / "a.zip", tmp_path / NAME
    packed.write_bytes(pack(write_modelnet40(tmp_path / "there")))
    with pytest.raises(ValueError, match=r"must have the SHA-256 0000.*delete it and download"):
        unpack_clouds(packed, path, "0" * 64)
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("readme.txt", "nothing")
    with pytest.raises(ValueError, match=r"it has no train_files\.txt"):
        unpack_clouds(packed, path, hashlib.sha256(packed.read_bytes()).hexdigest())
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("train_files.txt", bytes(10**6))
    monkeypatch.setattr(_memory, "_HARMLESS_BYTES", 1000)
    with pytest.raises(ValueError, match="as no honest file of numbers does"):
        unpack_clouds(packed, path, hashlib.sha256(packed.read_bytes()).hexdigest())
    assert not path.exists()
    missing = run(tmp_path, tmp_path / "runs")
    assert "is not there; set JLGCN_DATA" in " ".join(missing.output.split())
