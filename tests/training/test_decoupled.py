"""Training of the decoupled network: metric steps, consistency, checkpoints."""

from pathlib import Path

import pytest
import torch

from jlgcn.nn import JLGCN, DecoupledJLGCN
from jlgcn.training import DecoupledConfig, FitResult, RunOptions, TrainConfig, fit_nodes
from tests.training.small import fit_data, small_data

QUICK = DecoupledConfig(epochs=20, metric_epochs=(5, 10), lr=0.05, metric_lr=0.001)


def fit(
    config: DecoupledConfig = QUICK, checkpoints: Path | None = None
) -> tuple[DecoupledJLGCN, FitResult]:
    torch.manual_seed(0)
    model = DecoupledJLGCN(6, 8, 2, num_neighbors=5, num_candidates=20)
    options = RunOptions(checkpoints=checkpoints, checkpoint_seconds=0)
    return model, fit_data(model, small_data(), config=config, options=options)


def test_training_classifies_the_test_nodes() -> None:
    model, result = fit()
    assert result.test_accuracy > 0.85
    assert not model.training


def test_the_metric_stays_euclidean_until_its_first_step() -> None:
    never, _ = fit(DecoupledConfig(epochs=8, metric_epochs=()))
    assert not bool(never.metric.weight.any())
    torch.manual_seed(0)
    model = DecoupledJLGCN(6, 8, 2, num_neighbors=5)
    data = small_data()
    x, graph = data.x, data.graph()
    model.regress_metric(x, graph, torch.eye(2)[data.y], variance=0.1)
    z = model.metric(x).detach()
    assert float((z - z.mean(0)).square().sum(-1).mean()) == pytest.approx(0.1, rel=1e-4)


def test_validation_may_select_an_epoch_before_the_metric() -> None:
    model, result = fit(DecoupledConfig(epochs=12, metric_epochs=(11,), lr=0.05))
    if result.best_epoch < 11:  # as is the case with these data
        assert not bool(model.metric.weight.any())
    assert result.best_epoch < 11


def test_the_metric_has_a_learning_rate_of_its_own() -> None:
    frozen, _ = fit(DecoupledConfig(epochs=12, metric_epochs=(0,), metric_lr=0.0, lr=0.05))
    moving, _ = fit(DecoupledConfig(epochs=12, metric_epochs=(0,), metric_lr=0.1, lr=0.05))
    assert not torch.equal(frozen.metric.weight, moving.metric.weight)


def test_the_same_seed_gives_the_same_bits_also_after_a_resume(tmp_path: Path) -> None:
    class StopError(Exception):
        pass

    _, whole = fit()
    with pytest.MonkeyPatch.context() as patch:
        original = DecoupledJLGCN.forward
        count = 0

        def interrupted(self: DecoupledJLGCN, *args: object, **keywords: object) -> object:
            nonlocal count
            count += 1
            if count == 17:
                raise StopError
            return original(self, *args, **keywords)  # type: ignore[arg-type]

        patch.setattr(DecoupledJLGCN, "forward", interrupted)
        with pytest.raises(StopError):
            fit(checkpoints=tmp_path)
    _, resumed = fit(checkpoints=tmp_path)
    assert resumed.parameter_sha256 == whole.parameter_sha256
    assert fit()[1].parameter_sha256 == whole.parameter_sha256


def test_labels_of_other_nodes_change_nothing() -> None:
    _, expected = fit()
    data = small_data()
    y = data.y.clone()
    y[data.test] = -1
    torch.manual_seed(0)
    model = DecoupledJLGCN(6, 8, 2, num_neighbors=5, num_candidates=20)
    found = fit_nodes(model, data.x, y, data.graph(), train=data.train, val=data.val, config=QUICK)
    assert found.parameter_sha256 == expected.parameter_sha256


def test_the_regularizer_makes_predictions_smoother() -> None:
    data = small_data()

    def roughness(weight: float) -> float:
        model, _ = fit(DecoupledConfig(epochs=20, metric_epochs=(), lr=0.05, glr_weight=weight))
        out = model(data.x, data.graph())
        return float(model.regularizer(out.logits, out.graphs[0]).detach())

    assert roughness(10.0) < roughness(0.0)


def test_network_and_configuration_must_fit() -> None:
    with pytest.raises(TypeError, match="trains with a DecoupledConfig"):
        fit_data(DecoupledJLGCN(6, 8, 2), small_data(), config=TrainConfig(epochs=1))
    with pytest.raises(TypeError, match="config a DecoupledConfig"):
        fit_data(JLGCN(6, 8, 2), small_data(), config=DecoupledConfig(epochs=1))
    with pytest.raises(ValueError, match="trains in float32"):
        fit(DecoupledConfig(epochs=1, precision="bfloat16"))
