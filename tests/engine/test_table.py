"""Parquet files as shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jlgcn.engine import ShardedModel
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
