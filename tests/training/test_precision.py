"""Training in bfloat16: finite, close to float32, and distances stay in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from jlgcn.graphs import as_graph
from jlgcn.nn import JLGCN, PRESETS, GraphLearner, GraphLevelJLGCN, JLGCNConv, JLGCNOptions
from jlgcn.ops.precision import Precision, mixed_precision
from jlgcn.paper.baselines import GCN
from jlgcn.paper.cloud_baselines import DGCNN, KnnGCN, PointNet, neighbors
from jlgcn.training import FitResult, GraphTrainConfig, TrainConfig
from tests.brute import largest_difference
from tests.training.small import fit_clouds, fit_data, small_clouds, small_data

pytestmark = pytest.mark.filterwarnings("ignore:the learned graph is complete")

MEDIAN = JLGCNOptions(metric_init="median")
CLOUD_NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "jlgcn": lambda: GraphLevelJLGCN(3, 3, (8, 16), (8,), rank=4, options=MEDIAN),
    "knn-gcn": lambda: KnnGCN(3, 3, (8, 16), (8,), 6),
    "pointnet": lambda: PointNet(3, 3),
    "dgcnn": lambda: DGCNN(3, 3, (8, 8), 6),
}
NODE_NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "authors": lambda: JLGCN(6, 8, 2, rank=3),
    "paper": lambda: JLGCN(6, 8, 2, rank=3, options=PRESETS["paper"]),
    "knn": lambda: JLGCN(6, 8, 2, rank=3, options=MEDIAN, backend="knn"),
    "gcn": lambda: GCN(6, 2),
}


def train_clouds(name: str, precision: Precision, epochs: int = 25) -> FitResult:
    weight = 0.01 if name in ("jlgcn", "pointnet") else 0.0
    config = GraphTrainConfig(
        epochs=epochs,
        batch_size=8,
        lr=0.01,
        lr_step=100,
        regularizer_weight=weight,
        precision=precision,
    )
    return fit_clouds(CLOUD_NETWORKS[name], small_clouds(), config=config)


def train_nodes(name: str, precision: Precision) -> FitResult:
    torch.manual_seed(0)
    config = TrainConfig(epochs=20, lr=0.02, lr_step=20, precision=precision)
    return fit_data(NODE_NETWORKS[name](), small_data(), config=config)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["jlgcn", "knn-gcn"])
def test_clouds_are_learned_in_bfloat16_as_well(name: str) -> None:
    low, full = train_clouds(name, "bfloat16"), train_clouds(name, "float32")
    assert low.parameter_sha256 != full.parameter_sha256
    assert abs(low.test_accuracy - full.test_accuracy) <= 0.1
    assert low.test_accuracy > 0.8
    assert low.history[0]["loss"] == pytest.approx(full.history[0]["loss"], rel=0.05)


@pytest.mark.parametrize("name", ["pointnet", "dgcnn"])
def test_baselines_for_clouds_are_trained_in_bfloat16(name: str) -> None:
    low, full = (train_clouds(name, precision, 1) for precision in ("bfloat16", "float32"))
    assert low.parameter_sha256 != full.parameter_sha256
    assert low.history[0]["loss"] == pytest.approx(full.history[0]["loss"], rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("name", NODE_NETWORKS)
def test_nodes_are_learned_in_bfloat16_as_well(name: str) -> None:
    low, full = train_nodes(name, "bfloat16"), train_nodes(name, "float32")
    assert low.parameter_sha256 != full.parameter_sha256
    assert abs(low.test_accuracy - full.test_accuracy) <= 0.05
    assert low.history[0]["loss"] == pytest.approx(full.history[0]["loss"], rel=0.05)


def test_parameters_stay_in_float32() -> None:
    model = CLOUD_NETWORKS["jlgcn"]()
    config = GraphTrainConfig(epochs=1, precision="bfloat16")
    fit_clouds(lambda: model, small_clouds(), config=config)
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_learned_graphs_are_the_same_under_autocast() -> None:
    x = torch.randn(40, 6)
    learner = GraphLearner(6, 3).calibrate(x)
    expected = learner(x).to_dense()
    with mixed_precision(x.device, "bfloat16"):
        found = learner(x).to_dense()
    assert torch.equal(found, expected)
    assert found.dtype == torch.float32


@pytest.mark.parametrize("widths", [(6, 2), (2, 6)])
def test_the_degrees_that_a_layer_returns_stay_in_float32(widths: tuple[int, int]) -> None:
    torch.manual_seed(0)
    x = torch.randn(300, widths[0])
    conv = JLGCNConv(*widths, rank=2, options=MEDIAN)
    conv.learner.calibrate(x)
    with mixed_precision(x.device, "bfloat16"), torch.no_grad():
        given = as_graph(None, 300)
        _, graph, degree, _ = conv.convolve(x, given, conv.learn(x, given))
    assert degree is not None
    assert degree.dtype == torch.float32
    assert largest_difference(degree, graph.to_dense().sum(-1)) < 1e-4


def test_neighbours_are_searched_in_float32_under_autocast() -> None:
    x = torch.randn(2, 50, 3) + 10
    expected = neighbors(x, 5)
    with mixed_precision(x.device, "bfloat16"):
        assert torch.equal(neighbors(x, 5), expected)


def test_an_unknown_precision_is_refused() -> None:
    wrong: Any = "float16"
    with pytest.raises(ValueError, match="one of float32, bfloat16, but it is 'float16'"):
        train_nodes("gcn", wrong)
    with pytest.raises(ValueError, match="one of float32, bfloat16, but it is 'float16'"):
        train_clouds("jlgcn", wrong)


def test_float32_is_no_autocast() -> None:
    with mixed_precision(torch.device("cpu"), "float32"):
        assert not torch.is_autocast_enabled("cpu")
        assert nn.Linear(2, 3)(torch.ones(1, 2)).dtype == torch.float32
