from __future__ import annotations

import pytest
import torch
from torch import Tensor

from jlgcn import DenseGraph, Graph, KernelGraph
from tests.brute import F64, dirichlet, points
from tests.graphs.contract import NUM_NODES, GraphContract


class TestDense(GraphContract):
    def tensors(self, batch: tuple[int, ...]) -> tuple[Tensor, ...]:
        half = torch.rand(*batch, NUM_NODES, NUM_NODES, dtype=F64)
        return ((half + half.mT).requires_grad_(),)

    def build(self, *tensors: Tensor) -> Graph:
        return DenseGraph(tensors[0])

    def matrix(self, *tensors: Tensor) -> Tensor:
        return tensors[0]


def test_dense_graphs_add_and_scale_to_dense_graphs() -> None:
    graph = DenseGraph(torch.ones(3, 3))
    assert isinstance(graph + graph, DenseGraph)
    assert isinstance(graph.normalized(), DenseGraph)


def test_tight_clusters_keep_their_energy_in_float32() -> None:
    label = torch.arange(300) % 3
    f = 1000 * torch.nn.functional.one_hot(label).float() + torch.randn(300, 3)
    weight = (label == label.unsqueeze(-1)).float()
    truth = dirichlet(weight.double(), f.double())
    assert float(DenseGraph(weight).dirichlet(f)) == pytest.approx(float(truth), rel=1e-5)


def test_graphs_of_different_sizes_do_not_add() -> None:
    with pytest.raises(ValueError, match="must have the same nodes, but they have 3 and 4"):
        DenseGraph(torch.ones(3, 3)) + KernelGraph(points(4, 2))


def test_bad_arguments_are_refused_with_a_remedy() -> None:
    with pytest.raises(ValueError, match=r"weight must be square.*use SparseGraph"):
        DenseGraph(torch.ones(2, 5))
    with pytest.raises(ValueError, match=r"weight must be floating point.*weight\.float"):
        DenseGraph(torch.ones(2, 2, dtype=torch.int64))
