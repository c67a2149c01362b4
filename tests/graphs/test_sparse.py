from __future__ import annotations

from typing import ClassVar

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from jlgcn import Graph, KernelGraph, SparseGraph, gaussian_knn_graph
from jlgcn.ops.csr import Pattern
from jlgcn.ops.knn import Search, nearest_neighbors
from tests.brute import F64, dirichlet, gaussian, largest_difference, points
from tests.graphs.contract import NUM_NODES, GraphContract

# Node 5 has a self-loop only.
EDGES = torch.tensor([[0, 1, 1, 2, 3, 4, 6, 0, 5], [1, 0, 2, 1, 4, 3, 0, 6, 5]])


def scatter(weight: Tensor, edge_index: Tensor, num_nodes: int = NUM_NODES) -> Tensor:
    matrix = weight.new_zeros(num_nodes, num_nodes)
    return matrix.index_put((edge_index[0], edge_index[1]), weight, accumulate=True)


class TestGivenWeights(GraphContract):
    """Gradients of each listed weight by itself, though a graph is symmetric."""

    batches: ClassVar[list[tuple[int, ...]]] = [()]

    def tensors(self, batch: tuple[int, ...]) -> tuple[Tensor, ...]:
        weight = torch.tensor([1, 1, 2, 2, 3, 3, 4, 4, 5], dtype=F64) / 4
        return (weight.requires_grad_(),)

    def build(self, *tensors: Tensor) -> Graph:
        return SparseGraph(EDGES, tensors[0], NUM_NODES)

    def matrix(self, *tensors: Tensor) -> Tensor:
        return scatter(tensors[0], EDGES)


class TestCandidates(GraphContract):
    batches: ClassVar[list[tuple[int, ...]]] = [()]

    def tensors(self, batch: tuple[int, ...]) -> tuple[Tensor, ...]:
        return (points(NUM_NODES, 4, grad=True),)

    def build(self, *tensors: Tensor) -> Graph:
        return SparseGraph.from_candidates(tensors[0], EDGES[:, ::2])

    def matrix(self, *tensors: Tensor) -> Tensor:
        mask = torch.eye(NUM_NODES, dtype=F64)
        mask[EDGES[0], EDGES[1]] = 1
        return gaussian(tensors[0], tensors[0]) * mask


class TestAllCandidates(GraphContract):
    """With every pair a candidate, the sparse graph is the exact one."""

    batches: ClassVar[list[tuple[int, ...]]] = [()]

    def tensors(self, batch: tuple[int, ...]) -> tuple[Tensor, ...]:
        return (points(NUM_NODES, 4, grad=True),)

    def build(self, *tensors: Tensor) -> Graph:
        return gaussian_knn_graph(tensors[0], NUM_NODES)

    def matrix(self, *tensors: Tensor) -> Tensor:
        return gaussian(tensors[0], tensors[0])


def test_edges_come_out_sorted_with_their_weights() -> None:
    graph = SparseGraph(torch.tensor([[2, 0, 1, 0], [0, 2, 0, 1]]), torch.tensor([7.0, 7, 5, 5]))
    assert graph.edge_index.tolist() == [[0, 0, 1, 2], [1, 2, 0, 0]]
    assert graph.weight.tolist() == [5, 7, 5, 7]


def test_weights_of_an_edge_listed_twice_are_added_but_missing_ones_stay_one() -> None:
    twice = torch.tensor([[0, 1, 0, 1], [1, 0, 1, 0]])
    assert SparseGraph(twice, torch.tensor([1.0, 1, 2, 2])).weight.tolist() == [3, 3]
    assert SparseGraph(twice).weight.tolist() == [1, 1]


def test_isolated_nodes_count() -> None:
    graph = SparseGraph(torch.tensor([[0, 1], [1, 0]]), num_nodes=4)
    assert graph.degree().tolist() == [1, 1, 0, 0]
    empty = SparseGraph(torch.empty(2, 0, dtype=torch.int64), num_nodes=3)
    assert empty.degree().tolist() == [0, 0, 0]
    assert float(empty.dirichlet(torch.randn(3, 2))) == 0


def test_knn_joins_both_directions_and_each_node_with_itself() -> None:
    # 3 is nobody's nearest neighbour, but 2 is its.
    z = torch.tensor([[0.0], [1.0], [1.9], [4.0]], dtype=F64)
    graph = gaussian_knn_graph(z, 1)
    edges = set(map(tuple, graph.edge_index.t().tolist()))
    between = {(0, 1), (1, 2), (2, 3)}
    loops = {(i, i) for i in range(4)}
    assert edges == between | {(j, i) for i, j in between} | loops
    assert largest_difference(graph.to_dense(), gaussian(z, z) * (graph.to_dense() > 0)) < 1e-15


