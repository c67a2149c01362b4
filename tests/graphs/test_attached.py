from __future__ import annotations

from typing import ClassVar

import pytest
import torch
from torch import Tensor

from jlgcn import Graph, KernelGraph, SparseGraph
from jlgcn.graphs import attach
from jlgcn.graphs.attached import AttachedGraph, KernelRows, SparseRows
from tests.brute import F64, gaussian, largest_difference, points
from tests.graphs.contract import NUM_NODES, GraphContract

NUM_OLD = 4
NUM_NEW = NUM_NODES - NUM_OLD


class AttachedContract(GraphContract):
    """The contract, but for symmetry: new nodes see old ones, and not the other way round."""

    batches: ClassVar[list[tuple[int, ...]]] = [()]

    def test_symmetric_and_not_negative(self, batch: tuple[int, ...]) -> None:
        dense = self.graph_and_matrix(batch)[0].detach().to_dense()
        old = dense[:NUM_OLD, :NUM_OLD]
        assert largest_difference(old, old.mT) < 1e-14
        assert float(dense.min()) >= 0
        assert not dense[:NUM_OLD, NUM_OLD:].any()

    def test_normalized_laplacian_is_positive(self, batch: tuple[int, ...]) -> None:
        # Triangular by blocks, so its eigenvalues are those of the old part and the new diagonal.
        dense = self.graph_and_matrix(batch)[0].normalized().detach().to_dense()
        eigenvalues = torch.linalg.eigvals(torch.eye(NUM_NODES, dtype=F64) - dense)
        assert float(eigenvalues.imag.abs().max()) < 1e-12
        assert float(eigenvalues.real.min()) > -1e-12


class TestLearned(AttachedContract):
    def tensors(self, batch: tuple[int, ...]) -> tuple[Tensor, ...]:
        return (points(NUM_NODES, 3, grad=True),)

    def build(self, *tensors: Tensor) -> Graph:
        old, new = tensors[0].split([NUM_OLD, NUM_NEW])
        return AttachedGraph(KernelGraph(old), KernelRows(new, old), torch.ones(NUM_NEW, dtype=F64))

    def matrix(self, *tensors: Tensor) -> Tensor:
        old, new = tensors[0].split([NUM_OLD, NUM_NEW])
        above = torch.cat([gaussian(old, old), torch.zeros(NUM_OLD, NUM_NEW, dtype=F64)], -1)
        below = torch.cat([gaussian(new, old), torch.eye(NUM_NEW, dtype=F64)], -1)
        return torch.cat([above, below])


class TestGiven(AttachedContract):
    EDGES = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    NEW = torch.tensor([[2, 0, 2, 1], [0, 3, 1, 3]])

    def tensors(self, batch: tuple[int, ...]) -> tuple[Tensor, ...]:
        return (torch.tensor([0.5, 1.0, 2.0, 3.0], dtype=F64).requires_grad_(),)

    def build(self, *tensors: Tensor) -> Graph:
        base = SparseGraph(self.EDGES, torch.ones(4, dtype=F64))
        return attach(base, NUM_NEW, self.NEW, tensors[0])

    def matrix(self, *tensors: Tensor) -> Tensor:
        matrix = torch.zeros(NUM_NODES, NUM_NODES, dtype=F64)
        matrix[self.EDGES[0], self.EDGES[1]] = 1
        return matrix.index_put((self.NEW[0] + NUM_OLD, self.NEW[1]), tensors[0])


def test_old_nodes_do_not_notice_new_ones() -> None:
    z, x = torch.randn(50, 3), torch.randn(50, 4)
    base = KernelGraph(z)
    for num_new in (1, 30):
        new = torch.randn(num_new, 3)
        attached = AttachedGraph(base, KernelRows(new, z), torch.ones(num_new))
        product = attached.normalized() @ torch.cat([x, torch.randn(num_new, 4)])
        assert torch.equal(product[:50], base.normalized() @ x)


def test_the_number_of_new_nodes_survives_sums_and_scalings() -> None:
    given = attach(SparseGraph.without_edges(5), 2)
    learned = attach(KernelGraph(torch.randn(5, 2)), 2)
    assert given.has_no_edges
    assert not learned.has_no_edges
    for graph in (given, given + learned, (learned + learned).normalized()):
        assert (graph.num_nodes, graph.num_new) == (7, 2)
    assert KernelGraph(torch.randn(5, 2)).num_new == 0


def test_rows_of_new_nodes_alone_cost_no_old_ones() -> None:
    class Untouchable(KernelGraph):
        def matmul(self, x: Tensor, rows: Tensor | None = None) -> Tensor:
            raise AssertionError("old rows were computed")

    z = torch.randn(5, 2)
    graph = AttachedGraph(Untouchable(z), KernelRows(z[:2] + 1, z))
    x = torch.randn(7, 3)
    assert graph.matmul(x, torch.tensor([6, 5])).shape == (2, 3)


def test_mistaken_edges_are_refused() -> None:
    base = KernelGraph(torch.randn(5, 2))
    with pytest.raises(ValueError, match="edges must name new nodes from 0 to 1, but they name 5"):
        attach(base, 2, torch.tensor([[5], [0]]))
    with pytest.raises(ValueError, match="edges must name old nodes from 0 to 4"):
        attach(base, 2, torch.tensor([[0], [5]]))
    with pytest.raises(TypeError, match=r"it is a Tensor; pass as_graph\(edge_index, num_nodes\)"):
        attach(torch.zeros(2, 0).long(), 2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="base must be a single graph"):
        attach(KernelGraph(torch.randn(2, 5, 2)), 2)
    assert isinstance(attach(base, 2).new, SparseRows)


def test_several_right_hand_sides_at_once_are_those_of_each() -> None:
    graph = TestLearned().graph_and_matrix(())[0].detach()
    x = torch.randn(2, 3, NUM_NODES, 4, dtype=F64)
    for rows in (None, torch.tensor([0, NUM_OLD, NUM_NODES - 1])):
        product = graph.matmul(x, rows)
        assert product.shape == (2, 3, NUM_NODES if rows is None else 3, 4)
        for i in range(2):
            assert torch.equal(product[i], graph.matmul(x[i], rows))
            for j in range(3):
                assert torch.equal(product[i, j], graph.matmul(x[i, j], rows))


def test_an_edge_to_an_old_node_that_is_listed_twice_counts_twice() -> None:
    twice = torch.tensor([0, 0]), torch.tensor([2, 2]), torch.tensor([0.5, 0.25])
    rows = SparseRows(*twice, num_rows=1)
    assert rows.dense(torch.tensor([0]), 3).tolist() == [[0, 0, 0.75]]
    assert rows.matmul(torch.eye(3)).tolist() == [[0, 0, 0.75]]


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_weights_of_attached_edges_are_checked(weight: float) -> None:
    graph = SparseGraph(torch.tensor([[0, 1], [1, 0]]))
    with pytest.raises(ValueError, match="weight must be finite and not negative"):
        attach(graph, 1, torch.tensor([[0], [1]]), torch.tensor([weight]))
