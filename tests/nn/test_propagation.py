from __future__ import annotations

import pytest
import torch

from jlgcn import DenseGraph, Graph, KernelGraph, SparseGraph, knn_graph
from jlgcn.graphs import attach
from jlgcn.nn import Propagation, consistency
from jlgcn.ops import SparseFeatures
from tests.brute import F64, largest_difference, points


@pytest.fixture
def model() -> Propagation:
    return Propagation(5, 4, 3, num_steps=2).double()


def graph() -> KernelGraph:
    return KernelGraph(points(6, 2))


def test_it_is_the_formula(model: Propagation) -> None:
    x, a = points(6, 5), graph().normalized()
    dense = a.to_dense()
    mean = (torch.eye(6, dtype=F64) + dense + dense @ dense) / 3
    hidden = (mean @ x @ model.first.weight.t() + model.first.bias).relu()
    expected = hidden @ model.last.weight.t() + model.last.bias
    got = model.eval()(x, a, num_views=2)
    assert largest_difference(got[0], expected) < 1e-14
    assert torch.equal(got[0], got[1])


@pytest.mark.parametrize("make", [lambda a: DenseGraph(a.to_dense()), lambda a: knn_graph(a.z, 9)])
def test_every_kind_of_graph_gives_the_same(model: Propagation, make: object) -> None:
    a, x = graph(), points(6, 5)
    other: Graph = make(a)  # type: ignore[operator]
    model.eval()
    assert largest_difference(model(x, a.normalized()), model(x, other.normalized())) < 1e-13


def test_sparse_features_give_the_same(model: Propagation) -> None:
    x = points(6, 5)
    x[x < 0.5] = 0
    a = graph().normalized()
    model.eval()
    assert largest_difference(model(x, a), model(SparseFeatures.from_dense(x), a)) < 1e-14


def test_without_steps_it_is_a_perceptron() -> None:
    model = Propagation(5, 4, 3, num_steps=0).eval()
    x = torch.randn(6, 5)
    expected = model.last(model.first(x).relu())
    got = model(x, SparseGraph.without_edges(6))
    assert torch.allclose(got[0], expected, atol=1e-6)


def test_hidden_nodes_send_nothing_and_the_others_more() -> None:
    model = Propagation(1, 1, 1, num_steps=0, node_dropout=0.25, input_dropout=0.0, dropout=0.0)
    torch.nn.init.ones_(model.first.weight)
    views = [model._view(torch.ones(1000, 1)).detach() for _ in range(2)]
    assert views[0].unique().tolist() == pytest.approx([0, 4 / 3])
    assert float(views[0].mean()) == pytest.approx(1, abs=0.1)
    assert not torch.equal(*views)
    assert torch.equal(model.eval()._view(torch.ones(9, 1)), torch.ones(9, 1))


def test_new_nodes(model: Propagation) -> None:
    a, x, new = graph(), points(6, 5), points(2, 5)
    model.eval()
    given = attach(a, 2, torch.tensor([[0, 1], [3, 4]]))
    got = model(torch.cat([x, new]), given.normalized())
    assert largest_difference(got[:, :6], model(x, a.normalized())) < 1e-14


def test_views_that_agree_clearly_are_consistent() -> None:
    sure = 50 * torch.eye(3).expand(2, 3, 3)
    assert float(consistency(sure)) < 1e-12


def test_disagreement_by_hand() -> None:
    # One node, two classes, two views that say 0.9 and 0.5: mean 0.7, sharpened 0.49 / 0.58.
    p = torch.tensor([[[0.9, 0.1]], [[0.5, 0.5]]], dtype=F64)
    target = 0.49 / 0.58
    expected = ((0.9 - target) ** 2 + (0.5 - target) ** 2) * 2 / 2
    assert float(consistency(p.log())) == pytest.approx(expected)


def test_the_target_is_held_constant() -> None:
    logits = torch.randn(1, 4, 3, dtype=F64, requires_grad=True)
    consistency(logits, sharpening=1.0).backward()
    assert logits.grad is not None
    assert float(logits.grad.abs().max()) < 1e-15  # a single view equals its own mean
