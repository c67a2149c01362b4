"""Average classifiers by their held-out losses, and calibrate the average."""

from __future__ import annotations

from torch import Tensor

from jlgcn.closed_form.held_out import mean_loss, standard_error
from jlgcn.closed_form.logistic import cross_entropy

# Inverse temperatures between 1/16 and 4 are compared.
_INVERSE_TEMPERATURES = tuple(2 ** (step / 8) for step in range(-32, 17))

# What is believed before any label is seen: held-out scores of few labels are twice too large, give
# or take a factor of e, and so many more labels show every class alike.
_PRIOR_FACTOR = 0.5
_UNIFORM_LABELS = 2


def part_weights(losses: Tensor, count: Tensor) -> Tensor:  # (P,), float64
    r"""Return weights of classifiers from their held-out log-losses.

    .. math:: w_p \propto \exp(-z_p), \qquad z_p = \bar\delta_p / \mathrm{se}(\delta_p)

    where δ_p is the loss of classifier p minus that of the best, label by label. A classifier whose
    loss is z standard errors worse than the best has e^(-z) of its weight: few labels average,
    many select. Equal weights without held-out labels.

    Args:
        losses: held-out log-losses of each classifier, (P, M).
        count: number of labels that each counts as, (M,).
    """
    if losses.shape[1] < 2:
        return losses.new_full((len(losses),), 1 / len(losses))
    best = losses[mean_loss(losses, count).argmin()]
    difference = losses - best
    error = standard_error(difference, count)
    weight = (-mean_loss(difference, count) / error.clamp(min=1e-9)).exp()
    return weight / weight.sum()


def inverse_temperature(logits: Tensor, y: Tensor, count: Tensor) -> float:
    r"""Return the factor of logits that fits held-out labels, from 1/16 to 4.

    .. math:: \min_\beta \; \sum_i n_i \, \ell(y_i, \beta z_i)
        + \frac{2}{\sum_i n_i} \sum_i \frac{n_i}{C} \sum_c \ell(c, \beta z_i)
        + \frac12 \left(\log \frac{\beta}{1/2}\right)^2

    Temperature scaling (`Guo et al., 2017 <https://arxiv.org/abs/1706.04599>`_) with a prior, since
    few labels do not determine it: 2 labels' worth of label smoothing, and a log-normal around 1/2.
    Many labels outweigh both.

    Args:
        logits: held-out logits, (M, C).
        y: classes, (M,).
        count: n, number of labels that each counts as, (M,).
    """
    if len(y) < 2:
        return _PRIOR_FACTOR
    factor = logits.new_tensor(_INVERSE_TEMPERATURES)
    scaled = factor.view(-1, 1, 1) * logits
    uniform = mean_loss(-scaled.log_softmax(-1).mean(-1), count)
    prior = 0.5 * (factor / _PRIOR_FACTOR).log().square()
    loss = (cross_entropy(scaled, y) * count).sum(-1) + _UNIFORM_LABELS * uniform + prior
    return float(factor[loss.argmin()])


def gain(losses: Tensor, base: Tensor, count: Tensor) -> tuple[float, float]:
    """Return the mean decrease of held-out log-losses, (M,), and its standard error.

    Args:
        losses: losses.
        base: losses that they are compared with.
        count: number of labels that each counts as, (M,).
    """
    difference = base - losses
    error = float(standard_error(difference, count)) if len(difference) > 1 else 0.0
    return float(mean_loss(difference, count)), error