@pytest.mark.parametrize("search", ["auto", "exact", "faiss"])
def test_the_first_node_is_a_neighbour_like_any_other(search: Search) -> None:
    z = torch.tensor([[0.0], [1.0], [-1.1], [5.0], [5.1]])
    graph = gaussian_knn_graph(z, 1, search=search)
    assert graph.row(2)[0].tolist() == [0, 2]  # the first is its nearest, but not the other way
    assert graph.row(1)[0].tolist() == [0, 1]
    assert graph.row(0)[0].tolist() == [0, 1, 2]


def test_neighbours_that_a_search_does_not_find_are_left_out() -> None:
    near, far = torch.rand(200, 3), torch.rand(200, 3) + 100
    z = torch.cat([near, far])
    assert int(nearest_neighbors(z, 399, search="faiss").min()) == -1
    row, col = gaussian_knn_graph(z, 399, search="faiss").edge_index
    assert torch.equal(row < 200, col < 200)  # nobody is joined with the last node in their place


def test_knn_joins_given_edges_with_the_kernels_weight() -> None:
    z = torch.tensor([[0.0], [1.0], [2.0], [3.0]], dtype=F64)
    given = SparseGraph(torch.tensor([[0, 3], [3, 0]]), torch.tensor([50.0, 50.0]))
    dense = gaussian_knn_graph(z, 1, given).to_dense()
    assert float(dense[0, 3]) == pytest.approx(float(torch.exp(torch.tensor(-9.0, dtype=F64))))
    assert float(dense[0, 2]) == 0


def test_knn_weights_are_differentiable_in_the_points() -> None:
    z = points(9, 3, grad=True)
    assert gradcheck(lambda z: gaussian_knn_graph(z, 3).weight, z)


def test_directions_of_an_edge_weigh_the_same_to_the_last_bit() -> None:
    graph = gaussian_knn_graph(torch.randn(200, 7), 5)
    assert torch.equal(graph.weight, graph.weight[graph.pattern.reverse])


def test_more_neighbours_than_nodes_are_all_of_them() -> None:
    z = points(6, 2)
    assert (
        largest_difference(gaussian_knn_graph(z, 100).to_dense(), KernelGraph(z).to_dense()) < 1e-14
    )


def test_one_node_is_its_own_neighbour_only() -> None:
    assert gaussian_knn_graph(points(1, 2), 3).to_dense().tolist() == [[1]]


def test_tight_clusters_keep_their_energy_in_float32() -> None:
    label = torch.arange(300) % 3
    f = 1000 * torch.nn.functional.one_hot(label).float() + torch.randn(300, 3)
    graph = gaussian_knn_graph(f / 1000, 8)
    truth = dirichlet(graph.to_dense().double(), f.double())
    assert float(graph.dirichlet(f)) == pytest.approx(float(truth), rel=1e-5)


def test_an_offset_changes_no_weight() -> None:
    z = torch.randint(-8, 9, (40, 3)) / 8
    assert torch.equal(
        gaussian_knn_graph(z, 4).weight.sort()[0], gaussian_knn_graph(z + 1e4, 4).weight.sort()[0]
    )


def test_a_pattern_moves_with_its_graph() -> None:
    graph = SparseGraph(EDGES, num_nodes=NUM_NODES).to(device="cpu")
    assert isinstance(graph.pattern, Pattern)


@pytest.mark.parametrize(
    ("edge_index", "message"),
    [
        (torch.zeros(5, 2, dtype=torch.int64), r"shape \(2, edges\).*edge_index\.t\(\)"),
        (torch.zeros(2, 5), r"must be int64.*edge_index\.long\(\)"),
        (torch.tensor([[0, 9], [9, 0]]), r"between 0 and 2.*edge 0 is \(0, 9\)"),
        (torch.tensor([[0, -1], [1, 0]]), r"between 0 and 2.*edge 1 is \(-1, 0\)"),
        (torch.tensor([[0, 1], [1, 2]]), "2 edges have one direction only; use as_graph"),
    ],
)
def test_bad_edges_are_refused_with_a_remedy(edge_index: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SparseGraph(edge_index, num_nodes=3)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (torch.ones(3), "one entry for each of 2 edges"),
        (torch.ones(2, dtype=torch.int64), r"must be floating point.*\.float\(\)"),
        (torch.tensor([1.0, -1.0]), "not negative, but weight 1 is -1.0"),
        (torch.tensor([float("nan"), 1.0]), "finite and not negative, but weight 0 is nan"),
        (torch.tensor([1.0, float("inf")]), "finite and not negative, but weight 1 is inf"),
        (torch.tensor([1.0, 2.0]), "equal in both directions.*use as_graph"),
    ],
)
def test_bad_weights_are_refused_with_a_remedy(weight: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SparseGraph(torch.tensor([[0, 1], [1, 0]]), weight)


def test_knn_refuses_a_graph_of_other_nodes() -> None:
    given = SparseGraph(torch.tensor([[0, 1], [1, 0]]))
    with pytest.raises(ValueError, match="the graph has 2 nodes but z has 5 rows"):
        gaussian_knn_graph(points(5, 2), 1, given)
