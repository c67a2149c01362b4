"""Parquet files as shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jlgcn.engine import ShardedModel
from jlgcn.engine.fit import read_bytes, shard_bytes
from jlgcn.engine.model import attach_bytes
from jlgcn.engine.table import open_table, read_rows


def read(folder: Path, **columns: Any) -> np.ndarray:  # noqa: ANN401
    """Return the features of a table that is written to a file first."""
    pq.write_table(pa.table(columns), folder / "a.parquet")
    return read_files(folder)


def read_files(folder: Path) -> np.ndarray:
    table = open_table(str(folder), id_column=None, label_column=None)
    (pieces,) = table.pieces
    return read_rows(table.uri, table.columns, None, None, pieces)[0].numpy()


@pytest.mark.parametrize(
    "lists",
    [
        [[1, 2, 3], [4], [5, 6]],  # as many numbers as three lists of two
        [[1, 2], None, [3, 4]],
        [[], [], []],
    ],
)
@pytest.mark.parametrize("kind", [pa.list_, pa.large_list])
def test_lists_that_differ_in_length_are_refused(lists: Any, kind: Any, tmp_path: Path) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match="must be equally long, but those in column 'v' of"):
        read(tmp_path, v=pa.array(lists, kind(pa.int64())))


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list])
def test_lists_are_features(kind: Any, tmp_path: Path) -> None:  # noqa: ANN401
    lists = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    assert read(tmp_path, v=pa.array(lists, kind(pa.float64()))).tolist() == lists
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(range(6)), 2)
    assert read(tmp_path, v=fixed[1:], f=[9, 9]).tolist() == [[2, 3, 9], [4, 5, 9]]


@pytest.mark.parametrize("columns", [{"v": 3, "w": 2}, {"v": 3, "w": 1}])  # 2 + 2 in the first file
def test_lists_of_another_file_that_differ_are_refused(
    columns: dict[str, int], tmp_path: Path
) -> None:
    (tmp_path / "items").mkdir()
    for name, widths in {"a": {"v": 2, "w": 2}, "b": columns}.items():
        table: dict[str, Any] = {k: 40 * [width * [1.0]] for k, width in widths.items()}
        table["kind"] = 20 * ["x"] + 20 * ["y"]
        pq.write_table(pa.table(table), tmp_path / "items" / f"{name}.parquet")
    with pytest.raises(ValueError, match=r"lists of 2 numbers in some files of .* and of 3 in oth"):
        ShardedModel.fit(
            str(tmp_path / "items"),
            label="kind",
            out=str(tmp_path / "model"),
            num_workers=1,
            shard_rows=40,
        )


def test_files_of_one_shard_may_differ_in_kind(tmp_path: Path) -> None:
    (tmp_path / "items").mkdir()
    files: list[dict[str, Any]] = [
        {"kind": pa.nulls(2), "f": [1, 2]},
        {"kind": ["a", None], "f": [0.5, 3.0]},
    ]
    for number, columns in enumerate(files):
        pq.write_table(pa.table(columns), tmp_path / "items" / f"{number}.parquet")
    table = open_table(str(tmp_path / "items"), id_column=None, label_column="kind")
    (pieces,) = table.pieces
    x, _, _, labels = read_rows(table.uri, table.columns, None, "kind", pieces)
    assert x.flatten().tolist() == [1.0, 2.0, 0.5, 3.0]
    assert labels == [None, None, "a", None]
    pq.write_table(pa.table({"kind": ["a"], "f": ["no number"]}), tmp_path / "items" / "2.parquet")
    table = open_table(str(tmp_path / "items"), id_column=None, label_column="kind")
    with pytest.raises(
        ValueError, match=r"files of .* must have columns of one type each, but Una"
    ):
        read_rows(table.uri, table.columns, None, "kind", table.pieces[0])


def test_more_shards_than_numbers_of_them_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"f": np.arange(2**16 + 1)}), tmp_path / "a.parquet")
    open_table(str(tmp_path), id_column=None, label_column=None, shard_rows=2)
    with pytest.raises(ValueError, match="65,537 shards, but 65,536 are the most; take shard_rows"):
        open_table(str(tmp_path), id_column=None, label_column=None, shard_rows=1)


def test_columns_named_like_ids_are_pointed_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = {name: np.arange(4.0) for name in ("Customer_ID", "id", "acid", "f")}
    pq.write_table(pa.table(table | {"kind": pa.nulls(4)}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="column 'kind' has no label"):
        ShardedModel.fit(str(tmp_path), label="kind", out=str(tmp_path / "m"), num_workers=1)
    said = "features are named like ids: 'Customer_ID', 'id'; name the rows by one with --id"
    assert said in caplog.text
    caplog.clear()
    with pytest.raises(ValueError, match="column 'kind' has no label"):
        ShardedModel.fit(
            str(tmp_path), label="kind", out=str(tmp_path / "m"), num_workers=1, id_column="f"
        )
    assert "named like ids" not in caplog.text


def test_a_task_asks_for_the_memory_of_lists_and_row_groups(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(random.normal(size=2000 * 50)), 50)
    table = pa.table({"id": np.arange(2000), "other": 2000 * ["a"], "v": vectors})
    pq.write_table(table, tmp_path / "a.parquet")

    def opened(**more: Any) -> Any:  # noqa: ANN401
        return open_table(str(tmp_path), id_column="id", label_column=None, drop=["other"], **more)

    whole, tenth = opened(), opened(shard_rows=200)
    assert whole.width == tenth.width == 50
    # A task of a tenth of the rows decodes the whole row group.
    assert tenth.group_bytes == whole.group_bytes >= 8 * 2000 * 50
    assert whole.arguments()[0].keys() == tenth.arguments()[0].keys()
    assert not {"width", "group_bytes"} & whole.arguments()[0].keys()
    assert opened(features=["v"]).width == 50
    # Of a shard, and of the row groups that are decoded for it.
    assert shard_bytes(tenth) - read_bytes(200, 50) == tenth.group_bytes
    assert read_bytes(2000, 768) - read_bytes(2000, 100) == 24 * 2000 * 668


def test_prediction_asks_for_the_memory_of_lists(tmp_path: Path) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(1000 * 768)), 768)
    pq.write_table(pa.table({"v": vectors}), tmp_path / "a.parquet")
    table = open_table(str(tmp_path), id_column=None, label_column=None)
    options = {"n_candidates": 100, "n_components": 64}
    model = {"bounds": [0, 10**6], "options": options, "scaler": {"kind": "embeddings"}}
    rows = 4096 * 100
    assert attach_bytes(model, table) >= shard_bytes(table) + 4 * rows * (768 + 64)
    few = attach_bytes(model | {"bounds": [0, 1000]}, table)
    assert shard_bytes(table) < few < shard_bytes(table) + 2**30
    assert attach_bytes(model | {"scaler": {"kind": "words"}}, table) < attach_bytes(model, table)
