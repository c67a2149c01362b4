from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from jlgcn import DenseGraph, Graph, KernelGraph, SparseGraph, gaussian_knn_graph
from jlgcn.graphs import edge_list, top_edges
from tests.brute import F64

Pairs = dict[tuple[int, int], float]


def brute(matrix: torch.Tensor, top_k: int | None, threshold: float | None) -> Pairs:
    found: Pairs = {}
    for i, row in enumerate(matrix.tolist()):
        others = sorted(((w, j) for j, w in enumerate(row) if j != i and w > 0), reverse=True)
        for w, j in others[: top_k or len(others)]:
            if threshold is None or w >= threshold:
                found[min(i, j), max(i, j)] = w
    return found


GRAPHS: dict[str, Callable[[torch.Tensor], Graph]] = {
    "kernel": lambda z: KernelGraph(z),
    "dense": lambda z: DenseGraph(KernelGraph(z).to_dense()),
    "knn": lambda z: gaussian_knn_graph(z, 4),
    "normalised sum of sparse graphs": lambda z: (
        gaussian_knn_graph(z, 3).normalized()
        + SparseGraph(torch.tensor([[0, 9], [9, 0]]), num_nodes=30)
    ).normalized(),
    "sum with all pairs": lambda z: (gaussian_knn_graph(z, 3) + KernelGraph(z)).normalized(),
}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize(("top_k", "threshold"), [(3, None), (None, 0.2), (2, 0.2), (40, None)])
def test_the_edges_a_search_by_hand_finds(
    name: str, top_k: int | None, threshold: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge_list, "_BLOCK_ENTRIES", 100)  # several blocks
    graph = GRAPHS[name](torch.randn(30, 2, dtype=F64))
    edges = top_edges(graph, top_k=top_k, threshold=threshold)
    expected = brute(graph.to_dense(), top_k, threshold)
    got = dict(
        zip(
            zip(edges.source.tolist(), edges.target.tolist(), strict=True),
            edges.weight.tolist(),
            strict=True,
        )
    )
    assert got.keys() == expected.keys()
    assert all(abs(got[pair] - expected[pair]) < 1e-12 for pair in got)
    assert edges.weight.tolist() == sorted(edges.weight.tolist(), reverse=True)
    assert len(edges) == len(expected)
    assert "30 nodes" in repr(edges)


def test_a_graph_without_edges_has_none() -> None:
    assert len(top_edges(SparseGraph.without_edges(5), top_k=2)) == 0
    none = top_edges(DenseGraph(torch.zeros(0, 0)), top_k=2)
    assert len(none) == 0
    assert none.weight.shape == (0,)


def test_self_loops_and_zeros_are_no_edges() -> None:
    loops = SparseGraph(torch.tensor([[0, 1], [0, 1]]))
    assert len(top_edges(loops, top_k=2)) == 0
    assert len(top_edges(DenseGraph(torch.eye(3)), threshold=0.0)) == 0


def test_bad_questions_are_refused() -> None:
    graph = KernelGraph(torch.randn(4, 2))
    with pytest.raises(ValueError, match="both are None; pass top_k=10"):
        top_edges(graph)
    with pytest.raises(ValueError, match="top_k must be at least 1, but it is 0"):
        top_edges(graph, top_k=0)
    with pytest.raises(ValueError, match="must be a single graph"):
        top_edges(KernelGraph(torch.randn(2, 4, 2)), top_k=1)
