from __future__ import annotations

import pytest
import torch
from torch import nn

from jlgcn.paper.cloud_baselines import DGCNN, EdgeConv, KnnGCN, PointNet, neighbor_graph, neighbors
from tests.brute import F64, largest_difference, points


def test_neighbours_are_those_of_brute_force() -> None:
    x = points(3, 30, 4) + 100
    distance = (x.unsqueeze(-2) - x.unsqueeze(-3)).square().sum(-1)
    expected = distance.argsort(-1)[..., :5]
    assert torch.equal(neighbors(x, 5), expected)
    assert neighbors(x, 99).shape == (3, 30, 30)


def test_the_graph_of_neighbours_is_normalised() -> None:
    graph = neighbor_graph(points(2, 12, 3), 3).to_dense()
    assert torch.equal(graph, graph.mT)
    assert ((graph > 0).sum(-1) >= 4).all()
    assert graph.diagonal(dim1=-2, dim2=-1).gt(0).all()
    root = (1 / graph.diagonal(dim1=-2, dim2=-1)).sqrt().unsqueeze(-1)  # of the degrees
    assert largest_difference(graph @ root, root) < 1e-12


def test_an_edge_convolution_is_that_of_pytorch_geometric() -> None:
    from torch_geometric.nn import EdgeConv as ReferenceEdgeConv

    x = points(2, 9, 3).requires_grad_()
    index = neighbors(x, 4)
    conv = EdgeConv(3, 5).double()
    norm = nn.BatchNorm1d(5).double()
    both = nn.Linear(6, 5, bias=False).double()
    reference = ReferenceEdgeConv(nn.Sequential(both, norm, nn.LeakyReLU(0.2)), aggr="max")
    both.weight.data = torch.cat([conv.own.weight, conv.difference.weight], 1).data
    for each in (conv.norm, norm):  # a weight below 0 turns the order of the edges round
        each.weight.data = torch.tensor([1.0, -2.0, 0.5, -0.1, 3.0], dtype=F64)
        each.bias.data = torch.linspace(-1, 1, 5, dtype=F64)
    start = torch.tensor([0, 9]).view(2, 1, 1)
    target = (torch.arange(9).view(1, 9, 1) + start).expand(2, 9, 4).flatten()
    edges = torch.stack([(index + start).flatten(), target])
    weight = points(2, 9, 5)
    for training in (True, False):
        conv.train(training)
        reference.train(training)
        found, expected = conv(x, index), reference(x.flatten(0, 1), edges).view(2, 9, 5)
        assert largest_difference(found, expected) < 1e-12
        own = (x, conv.own.weight, conv.difference.weight, *conv.norm.parameters())
        found_x, found_own, found_difference, *found_norm = torch.autograd.grad(
            (found * weight).sum(), own
        )
        expected_x, expected_both, *expected_norm = torch.autograd.grad(
            (expected * weight).sum(), (x, both.weight, *norm.parameters())
        )
        assert largest_difference(found_x, expected_x) < 1e-12
        both_found = torch.cat([found_own, found_difference], 1)
        assert largest_difference(both_found, expected_both) < 1e-12
        for one, other in zip(found_norm, expected_norm, strict=True):
            assert largest_difference(one, other) < 1e-12
    for one, other in zip(conv.norm.buffers(), norm.buffers(), strict=True):
        assert largest_difference(one.double(), other.double()) < 1e-12


def test_pointnet_begins_without_transforming() -> None:
    model = PointNet(3, 4).double().eval()
    x = points(2, 10, 3)
    eye = torch.eye(3, dtype=F64).expand(2, 3, 3)
    assert torch.equal(model.input_transform(x), eye)
    assert model.regularizer(model(x)).eq(0).all()
    with torch.no_grad():
        model.feature_transform.matrix.bias.mul_(2)
    assert torch.allclose(model.regularizer(model(x)), torch.tensor(9.0 * 64, dtype=F64))


@pytest.mark.parametrize("make", [KnnGCN, PointNet, DGCNN])
def test_the_order_of_points_does_not_matter(make: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model = make(3, 4).double().eval()
    x = points(2, 40, 3)
    order = torch.randperm(40)
    assert largest_difference(model(x[:, order]).logits, model(x).logits) < 1e-10


@pytest.mark.parametrize("make", [KnnGCN, PointNet, DGCNN])
def test_every_parameter_is_trained(make: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model = make(3, 4)
    model(torch.randn(4, 40, 3)).logits.square().sum().backward()
    without = [name for name, p in model.named_parameters() if p.grad is None]
    assert without == []


def test_the_published_sizes() -> None:
    """PointNet's paper counts 3.5 million parameters, DGCNN's 1.8 million."""

    def millions(model: nn.Module) -> float:
        return sum(p.numel() for p in model.parameters()) / 1e6

    assert millions(PointNet(3, 40)) == pytest.approx(3.5, abs=0.05)
    assert millions(DGCNN(3, 40)) == pytest.approx(1.8, abs=0.05)
