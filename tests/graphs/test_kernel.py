from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from jlgcn import Graph, KernelGraph
from jlgcn.ops.gaussian import Method
from tests.brute import F64, dirichlet, gaussian, largest_difference, points
from tests.graphs.contract import NUM_NODES, GraphContract

EVERY_METHOD = pytest.mark.parametrize("method", ["auto", "flash", "blocks"])


class KernelContract(GraphContract):
    method: Method

    def tensors(self, batch: tuple[int, ...]) -> tuple[Tensor, ...]:
        return (points(*batch, NUM_NODES, 4, grad=True),)

    def build(self, *tensors: Tensor) -> Graph:
        return KernelGraph(tensors[0], method=self.method)

    def matrix(self, *tensors: Tensor) -> Tensor:
        return gaussian(tensors[0], tensors[0])


class TestAuto(KernelContract):
    method = "auto"


class TestFlash(KernelContract):
    method = "flash"


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
class TestBlocks(KernelContract):
    method = "blocks"


class TestPadded(GraphContract):
    """The last two nodes only pad; their points are poison."""

    valid = torch.arange(NUM_NODES) < NUM_NODES - 2

    def tensors(self, batch: tuple[int, ...]) -> tuple[Tensor, ...]:
        return (points(*batch, NUM_NODES, 4, grad=True),)

    def build(self, *tensors: Tensor) -> Graph:
        z = tensors[0].masked_fill(~self.valid.unsqueeze(-1), math.nan)
        return KernelGraph(z, valid=self.valid)

    def matrix(self, *tensors: Tensor) -> Tensor:
        return gaussian(tensors[0], tensors[0]) * self.valid * self.valid.unsqueeze(-1)


@EVERY_METHOD
def test_two_nodes_at_distance_one(method: Method) -> None:
    graph = KernelGraph(torch.tensor([[0.0], [1.0]], dtype=F64), method=method)
    near = math.exp(-1)
    expected = torch.tensor([[1, near], [near, 1]], dtype=F64)
    assert largest_difference(graph @ torch.eye(2, dtype=F64), expected) < 1e-15
    energy = graph.dirichlet(torch.tensor([[0.0], [3.0]], dtype=F64))
    assert float(energy) == pytest.approx(2 * near * 9, rel=1e-14)


@EVERY_METHOD
def test_equal_features_are_the_complete_graph(method: Method) -> None:
    graph = KernelGraph(torch.full((50, 3), 7.3), method=method)
    assert torch.equal(graph.to_dense(), torch.ones(50, 50))
    assert largest_difference(graph.degree() / 50, torch.ones(50)) < 1e-6
    x = torch.randn(50, 4)
    average = x.mean(0).expand(50, -1)
    assert largest_difference(graph.normalized() @ x, average) < 1e-6


@EVERY_METHOD
def test_far_points_are_the_identity(method: Method) -> None:
    z = 100.0 * torch.arange(20, dtype=F64).unsqueeze(-1)
    x = points(20, 3)
    assert torch.equal(KernelGraph(z, method=method).normalized() @ x, x)


@EVERY_METHOD
def test_far_clusters_are_averaged_each_for_itself(method: Method) -> None:
    cluster = torch.arange(12) % 3
    z = 50.0 * torch.eye(3, dtype=F64)[cluster]
    x = points(12, 2)
    expected = torch.stack([x[cluster == c].mean(0) for c in cluster])
    assert largest_difference(KernelGraph(z, method=method).normalized() @ x, expected) < 1e-12


def test_duplicate_rows_have_weight_exactly_one() -> None:
    z = torch.randn(5, 3).mul(100).repeat(2, 1)
    dense = KernelGraph(z).to_dense()
    assert torch.equal(dense.diagonal(), torch.ones(10))
    assert torch.equal(dense.diagonal(5), torch.ones(5))


@EVERY_METHOD
def test_one_node_is_its_own_graph(method: Method) -> None:
    x = points(1, 3)
    assert largest_difference(KernelGraph(points(1, 4), method=method).normalized() @ x, x) < 1e-15


@EVERY_METHOD
def test_tight_clusters_keep_their_energy_in_float32(method: Method) -> None:
    # Where training drives the features: clusters a thousand times further apart than wide.
    label = torch.arange(300) % 3
    centres = torch.nn.functional.one_hot(label).float()
    f = 1000 * centres + torch.randn(300, 3)
    graph = KernelGraph(3 * centres + 0.1 * torch.randn(300, 3), method=method)
    truth = dirichlet(gaussian(graph.z.double(), graph.z.double()), f.double())
    assert float(graph.dirichlet(f)) == pytest.approx(float(truth), rel=1e-5)
    # Weights between clusters are about exp(-18); with none at all, only differences of one remain.
    separate = KernelGraph(300 * centres + 0.1 * torch.randn(300, 3), method=method)
    truth = dirichlet(gaussian(separate.z.double(), separate.z.double()), f.double())
    assert float(separate.dirichlet(f)) == pytest.approx(float(truth), rel=1e-5)


def test_padded_graphs_of_a_batch_equal_each_alone() -> None:
    sizes = [3, 6, 5]
    z, x = points(3, 6, 4), points(3, 6, 2)
    valid = torch.arange(6) < torch.tensor(sizes).unsqueeze(-1)
    together = KernelGraph(z, valid=valid).normalized() @ x
    for i, size in enumerate(sizes):
        alone = KernelGraph(z[i, :size]).normalized() @ x[i, :size]
        assert largest_difference(together[i, :size], alone) < 1e-13
        assert not together[i, size:].any()


def test_permuting_nodes_permutes_products() -> None:
    z, x, order = points(30, 4), points(30, 3), torch.randperm(30)
    permuted = KernelGraph(z[order]).normalized() @ x[order]
    assert largest_difference(permuted, (KernelGraph(z).normalized() @ x)[order]) < 1e-13


def test_bad_arguments_are_refused_with_a_remedy() -> None:
    with pytest.raises(ValueError, match=r"z must be a matrix.*unsqueeze"):
        KernelGraph(torch.zeros(5))
    with pytest.raises(ValueError, match=r"z must be floating point.*z\.float"):
        KernelGraph(torch.zeros(5, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match="auto, flash, blocks, but it is 'fast'"):
        KernelGraph(torch.zeros(5, 2), method="fast")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="valid must be bool with one entry for each of 5 nodes"):
        KernelGraph(torch.zeros(5, 2), valid=torch.ones(4, dtype=torch.bool))
