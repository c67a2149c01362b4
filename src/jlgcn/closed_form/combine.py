"""Average classifiers by their held-out losses, and calibrate the average."""

from __future__ import annotations

import math

from torch import Tensor

from jlgcn.closed_form.logistic import cross_entropy

# Inverse temperatures between 1/4 and 4 are compared; leaving 1 must pay by more than rounding.
_INVERSE_TEMPERATURES = tuple(2 ** (step / 8) for step in range(-16, 17))


def part_weights(losses: Tensor) -> Tensor:  # (P,), float64
    r"""Return weights of classifiers from their held-out log-losses.

    .. math:: w_p \propto \exp(-z_p), \qquad z_p = \bar\delta_p / \mathrm{se}(\delta_p)

    where δ_p is the loss of classifier p minus that of the best, label by label. A classifier whose
    loss is z standard errors worse than the best has e^(-z) of its weight: few labels average,
    many select. Equal weights without held-out labels.

    Args:
        losses: held-out log-losses of each classifier, (P, M).
    """
    if losses.shape[1] < 2:
        return losses.new_full((len(losses),), 1 / len(losses))
    best = losses[losses.mean(-1).argmin()]
    difference = losses - best
    error = difference.std(-1) / math.sqrt(losses.shape[1])
    weight = (-difference.mean(-1) / error.clamp(min=1e-9)).exp()
    return weight / weight.sum()


def inverse_temperature(logits: Tensor, y: Tensor) -> float:
    """Return the factor of logits that minimises the log-loss of held-out labels, from 1/4 to 4.

    Temperature scaling (`Guo et al., 2017 <https://arxiv.org/abs/1706.04599>`_), with a normal
    prior of standard deviation 1/2 on the logarithm, since a few labels do not determine it.

    Args:
        logits: held-out logits, (M, C).
        y: classes, (M,).
    """
    if len(y) < 2:
        return 1.0
    factor = logits.new_tensor(_INVERSE_TEMPERATURES)
    losses = cross_entropy(factor.view(-1, 1, 1) * logits, y).sum(-1)
    return float(factor[(losses + 2 * factor.log().square()).argmin()])


def gain(losses: Tensor, base: Tensor) -> tuple[float, float]:
    """Return the mean decrease of held-out log-losses, (M,), and its standard error."""
    difference = base - losses
    error = float(difference.std()) / math.sqrt(len(difference)) if len(difference) > 1 else 0.0
    return float(difference.mean()), error
