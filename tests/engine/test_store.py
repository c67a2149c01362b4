"""Files of shards, and the folder of a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from jlgcn.engine import ShardedModel
from jlgcn.engine.store import Store, absolute, below
from jlgcn.engine.tasks import Task
from tests.engine.tables import draw, write


def test_a_name_is_put_before_the_options_of_a_server() -> None:
    assert below("model", "parts") == below("model/", "parts") == "model/parts"
    assert below("s3://bucket", "parts") == below("s3://bucket/", "parts") == "s3://bucket/parts"
    options = "?scheme=http&endpoint_override=127.0.0.1:9000"
    for uri in (f"s3://bucket/model{options}", f"s3://bucket/model/{options}"):
        assert below(uri, "parts") == f"s3://bucket/model/parts{options}"
    assert below("what?/model", "parts") == "what?/model/parts"  # of a disk, a letter of the name


def test_folders_of_a_disk_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute("model") == str(tmp_path / "model")
    assert absolute("s3://bucket/model") == "s3://bucket/model"


def test_tasks_get_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(draw(100), tmp_path)

    class Asked(Exception):  # noqa: N818
        pass

    def execute(self: object, uris: tuple[str, ...], tasks: list[Task], num_bytes: int) -> None:
        assert uris == (str(tmp_path / "model" / "parts"),)
        assert tasks[0].arguments["uri"] == str(tmp_path / "items")
        raise Asked

    monkeypatch.setattr("jlgcn.engine.local.LocalExecutor.execute", execute)
    with pytest.raises(Asked):
        ShardedModel.fit("items", label="kind", id_column="id", out="model", num_workers=1)


def test_a_folder_is_made_when_it_is_written_to(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="holds no model of shards"):
        ShardedModel.load(str(tmp_path / "nowhere" / "deep"))
    assert not list(tmp_path.iterdir())
    store = Store(str(tmp_path / "some" / "deep"))
    assert not store.names()
    name = store.keep({})
    assert store.names() == [name]


def test_a_file_that_is_missing_may_have_been_replaced(tmp_path: Path) -> None:
    message = "x-1 is in none of .*; if the model was changed meanwhile, load it again, else run"
    with pytest.raises(FileNotFoundError, match=message):
        Store(str(tmp_path)).tensors("x-1")


def test_temporary_files_are_no_tasks_and_go(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    name = store.keep({})
    for killed in ("search-00000-1.data", "search-00000-1.done", "write-1.parquet", "shards.json"):
        (tmp_path / f".{killed}.0123456789abcdef.tmp").write_text("")
    (tmp_path / ".mine.data.tmp").write_text("")
    assert store.names() == [name]
    store.remove_leftovers()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".mine.data.tmp", f"{name}.data"]
