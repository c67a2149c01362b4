from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from jlgcn.nn import PRESETS, GraphLevelJLGCN
from jlgcn.paper.cloud_baselines import DGCNN, PointNet
from jlgcn.paper.cloud_data import CloudData
from jlgcn.training import FitResult, GraphTrainConfig, RunOptions
from jlgcn.training.checkpoint import load_checkpoint
from tests.processes import run_processes
from tests.training.cloud_worker import losses
from tests.training.small import fit_clouds, small_clouds

ROOT = Path(__file__).parents[2]

CONFIG = GraphTrainConfig(epochs=6, num_points=24, batch_size=8, lr=0.01, lr_step=3, augments=True)

# The text's metric begins small beside a unit sphere, and the learner says so.
pytestmark = pytest.mark.filterwarnings("ignore:the learned graph is complete")


def small() -> GraphLevelJLGCN:
    return GraphLevelJLGCN(3, 3, (8, 16), (8,), rank=4)


def train(seed: int, folder: Path | None = None, **changes: object) -> FitResult:
    config = GraphTrainConfig(**(vars(CONFIG) | changes))
    return fit_clouds(
        small,
        small_clouds(),
        config=config,
        seed=seed,
        points_missing=(0.0, 0.5),
        options=RunOptions(checkpoints=folder, checkpoint_seconds=0),
    )


def test_it_learns_and_measures() -> None:
    result = train(0, epochs=25, lr_step=100)
    assert result.test_accuracy > 0.8
    assert result.best_test_accuracy is None
    measured = result.measured
    confusion = torch.tensor(measured["confusion"])
    assert int(confusion.sum()) == 22
    assert result.test_accuracy == pytest.approx(float(confusion.diagonal().sum()) / 22)
    by_class = confusion.diagonal() / confusion.sum(-1)
    assert measured["mean_class_accuracy"] == pytest.approx(float(by_class.mean()), rel=1e-5)
    assert measured["model_bytes"] == 4 * sum(p.numel() for p in small().parameters())
    assert measured["accuracy_missing"]["0"] == pytest.approx(result.test_accuracy)
    assert set(measured["accuracy_missing"]) == {"0", "0.5"}


def test_the_same_seed_is_the_same_to_the_bit() -> None:
    assert train(1).parameter_sha256 == train(1).parameter_sha256
    assert train(1).parameter_sha256 != train(2).parameter_sha256


def test_a_resumed_run_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    calls = 0

    def fail(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 14:  # in the fourth epoch, of three steps and a validation each
            raise RuntimeError("stop")

    def make() -> nn.Module:
        model = small()
        model.register_forward_pre_hook(fail)
        return model

    with pytest.raises(RuntimeError, match="stop"):
        fit_clouds(
            make,
            small_clouds(),
            config=CONFIG,
            seed=5,
            options=RunOptions(checkpoints=tmp_path, checkpoint_seconds=0),
        )
    found = load_checkpoint(tmp_path)
    assert found is not None
    assert 0 < found[1]["epoch"] < CONFIG.epochs
    assert train(5, tmp_path).parameter_sha256 == train(5).parameter_sha256


def test_regularizers() -> None:
    assert train(0, regularizer_weight=0.1).parameter_sha256 != train(0).parameter_sha256
    config = GraphTrainConfig(epochs=1, num_points=24, batch_size=8, regularizer_weight=0.001)
    fit_clouds(lambda: PointNet(3, 3), small_clouds(), config=config, seed=0)
    with pytest.raises(ValueError, match=r"regularizer_weight needs .* but DGCNN has none; set it"):
        fit_clouds(lambda: DGCNN(3, 3, (8, 8), 4), small_clouds(), config=config, seed=0)


def test_metrics_begin_at_the_scale_of_the_features_of_training() -> None:
    """Those of evaluation are not normalised yet, and far smaller."""
    options = replace(PRESETS["paper"], metric_init="median")
    config = replace(CONFIG, epochs=1, lr=0.0, num_points=40, augments=False)
    model = GraphLevelJLGCN(3, 3, (8, 16), (8,), rank=4, options=options)
    fit_clouds(lambda: model, small_clouds(), config=config)
    out = model.train()(small_clouds().points[:8])
    for learner, features in zip(model.learners, out.features, strict=True):
        z = learner.project(features)[0].detach()
        assert 0.7 < float(torch.pdist(z).square().median()) < 1.4  # of a sample of pairs it is 1


def test_a_single_cloud_left_over_is_left_out() -> None:
    config = GraphTrainConfig(epochs=1, num_points=24, batch_size=7)  # 22 = 3 · 7 + 1
    assert fit_clouds(small, small_clouds(), config=config).history[0]["loss"] > 0


def test_evaluation_draws_nothing_from_the_run() -> None:
    """What is drawn in training must not depend on how many clouds are evaluated."""
    data = small_clouds()
    fewer = CloudData(**(vars(data) | {"val": data.val[:5]}))
    config = GraphTrainConfig(epochs=2, num_points=24, batch_size=8)
    losses = [
        [row["loss"] for row in fit_clouds(small, each, config=config).history]
        for each in (data, fewer)
    ]
    assert losses[0] == losses[1]


@pytest.mark.slow
def test_two_processes_have_the_losses_of_one() -> None:
    printed = run_processes(2, "tests.training.cloud_worker")
    (line,) = (line for line in printed.splitlines() if line.startswith("["))
    assert json.loads(line) == pytest.approx(losses(), rel=1e-9)
