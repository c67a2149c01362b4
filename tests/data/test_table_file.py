from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pyarrow = pytest.importorskip("pyarrow", reason="needs the extra table")
parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra table")

from jlgcn.data.table_file import read_edges, read_table  # noqa: E402

PEOPLE = """name,age,member,kind,note
ann,31,true,red,hello
bob,28.5,false,,
"c, d",40,true,blue,x
"""


@pytest.fixture
def people(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    path.write_text(PEOPLE)
    return path


def test_a_csv_file(people: Path) -> None:
    table = read_table(people, id_column="name", label_column="kind", drop=["note"])
    assert table.ids == ["ann", "bob", "c, d"]
    assert table.feature_names == ["age", "member"]
    assert table.x.tolist() == [[31, 1], [28.5, 0], [40, 1]]
    assert table.x.dtype == np.float32
    assert table.labels == ["red", None, "blue"]
    assert repr(table) == "TableFile(3 rows, 2 features, 2 labelled)"


def test_a_parquet_file_is_the_same(people: Path, tmp_path: Path) -> None:
    columns = {"name": ["ann", "bob"], "age": [31.0, None], "kind": ["red", None]}
    path = tmp_path / "people.parquet"
    parquet.write_table(pyarrow.table(columns), path)
    table = read_table(path, id_column="name", label_column="kind")
    assert table.ids == ["ann", "bob"]
    assert table.labels == ["red", None]
    assert table.num_missing == 1
    assert np.isnan(table.x[1, 0])


def test_rows_without_ids_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "numbers.csv"
    path.write_text("a,b\n1,2\n3,4\n")
    table = read_table(path)
    assert table.ids == ["0", "1"]
    assert table.labels is None


def test_numbers_as_ids_and_labels_are_text(tmp_path: Path) -> None:
    path = tmp_path / "numbers.csv"
    path.write_text("a,b,c\n1,2,7\n3,4,\n")
    table = read_table(path, id_column="a", label_column="c")
    assert table.ids == ["1", "3"]
    assert table.labels == ["7", None]


def test_edges_are_matched_by_id(
    people: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "edges.csv"
    path.write_text('from,to,weight\nann,bob,1\nbob,"c, d",0.5\nann,eve,1\n')
    with caplog.at_level(logging.WARNING):
        edges = read_edges(path, read_table(people, id_column="name", drop=["note", "kind"]).ids)
    assert edges.edge_index.tolist() == [[0, 1], [1, 2]]
    assert edges.weight is not None
    assert edges.weight.tolist() == [1, 0.5]
    assert edges.num_unmatched == 1
    assert edges.unmatched == ["eve"]
    assert "1 of 3 edges in edges.csv name rows that the table does not have, such as 'eve'" in (
        caplog.text
    )
    assert repr(edges) == "EdgeFile(2 edges, 1 unmatched)"


def test_edges_without_weights(tmp_path: Path) -> None:
    path = tmp_path / "edges.csv"
    path.write_text("from,to\n0,1\n")
    assert read_edges(path, ["0", "1"]).weight is None


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (PEOPLE, {"id_column": "nam"}, r"no column 'nam' \(asked for as id\); its columns are 'na"),
        (PEOPLE, {"drop": ["kin"]}, r"no column 'kin' \(asked for as drop\)"),
        (PEOPLE, {"id_column": "name", "label_column": "kind"}, "'note' of t.csv holds string, su"),
        (PEOPLE, {"label_column": "kind"}, "features must be numbers, but column 'name' of t.csv"),
        ("a,b\n1,2\n1,3\n", {"id_column": "a"}, "rows 0 and 1 of t.csv are both called '1'"),
        ("a,b\n,2\n1,3\n", {"id_column": "a"}, "row 0 of t.csv has no id in column 'a'"),
        ("a,a\n1,2\n", {}, "t.csv has two columns 'a'; rename one of them"),
        ("a\n", {}, "t.csv has 0 rows and 1 columns of features"),
        ("a\n1\n", {"id_column": "a"}, "t.csv has 1 rows and 0 columns of features"),
        ("a,b\n1,inf\n", {"id_column": "a"}, "column 'b' of row '1' in t.csv is inf"),
        ("a,b\n1\n", {}, "cannot be read as CSV"),
        ("", {}, "cannot be read as CSV"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(
    text: str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_table(path, **options)


def test_what_is_not_there_or_not_parquet_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="pass the path of a CSV or Parquet file"):
        read_table(tmp_path / "none.csv")
    (tmp_path / "bad.parquet").write_bytes(b"not parquet")
    with pytest.raises(ValueError, match="cannot be read as Parquet"):
        read_table(tmp_path / "bad.parquet")


def test_edges_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "edges.csv"
    path.write_text("from\na\n")
    with pytest.raises(ValueError, match="must have a column for each end of an edge"):
        read_edges(path, ["a"])
    path.write_text("from,to,weight\na,a,-1\n")
    with pytest.raises(ValueError, match="must be finite and not negative"):
        read_edges(path, ["a"])
