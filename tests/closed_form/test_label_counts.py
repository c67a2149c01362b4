"""Labels that count as several: with graph and hyperparameters fixed, as repeated labels do."""

from __future__ import annotations

import pytest
import torch

from jlgcn.closed_form import ClosedFormOptions, fit_closed_form
from jlgcn.closed_form.combine import inverse_temperature, part_weights
from jlgcn.closed_form.fit import fit_layers
from jlgcn.closed_form.held_out import HeldOut, mean_loss, standard_error
from jlgcn.closed_form.layer import NodesInMemory, Problem
from jlgcn.closed_form.logistic import fit_logistic, refit_logistic
from jlgcn.graphs.candidates import Candidates
from jlgcn.ops.svd import principal_directions
from tests.brute import F64, largest_difference

NUM_LABELS = 30


def labels() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return rows in three clusters, their classes, counts, and rows repeated so often."""
    y = torch.arange(NUM_LABELS) % 3
    x = torch.randn(NUM_LABELS, 6, dtype=F64)
    x[:, :2] += torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=F64)[y]
    count = torch.randint(1, 4, (NUM_LABELS,))
    return x, y, count.double(), torch.arange(NUM_LABELS).repeat_interleave(count)


def splits(y: torch.Tensor, count: torch.Tensor, again: torch.Tensor) -> tuple[HeldOut, HeldOut]:
    """Return folds of counted labels, and of repeated ones, all copies in one fold."""
    counted = HeldOut.folds(y, count, count)
    ones = torch.ones(len(again), dtype=F64)
    fold = counted.fold[again]
    weight = ones * (fold != torch.arange(counted.num_splits).unsqueeze(-1))
    return counted, HeldOut(weight, ones, fold, ones)


@pytest.mark.parametrize("num_features", [6, 100])
def test_integer_counts_equal_repeated_labels_in_the_head(num_features: int) -> None:
    x, y, count, again = labels()
    x = torch.cat([x, torch.randn(NUM_LABELS, num_features - 6, dtype=F64)], -1)
    counted, repeated = splits(y, count, again)
    start = torch.randn(num_features, 3, dtype=F64), torch.randn(3, dtype=F64)
    for penalty in (1.0, 0.04):
        once = refit_logistic(x, y, counted, penalty, start, is_final=True)
        often = refit_logistic(x[again], y[again], repeated, penalty, start, is_final=True)
        for one, other in zip(once, often, strict=True):
            assert largest_difference(one, other) < 1e-8


def test_integer_counts_select_the_penalty_of_repeated_labels() -> None:
    for _ in range(3):
        x, y, count, again = labels()
        counted, repeated = splits(y, count, again)
        once = fit_logistic(x, y, counted, 3)
        often = fit_logistic(x[again], y[again], repeated, 3)
        assert once.penalty == often.penalty
        assert largest_difference(once.held_out[again], often.held_out) < 1e-3  # in float32


def test_integer_counts_equal_repeated_labels_in_the_whole_model() -> None:
    x, y, count, again = labels()
    points = torch.cat([x, torch.randn(60, 6, dtype=F64)])
    projection = principal_directions(points, 6)
    nodes = NodesInMemory(Candidates.find(points, 20, None), projection, points @ projection)
    rows = torch.arange(NUM_LABELS)
    counted, repeated = splits(y, count, again)
    options = ClosedFormOptions(restart=0.1, n_neighbors=5, metric_weight=1.0)
    once = fit_layers(Problem(nodes, rows, y, counted, 3), options)
    often = fit_layers(Problem(nodes, rows[again], y[again], repeated, 3), options)
    for name, weight in once.evidence.weights.items():
        assert often.evidence.weights[name] == pytest.approx(weight, abs=1e-3)
        assert often.evidence.losses[name] == pytest.approx(once.evidence.losses[name], abs=1e-3)
    scores = [
        fitted.diffused.features @ fitted.classifier.graph + fitted.classifier.bias
        for fitted in (once, often)
    ]
    assert largest_difference(*scores) < 1e-2


def test_losses_weigh_as_if_they_were_repeated() -> None:
    x, y, count, again = labels()
    losses, ones = x.square()[:, :3].mT, torch.ones(len(again), dtype=F64)
    often = losses[:, again]
    assert torch.allclose(mean_loss(losses, count), often.mean(-1))
    expected = often.std(-1) / len(again) ** 0.5
    assert torch.allclose(standard_error(losses, count), expected)
    assert torch.allclose(part_weights(losses, count), part_weights(often, ones))
    assert inverse_temperature(x, y, count) == inverse_temperature(x[again], y[again], ones)


def test_a_tenth_of_a_label_each_leaves_the_mean_and_widens_its_error() -> None:
    losses, ones = torch.randn(20, dtype=F64), torch.ones(20, dtype=F64)
    assert torch.allclose(mean_loss(losses, 0.1 * ones), losses.mean())
    ratio = standard_error(losses, 0.1 * ones) / standard_error(losses, ones)
    assert float(ratio) == pytest.approx(10**0.5)


def test_counts_leave_the_mean_weight_of_classes_at_one() -> None:
    x, y, count, _ = labels()
    weight = torch.tensor([1.0, 2.0, 3.0])[y]
    one, tenfold = (
        fit_closed_form(
            x, y, train=torch.arange(NUM_LABELS), weight=factor * weight, count=count
        ).logits
        for factor in (1, 10)
    )
    assert largest_difference(one, tenfold) < 1e-6
