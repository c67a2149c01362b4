"""Ridge classifiers in closed form; penalty and temperature are selected by held-out log-loss."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

# Ridge penalties, the default first; each is combined with each temperature.
_RIDGES = (0.3, 0.1, 1.0, 0.03, 3.0, 0.01, 10.0, 30.0, 100.0)

# Inverse temperatures: regression on one-hot targets predicts values near 0 and 1, which are
# multiplied by one of these to become logits.
TEMPERATURES = (8.0, 16.0, 4.0, 2.0)


def fit_ridge(
    x: Tensor,  # (N, in_channels)
    y: Tensor,  # (N,), int64
    train: Tensor,  # (M,), int64
    val: Tensor | None,  # (V,), int64
    num_classes: int,
) -> tuple[Tensor, Tensor, Tensor]:  # (in_channels, num_classes), (num_classes,), (V or M,)
    """Return weight and bias of a ridge regression on one-hot classes, and held-out log-losses.

    Without validation nodes, held-out predictions are leave-one-out: they follow from the residuals
    of the full fit, divided by one minus the leverages (`Rifkin & Lippert, 2007
    <https://dspace.mit.edu/handle/1721.1/37318>`_), so all penalties share one eigendecomposition.
    :func:`is_better` selects penalty and temperature.
    """
    weight, bias, _, losses = _select(x, y, train, val, num_classes)
    return weight, bias, losses


def is_better(new: Tensor, old: Tensor, left_out: Tensor | None) -> bool:
    """Return whether held-out log-losses, (V or M,), favour a candidate over the current value.

    On validation nodes, means are compared. Leave-one-out losses are few, so the candidate must be
    better by more than one standard error, and labels that are the only one of their class do not
    count: without them the class is unknown.

    Args:
        new: losses of the candidate.
        old: losses of the current value.
        left_out: classes of the left-out labels, (M,); None for validation labels.
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
    """Return leave-one-out logits of the training labels; their losses are :func:`fit_ridge`'s."""
    return _select(x, y, train, None, num_classes)[2]


def _select(
    x: Tensor, y: Tensor, train: Tensor, val: Tensor | None, num_classes: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return weight, bias, held-out logits and held-out losses of the selected ridge regression."""
    target = functional.one_hot(y[train], num_classes).double()
    mean = target.mean(0)
    # Rows of mean norm 1 and a column of ones, so that the bias is penalised as the weights are.
    norm = float(x.norm(dim=-1).mean().clamp(min=1e-30))
    inputs = functional.pad(x[train].double() / norm, (0, 1), value=1.0)
    values, vectors = _eigh(inputs)
    rotated = inputs @ vectors
    moment = rotated.mT @ (target - mean)
    best: tuple[Tensor, Tensor, Tensor, float] | None = None
    for ridge in _RIDGES:
        shrinkage = 1 / (values + ridge)
        weight = vectors @ (shrinkage.unsqueeze(-1) * moment)
        if val is None:
            leverage = (rotated.square() * shrinkage).sum(-1, keepdim=True)
            predicted = target - (target - mean - inputs @ weight) / (1 - leverage)
            labels = y[train]
        else:
            held_out = functional.pad(x[val].double() / norm, (0, 1), value=1.0)
            predicted, labels = mean + held_out @ weight, y[val]
        for temperature in TEMPERATURES:
            logits = temperature * predicted
            losses = functional.cross_entropy(logits, labels, reduction="none")
            if best is None or is_better(losses, best[0], labels if val is None else None):
                best = (losses, weight, logits, temperature)
    assert best is not None
    losses, weight, logits, temperature = best
    bias = temperature * (mean + weight[-1])
    return (temperature / norm * weight[:-1]).to(x.dtype), bias.to(x.dtype), logits, losses


def _eigh(inputs: Tensor) -> tuple[Tensor, Tensor]:  # (K,), (in_channels, K)
    """Return non-zero eigenvalues and eigenvectors of XᵀX, by the smaller of XᵀX and XXᵀ."""
    is_wide = inputs.shape[0] < inputs.shape[1]
    values, vectors = torch.linalg.eigh(inputs @ inputs.mT if is_wide else inputs.mT @ inputs)
    is_kept = values > 1e-12 * values[-1]
    values, vectors = values[is_kept], vectors[:, is_kept]
    return values, inputs.mT @ (vectors * values.rsqrt()) if is_wide else vectors
