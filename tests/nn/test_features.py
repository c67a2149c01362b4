from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from jlgcn.nn import JLGCN, GraphLearner, JLGCNConv, JLGCNOptions, laplacian_regularizer
from jlgcn.ops import SparseFeatures
from tests.brute import largest_difference, points

pytestmark = pytest.mark.filterwarnings("ignore:the learned graph is (complete|dead)")

NUM_NODES, WIDTH = 40, 25


def both() -> tuple[Tensor, SparseFeatures]:
    torch.manual_seed(0)
    x = points(NUM_NODES, WIDTH)
    x = x * (torch.rand(NUM_NODES, WIDTH) < 0.2)
    return x, SparseFeatures.from_dense(x)


OPTIONS: list[Any] = ["authors", "paper", JLGCNOptions(metric_init="median")]


@pytest.mark.parametrize("backend", ["exact", "dense", "knn"])
@pytest.mark.parametrize("options", OPTIONS, ids=["authors", "paper", "median"])
def test_sparse_features_are_as_good_as_dense_ones(backend: Any, options: Any) -> None:  # noqa: ANN401
    found: list[list[Tensor]] = []
    for x in both():
        torch.manual_seed(0)
        model = JLGCN(WIDTH, 6, 3, rank=4, options=options, backend=backend, num_neighbors=5)
        model = model.double()
        torch.manual_seed(1)  # sparse constants draw for their entries in either format
        model.calibrate(x)
        out = model(x, torch.tensor([[0, 9], [9, 0]]))
        value = model.regularizer(out, x, probes=4)
        (out.logits.square().sum() + value).backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        found.append([out.logits, value, *gradients])
    for dense, sparse in zip(*found, strict=True):
        assert largest_difference(dense, sparse) < 1e-9 * (1 + float(dense.detach().abs().max()))


def test_float32_logits_agree_without_dropout() -> None:
    x, sparse = both()
    model = JLGCN(WIDTH, 6, 3, rank=4, dropout=0.0)
    assert largest_difference(model(x).logits, model(sparse).logits) < 1e-6 * 10


@pytest.mark.parametrize("concat", [False, True])
@pytest.mark.parametrize("out_channels", [5, 50])
def test_a_layer_multiplies_by_its_weights_first(concat: bool, out_channels: int) -> None:
    x, sparse = both()
    conv = JLGCNConv(WIDTH, out_channels, rank=4, concat=concat, backend="exact").double()
    assert largest_difference(conv(x)[0], conv(sparse)[0]) < 1e-10
    nodes = torch.tensor([3, 1])
    parts = [conv.convolve(f, conv(f)[1], None, nodes=nodes).out for f in (x, sparse)]
    assert largest_difference(*parts) < 1e-10


def test_points_far_from_the_origin_are_centred() -> None:
    x, _ = both()
    far = x + 1e4
    learner = GraphLearner(WIDTH, rank=4, metric_init="random")
    exact = learner.double().project(far)
    sparse = learner.float().project(SparseFeatures.from_dense(far.float()))
    assert largest_difference(exact - exact.mean(0), sparse.double()) < 1e-2
    assert float(sparse.detach().abs().max()) < 100


def test_edges_are_those_of_dense_features() -> None:
    x, sparse = both()
    learner = GraphLearner(WIDTH, rank=4, num_neighbors=3, metric_init="random").double()
    assert torch.equal(learner.edges(x)[0], learner.edges(sparse)[0])


def test_errors_are_those_of_dense_features() -> None:
    _, sparse = both()
    with pytest.raises(ValueError, match="x has 25 features but the network was made for 7"):
        JLGCN(7, 4, 2)(sparse)
    bad = sparse.map(lambda value: value.index_fill(0, torch.tensor([0]), float("nan")))
    with pytest.raises(ValueError, match="must be finite"):
        JLGCN(WIDTH, 4, 2).double()(bad)


def test_the_exact_regularizer_needs_dense_features_unless_they_are_few() -> None:
    x, sparse = both()
    graph = GraphLearner(WIDTH, 4, metric_init="random", backend="knn").double()(x)
    for normalized in (False, True):
        dense = laplacian_regularizer(graph, x, normalized=normalized)
        wide = laplacian_regularizer(graph, sparse, normalized=normalized, probes=WIDTH)
        assert largest_difference(dense, wide) < 1e-9 * abs(float(dense.detach()))
        with pytest.raises(ValueError, match=r"the exact regularizer needs dense .*set probes"):
            laplacian_regularizer(graph, sparse, normalized=normalized)
