from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from jlgcn import SparseGraph, gaussian_knn_graph
from jlgcn.graphs import EdgeList, top_edges
from jlgcn.io.export import csv_cell, to_networkx, to_pyg, to_scipy, write_edges

IDS = ["a<b", 'say "c"', "d & é", "plain", "with, comma", "last"]


@pytest.fixture
def edges() -> EdgeList:
    return top_edges(gaussian_knn_graph(torch.randn(6, 2), 2), top_k=2)


def as_dict(edges: EdgeList) -> dict[frozenset[str], float]:
    ends = zip(edges.source.tolist(), edges.target.tolist(), strict=True)
    return {
        frozenset((IDS[i], IDS[j])): weight
        for (i, j), weight in zip(ends, edges.weight.tolist(), strict=True)
    }


def test_the_matrix_is_symmetric_and_has_every_edge(edges: EdgeList) -> None:
    matrix = to_scipy(edges)
    assert (matrix != matrix.T).nnz == 0
    assert matrix.nnz == 2 * len(edges)
    assert np.array_equal(
        matrix.toarray()[edges.source.numpy(), edges.target.numpy()], edges.weight.numpy()
    )


def test_pyg_gets_both_directions(edges: EdgeList) -> None:
    data = to_pyg(edges)
    assert data.is_undirected()
    assert data.num_nodes == 6
    assert data.edge_weight.shape[0] == 2 * len(edges)


def test_networkx_reads_the_graphml_that_was_written(edges: EdgeList, tmp_path: Path) -> None:
    import networkx

    path = write_edges(edges, tmp_path / "edges.graphml", IDS)
    graph = networkx.read_graphml(path)
    assert set(graph.nodes) == set(IDS)
    assert {frozenset((a, b)): d["weight"] for a, b, d in graph.edges(data=True)} == as_dict(edges)


def test_tables_have_ids_and_weights(edges: EdgeList, tmp_path: Path) -> None:
    with write_edges(edges, tmp_path / "edges.csv", IDS).open(newline="") as file:
        rows = list(csv.DictReader(file))
    found = {frozenset((row["source"], row["target"])): float(row["weight"]) for row in rows}
    assert found == as_dict(edges)
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra table")
    table = parquet.read_table(write_edges(edges, tmp_path / "edges.parquet", IDS)).to_pylist()
    assert {frozenset((row["source"], row["target"])): row["weight"] for row in table} == as_dict(
        edges
    )


def test_a_csv_file_holds_no_formulas_and_no_two_ids_become_one(
    edges: EdgeList, tmp_path: Path
) -> None:
    ids = ["=1", "'=1", -1, "-1.5e3", "@a", "\t+1"]
    with write_edges(edges, tmp_path / "edges.csv", ids).open(newline="") as file:
        rows = list(csv.DictReader(file))
    found = {row[end] for row in rows for end in ("source", "target")}
    assert found == {"'=1", "''=1", "-1", "-1.5e3", "'@a", "'\t+1"}
    assert min(float(row["weight"]) for row in rows) > 0
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra table")
    ids = [str(name) for name in ids]
    table = parquet.read_table(write_edges(edges, tmp_path / "edges.parquet", ids))
    assert {*table["source"].to_pylist(), *table["target"].to_pylist()} == set(ids)


@pytest.mark.parametrize("name", ["edges.graphml", "edges.csv"])
def test_ids_that_are_equal_as_text_are_refused_by_name(
    edges: EdgeList, tmp_path: Path, name: str
) -> None:
    ids = ["a", 1, "b", "1", "c", "d"]
    with pytest.raises(ValueError, match=r"as text, .*: 1 of node 1 and '1' of node 3; rename"):
        write_edges(edges, tmp_path / name, ids)
    assert not list(tmp_path.iterdir())


def test_ids_of_several_types_are_refused_by_parquet(edges: EdgeList, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="needs the extra table")
    with pytest.raises(ValueError, match=r"must be of one type, but these are int, str; pass"):
        write_edges(edges, tmp_path / "edges.parquet", [*IDS[:5], 1])


@pytest.mark.parametrize("suffix", ["graphml", "csv", "parquet"])
def test_edges_are_not_written_through_a_link(edges: EdgeList, tmp_path: Path, suffix: str) -> None:
    if suffix == "parquet":
        pytest.importorskip("pyarrow", reason="needs the extra table")
    (tmp_path / "mine").write_text("precious")
    (tmp_path / f"edges.{suffix}").symlink_to(tmp_path / "mine")
    assert write_edges(edges, tmp_path / f"edges.{suffix}", IDS).stat().st_size > 100
    assert (tmp_path / "mine").read_text() == "precious"


def test_nodes_without_ids_are_numbers(edges: EdgeList) -> None:
    assert set(to_networkx(edges).nodes) == set(range(6))


def test_bad_ids_and_formats_are_refused(edges: EdgeList, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end with \.graphml, \.csv or \.parquet, but"):
        write_edges(edges, tmp_path / "edges.gexf")
    graph: Any = SparseGraph(torch.tensor([[0, 1], [1, 0]]))
    for convert in (to_pyg, to_scipy, to_networkx):
        with pytest.raises(TypeError, match=r"is a SparseGraph; pass jlgcn\.graphs\.top_edges"):
            convert(graph)
    with pytest.raises(ValueError, match="has 6 nodes but 2 ids were given"):
        to_networkx(edges, IDS[:2])
    with pytest.raises(ValueError, match="some are equal"):
        to_networkx(edges, ["same"] * 6)
    with pytest.raises(
        ValueError, match=r"GraphML cannot contain the id 'a.x01', which has a control"
    ):
        write_edges(edges, tmp_path / "edges.graphml", ["a\x01", *IDS[1:]])


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("@sum", "'@sum"),
        ("\tx", "'\tx"),
        ("-1", "-1"),
        ("+1e5", "+1e5"),
        (-0.5, "-0.5"),
        ("a-b", "a-b"),
        ("'=1", "''=1"),
    ],
)
def test_a_cell_is_no_formula_and_a_number_stays_one(value: object, cell: str) -> None:
    assert csv_cell(value) == cell
