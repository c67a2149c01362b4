"""A classifier in closed form, whose penalty is chosen by labels that it has not seen."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

# Penalties among which labels choose, tried in this order; with each of them:
_RIDGES = (0.3, 0.1, 1.0, 0.03, 3.0, 0.01, 10.0, 30.0, 100.0)

# A regression on 0 and 1 answers with numbers between them; softmax takes them times one of these,
# the more the surer the answers are.
TEMPERATURES = (8.0, 16.0, 4.0, 2.0)


def fit_ridge(
    x: Tensor,  # (N, in_channels)
    y: Tensor,  # (N,), int64
    train: Tensor,  # (M,), int64
    val: Tensor | None,  # (V,), int64
    num_classes: int,
) -> tuple[Tensor, Tensor, Tensor]:  # (in_channels, num_classes), (num_classes,), (V or M,)
    """Return weight and bias of a ridge regression, and the losses of labels it did not see.

    Penalty and temperature are those that make these labels most likely.

    Without validation nodes, every training label is predicted by all others. That follows from the
    fit to all, divided by one minus the label's own influence; so all penalties cost one
    eigendecomposition. These losses choose the penalty, see :func:`is_better`.
    """
    weight, bias, _, losses = _best_fit(x, y, train, val, num_classes)
    return weight, bias, losses


def is_better(new: Tensor, old: Tensor, left_out: Tensor | None) -> bool:
    """Return whether losses of labels say that a new setting is better than an old one.

    Of validation labels, the mean decides. Training labels that were left out in turn are few: a
    setting must be better by more than a standard error, and labels without another of their class
    say nothing, since no setting could have told them.

    Args:
        new: losses under the new setting, (V or M,).
        old: losses under the old one.
        left_out: the labels' classes, (M,), where they were left out; None for validation labels.
    """
    gain = old - new
    if left_out is None:
        return float(gain.mean()) > 0
    gain = gain[torch.bincount(left_out)[left_out] > 1]
    return len(gain) > 1 and float(gain.mean()) > float(gain.std()) / math.sqrt(len(gain))


def leave_one_out(
    x: Tensor,  # (N, in_channels)
    y: Tensor,  # (N,), int64
    train: Tensor,  # (M,), int64
    num_classes: int,
) -> Tensor:  # (M, num_classes), float64
    """Return the scores of every training label, predicted by all others; see :func:`fit_ridge`.

    Their cross-entropies are the losses that :func:`fit_ridge` returns.
    """
    return _best_fit(x, y, train, None, num_classes)[2]


def _best_fit(
    x: Tensor, y: Tensor, train: Tensor, val: Tensor | None, num_classes: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return weight, bias, scores of labels that were not learned from, and their losses."""
    target = functional.one_hot(y[train], num_classes).double()
    mean = target.mean(0)
    # Rows of mean length 1, beside a column of ones: the bias is penalised as all weights are.
    length = float(x.norm(dim=-1).mean().clamp(min=1e-30))
    inputs = functional.pad(x[train].double() / length, (0, 1), value=1.0)
    values, vectors = _principal(inputs)
    rotated = inputs @ vectors
    moment = rotated.mT @ (target - mean)
    best: tuple[Tensor, Tensor, Tensor, float] | None = None
    for ridge in _RIDGES:
        shrinkage = 1 / (values + ridge)
        weight = vectors @ (shrinkage.unsqueeze(-1) * moment)
        if val is None:
            influence = (rotated.square() * shrinkage).sum(-1, keepdim=True)
            answer = target - (target - mean - inputs @ weight) / (1 - influence)
            labels = y[train]
        else:
            unseen = functional.pad(x[val].double() / length, (0, 1), value=1.0)
            answer, labels = mean + unseen @ weight, y[val]
        for sharpness in TEMPERATURES:
            scores = sharpness * answer
            losses = functional.cross_entropy(scores, labels, reduction="none")
            if best is None or is_better(losses, best[0], labels if val is None else None):
                best = (losses, weight, scores, sharpness)
    assert best is not None
    losses, weight, scores, sharpness = best
    bias = sharpness * (mean + weight[-1])
    return (sharpness / length * weight[:-1]).to(x.dtype), bias.to(x.dtype), scores, losses


def _principal(inputs: Tensor) -> tuple[Tensor, Tensor]:  # (K,), (in_channels, K)
    """Return squared lengths and directions of rows, found where they are fewer: rows or columns.

    Directions in which no row points are left out; a ridge regression has no weight in them.
    """
    is_wide = inputs.shape[0] < inputs.shape[1]
    values, vectors = torch.linalg.eigh(inputs @ inputs.mT if is_wide else inputs.mT @ inputs)
    is_kept = values > 1e-12 * values[-1]
    values, vectors = values[is_kept], vectors[:, is_kept]
    return values, inputs.mT @ (vectors * values.rsqrt()) if is_wide else vectors
