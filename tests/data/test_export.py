from __future__ import annotations

import csv
from pathlib import Path

import networkx
import numpy as np
import pytest
import torch

from jlgcn import knn_graph
from jlgcn.data.export import to_networkx, to_pyg, to_scipy, write_edges
from jlgcn.graphs import EdgeList, strongest_edges

IDS = ["a<b", 'say "c"', "d & é", "plain", "with, comma", "last"]


@pytest.fixture
def edges() -> EdgeList:
    return strongest_edges(knn_graph(torch.randn(6, 2), 2), top_k=2)


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


def test_nodes_without_ids_are_numbers(edges: EdgeList) -> None:
    assert set(to_networkx(edges).nodes) == set(range(6))


def test_bad_ids_and_formats_are_refused(edges: EdgeList, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"written to \.graphml, \.csv or \.parquet files, but"):
        write_edges(edges, tmp_path / "edges.gexf")
    with pytest.raises(ValueError, match="has 6 nodes but 2 ids were given"):
        to_networkx(edges, IDS[:2])
    with pytest.raises(ValueError, match="some of them are equal"):
        to_networkx(edges, ["same"] * 6)
    with pytest.raises(
        ValueError, match=r"GraphML cannot hold the id 'a.x01', which has a control"
    ):
        write_edges(edges, tmp_path / "edges.graphml", ["a\x01", *IDS[1:]])
