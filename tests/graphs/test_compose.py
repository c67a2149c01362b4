"""Sums and scalings of the other classes are graphs like any other."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from jlgcn import DenseGraph, Graph, KernelGraph, SparseGraph, as_graph
from jlgcn.graphs.graph import ScaledGraph, SumGraph
from tests.brute import F64, gaussian, points
from tests.graphs.contract import NUM_NODES, GraphContract

RING = torch.stack([torch.arange(NUM_NODES), torch.arange(NUM_NODES).roll(1)])
RING = torch.cat([RING, RING.flip(0)], -1)


class TestSum(GraphContract):
    """A given sparse graph and a learned one, the paper's A_0 + A*."""

    def tensors(self, batch: tuple[int, ...]) -> tuple[Tensor, ...]:
        return (points(*batch, NUM_NODES, 4, grad=True),)

    def build(self, *tensors: Tensor) -> Graph:
        ring = SparseGraph(RING, torch.ones(2 * NUM_NODES, dtype=F64))
        return ring + KernelGraph(tensors[0])

    def matrix(self, *tensors: Tensor) -> Tensor:
        ring = torch.zeros(NUM_NODES, NUM_NODES, dtype=F64)
        ring[RING[0], RING[1]] = 1
        return ring + gaussian(tensors[0], tensors[0])


class TestScaled(GraphContract):
    def tensors(self, batch: tuple[int, ...]) -> tuple[Tensor, ...]:
        scale = torch.rand(*batch, NUM_NODES, dtype=F64).add_(0.5).requires_grad_()
        return points(*batch, NUM_NODES, 4, grad=True), scale

    def build(self, *tensors: Tensor) -> Graph:
        return KernelGraph(tensors[0]).scaled(tensors[1])

    def matrix(self, *tensors: Tensor) -> Tensor:
        z, scale = tensors
        return scale.unsqueeze(-1) * gaussian(z, z) * scale.unsqueeze(-2)


class TestNormalizedSum(TestSum):
    """One layer of the paper, Λ^-½ (A_0 + A*) Λ^-½."""

    def build(self, *tensors: Tensor) -> Graph:
        return super().build(*tensors).normalized()

    def matrix(self, *tensors: Tensor) -> Tensor:
        matrix = super().matrix(*tensors)
        scale = matrix.sum(-1).rsqrt()
        return scale.unsqueeze(-1) * matrix * scale.unsqueeze(-2)


def test_a_stack_of_layers_stays_a_flat_sum_of_scaled_leaves() -> None:
    graph: Graph = as_graph(RING)
    for _ in range(4):
        graph = (graph + KernelGraph(torch.randn(NUM_NODES, 2))).normalized()
    assert isinstance(graph, SumGraph)
    assert len(graph.parts) == 5
    assert all(isinstance(part, ScaledGraph) for part in graph.parts)
    leaves = [part.base for part in graph.parts if isinstance(part, ScaledGraph)]
    assert [type(leaf) for leaf in leaves] == [SparseGraph] + [KernelGraph] * 4


def test_nodes_without_edges_stay_zero_and_keep_gradients_finite() -> None:
    weight = torch.zeros(3, 3, dtype=F64)
    weight[0, 1] = weight[1, 0] = 2
    weight.requires_grad_()
    product = DenseGraph(weight).normalized() @ torch.ones(3, 1, dtype=F64)
    assert product.flatten().tolist() == pytest.approx([1, 1, 0])
    product.sum().backward()
    assert weight.grad is not None
    assert bool(weight.grad.isfinite().all())


def test_degrees_below_the_least_one_count_as_it() -> None:
    matrix = torch.tensor([[0.0, 0.25, 0.0], [0.25, 0.0, 8.75], [0.0, 8.75, 0.25]], dtype=F64)
    normalized = DenseGraph(matrix).normalized(min_degree=1.0)
    scale = torch.tensor([1.0, 1 / 3, 1 / 3], dtype=F64)  # of degrees 0.25, 9 and 9
    assert torch.allclose(normalized.to_dense(), scale[:, None] * matrix * scale, atol=1e-15)
