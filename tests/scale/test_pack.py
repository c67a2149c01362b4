from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch

from jlgcn.scale import PackedTable, PackPlan, pack, pack_shard, read_plan


def write(folder: Path, name: str, *, first: int, size: int, group: int = 3) -> None:
    folder.mkdir(exist_ok=True)
    number = np.arange(first, first + size)
    columns = {"a": number.astype(np.float64), "b": -number, "kind": [f"k{i % 2}" for i in number]}
    table = pyarrow.table(columns)
    pyarrow.parquet.write_table(table, folder / f"{name}.parquet", row_group_size=group)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for number in range(3):
        write(tmp_path / "rows", f"part-{number}", first=7 * number, size=7)
    return tmp_path / "rows"


@pytest.mark.parametrize("rows", [4, 7, 100])
def test_shards_do_not_depend_on_files_or_row_groups(
    source: Path, tmp_path: Path, rows: int
) -> None:
    plan = pack(source, tmp_path / "out", label="kind", rows=rows)
    packed = PackedTable(tmp_path / "out")
    assert (plan.num_rows, packed.num_nodes, packed.num_classes) == (21, 21, 2)
    assert plan.classes == ("k0", "k1")
    expected = torch.stack([torch.arange(21.0), -torch.arange(21.0)], -1)
    assert torch.equal(packed.chunk(0, 21), expected)
    assert torch.equal(packed.chunk(3, 9), expected[3:9])
    index = torch.tensor([20, 0, 5, 5, 13])
    assert torch.equal(packed.rows(index), expected[index])
    assert torch.equal(packed.y, torch.arange(21) % 2)
    assert read_plan(tmp_path / "out") == plan
    assert isinstance(plan, PackPlan)


def test_an_address_is_as_good_as_a_path(source: Path, tmp_path: Path) -> None:
    pack(source.as_uri(), tmp_path / "out", label="kind")
    assert PackedTable(tmp_path / "out").num_nodes == 21


def test_packing_goes_on_where_it_stopped(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []

    def stop_after_two(plan: PackPlan, name: str, *rest: object) -> None:
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(name)
        pack_shard(plan, name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr("jlgcn.scale.packing.pack_shard", stop_after_two)
    with pytest.raises(KeyboardInterrupt):
        pack(source, tmp_path / "out", label="kind", rows=5)
    with pytest.raises(ValueError, match="3 shards too few, nodes-00002 among them; run the same"):
        PackedTable(tmp_path / "out")
    before = (tmp_path / "out" / "nodes-00000.npy").stat().st_mtime_ns
    monkeypatch.undo()
    pack(source, tmp_path / "out", label="kind", rows=5)
    assert (tmp_path / "out" / "nodes-00000.npy").stat().st_mtime_ns == before
    assert torch.equal(
        PackedTable(tmp_path / "out").rows(torch.arange(21))[:, 0], torch.arange(21.0)
    )


def test_a_shard_that_fails_leaves_no_file_of_its_name(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: object, array: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(OSError, match="No space"):
        pack(source, tmp_path / "out", label="kind")
    assert not list((tmp_path / "out").glob("*.npy"))


def test_a_full_disk_leaves_nothing_of_a_shard(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", full)
        with pytest.raises(OSError, match="No space left"):
            pack(source, tmp_path / "packed", label="kind", rows=4)
    assert [path.name for path in (tmp_path / "packed").iterdir()] == ["pack.json"]


def test_half_precision_takes_half_the_space(source: Path, tmp_path: Path) -> None:
    pack(source, tmp_path / "out", label="kind", dtype="float16")
    assert np.load(tmp_path / "out" / "nodes-00000.npy").dtype == np.float16
    assert PackedTable(tmp_path / "out").rows(torch.arange(2)).dtype == torch.float32


def test_another_table_is_refused(source: Path, tmp_path: Path) -> None:
    pack(source, tmp_path / "out", label="kind")
    with pytest.raises(ValueError, match="packed from another table, or with other options"):
        pack(source, tmp_path / "out", label="kind", rows=3)
    write(source, "part-9", first=0, size=2)
    with pytest.raises(ValueError, match="packed from another table"):
        pack(source, tmp_path / "out", label="kind")


def test_bad_tables_are_named(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(FileNotFoundError, match="there is no Parquet file at"):
        pack(tmp_path / "nowhere", out)
    with pytest.raises(ValueError, match=r"no column 'grape' \(asked for as label\)"):
        pack(source, out, label="grape")
    with pytest.raises(ValueError, match="'kind' holds string; turn it into numbers"):
        pack(source, out)
    with pytest.raises(ValueError, match='must be "float32" or "float16"'):
        pack(source, out, dtype="float64")
    with pytest.raises(ValueError, match="rows must be at least 1"):
        pack(source, out, rows=0)
    table = pyarrow.table({"a": [0.0, 1.0, np.nan], "b": [0.0, 1.0, 2.0], "y": [0, -2, 1]})
    pyarrow.parquet.write_table(table, tmp_path / "bad.parquet")
    with pytest.raises(ValueError, match="column 'a' of row 2 is nan"):
        pack(tmp_path / "bad.parquet", tmp_path / "bad", drop=["y"])
    with pytest.raises(ValueError, match="that of row 1 is -2"):
        pack(tmp_path / "bad.parquet", tmp_path / "worse", label="y", drop=["a"])
    (tmp_path / "text.parquet").write_text("not a table")
    with pytest.raises(ValueError, match="cannot be read as Parquet"):
        pack(tmp_path / "text.parquet", out)


def test_edges_must_name_rows(source: Path, tmp_path: Path) -> None:
    edges = pyarrow.table({"a": [0, 3], "b": [1, 21]})
    pyarrow.parquet.write_table(edges, tmp_path / "edges.parquet")
    with pytest.raises(ValueError, match=r"rows from 0 to 20 .* edge 1 is \(3.0, 21.0, 1.0\)"):
        pack(source, tmp_path / "out", label="kind", edges=tmp_path / "edges.parquet")
