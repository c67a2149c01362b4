"""Edges and labels of files, joined to numbers of rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from torch import Tensor

from jlgcn.closed_form.shards import Output
from jlgcn.engine.joins import join_edges, join_labels
from jlgcn.engine.table import from_bytes


class Numbered:
    """Files of rows without ids, which their numbers name."""

    def tensors(self, name: str, *, keep: bool = True) -> Mapping[str, Tensor]:
        return {}

    def path(self, name: str) -> Path:
        raise FileNotFoundError(name)


ROWS: dict[str, Any] = {"stamp": "", "rows": ["a", "b"], "bounds": [0, 2, 5]}


def labels(folder: Path, rows: Any, kinds: Any) -> dict[int, str]:  # noqa: ANN401
    uri = str(folder / "labels.parquet")
    pq.write_table(pa.table({"row": rows, "kind": kinds}), uri)
    found = join_labels(Numbered(), uri, id_column=None, label_column="kind", **ROWS).summary
    return dict(zip(found["rows"].tolist(), from_bytes(found["labels"]), strict=True))


def edges(folder: Path, **columns: Any) -> Output:  # noqa: ANN401
    pq.write_table(pa.table(columns), folder / "edges.parquet")
    return join_edges(Numbered(), str(folder / "edges.parquet"), **ROWS)


def test_labels_are_the_same_text_as_those_of_a_table(tmp_path: Path) -> None:
    # pandas writes integers with gaps as floating point.
    assert labels(tmp_path, [3, 1, 0, 9], [2.0, 0.0, None, 1.0]) == {1: "0", 3: "2"}
    assert labels(tmp_path, [3.0, 1.0], ["b", "a"]) == {1: "a", 3: "b"}
    assert labels(tmp_path, [3, 1], pa.array(["b", "a"]).dictionary_encode()) == {1: "a", 3: "b"}
    assert labels(tmp_path, [0, 0, 0], ["a", None, "a"]) == {0: "a"}


def test_two_labels_of_an_id_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="gives '3' the labels 'a' and 'b'; keep one label for"):
        labels(tmp_path, [1, 3, 3], ["a", "b", "a"])


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([1.0, None, 1.0], "weight of the edge from '1' to '2' in .* is missing; weights of edges"),
        ([1.0, float("inf"), 1.0], "weight of the edge from '1' to '2' in .* is inf; weights of"),
        ([1.0, float("nan"), -1.0], "weight of the edge from '1' to '2' in .* is nan; weights of"),
        ([1, -2, 1], "weight of the edge from '1' to '2' in .* is -2"),
        (["1", "2", "3"], "weights of edges must be numbers, but column 'weight' of .* string"),
        ([1e200, 1e200, 1e200], "weights of an edge in .* are larger than float32 holds"),
    ],
)
def test_weights_are_finite_numbers(weight: Any, message: str, tmp_path: Path) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match=message):
        edges(tmp_path, a=[0, 1, 2], b=[1, 2, 3], weight=weight)


def test_weights_of_duplicates_are_added(tmp_path: Path) -> None:
    found = edges(tmp_path, a=[0, 0, 1], b=[1, 1, 4], weight=[1, 2, 0]).tensors
    edge = zip(found["row"].tolist(), found["col"].tolist(), found["weight"].tolist(), strict=True)
    assert sorted(edge) == [(0, 1, 3.0), (1, 0, 3.0), (1, 4, 0.0), (4, 1, 0.0)]


def test_errors_of_the_database_are_plain(tmp_path: Path) -> None:
    (tmp_path / "edges").mkdir()
    for name, ids in {"a": [0, 1], "b": ["x", "y"]}.items():
        pq.write_table(pa.table({"a": ids, "b": ids}), tmp_path / "edges" / f"{name}.parquet")
    with pytest.raises(ValueError, match=r"ids could not be joined .*; pass ids as text or integ"):
        join_edges(Numbered(), str(tmp_path / "edges"), **ROWS)
