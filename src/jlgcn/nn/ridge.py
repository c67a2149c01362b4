"""A classifier in closed form, whose penalty is chosen by labels that it has not seen."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

# Penalties among which labels choose.
_RIDGES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)

# A regression on 0 and 1 answers with numbers between them; softmax takes them times this.
_SHARPNESS = 8.0


def fit_ridge(
    x: Tensor,  # (N, in_channels)
    y: Tensor,  # (N,), int64
    train: Tensor,  # (M,), int64
    val: Tensor | None,  # (V,), int64
    num_classes: int,
) -> tuple[Tensor, Tensor, float]:  # (in_channels, num_classes), (num_classes,), ()
    """Return weight and bias of a ridge regression on classes, and the loss that chose its penalty.

    Without validation nodes, every training label is predicted by all others. That follows from the
    fit to all, divided by one minus the label's own influence; so all penalties cost one
    eigendecomposition.
    """
    weight, bias, _, loss = _best_fit(x, y, train, val, num_classes)
    return weight, bias, loss


def leave_one_out(
    x: Tensor,  # (N, in_channels)
    y: Tensor,  # (N,), int64
    train: Tensor,  # (M,), int64
    num_classes: int,
) -> Tensor:  # (M, num_classes), float64
    """Return the scores of every training label, predicted by all others; see :func:`fit_ridge`.

    Their cross-entropy is the loss that :func:`fit_ridge` returns.
    """
    return _best_fit(x, y, train, None, num_classes)[2]


def _best_fit(
    x: Tensor, y: Tensor, train: Tensor, val: Tensor | None, num_classes: int
) -> tuple[Tensor, Tensor, Tensor, float]:
    """Return weight, bias, scores of labels that were not learned from, and their loss."""
    target = functional.one_hot(y[train], num_classes).double()
    mean = target.mean(0)
    # Rows of mean length 1, beside a column of ones: the bias is penalised as all weights are.
    length = float(x.norm(dim=-1).mean().clamp(min=1e-30))
    inputs = functional.pad(x[train].double() / length, (0, 1), value=1.0)
    values, vectors = torch.linalg.eigh(inputs.mT @ inputs)
    rotated = inputs @ vectors
    moment = rotated.mT @ (target - mean)
    found: list[tuple[float, Tensor, Tensor]] = []
    for ridge in _RIDGES:
        shrinkage = 1 / (values.clamp(min=0) + ridge)
        weight = vectors @ (shrinkage.unsqueeze(-1) * moment)
        if val is None:
            influence = (rotated.square() * shrinkage).sum(-1, keepdim=True)
            answer = target - (target - mean - inputs @ weight) / (1 - influence)
            labels = y[train]
        else:
            unseen = functional.pad(x[val].double() / length, (0, 1), value=1.0)
            answer, labels = mean + unseen @ weight, y[val]
        loss = float(functional.cross_entropy(_SHARPNESS * answer, labels))
        found.append((loss, weight, _SHARPNESS * answer))
    loss, weight, scores = min(found, key=lambda each: each[0])
    bias = _SHARPNESS * (mean + weight[-1])
    return (_SHARPNESS / length * weight[:-1]).to(x.dtype), bias.to(x.dtype), scores, loss
