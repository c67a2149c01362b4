"""Active learning: the rows to label next, by sequential V-optimal design."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

# Ridge penalty of the regression whose variance is minimised; its rows have norms of at most 1.
_RIDGE = 0.5


def select_queries(
    x: Tensor,  # (N, in_channels)
    labeled: Tensor,  # (M,), int64
    num: int,
) -> Tensor:  # (num,), int64
    r"""Return the unlabelled rows whose labels reduce the mean prediction variance most.

    Greedy V-optimal design (`Yu et al., 2006 <https://doi.org/10.1145/1143844.1143980>`_) for a
    ridge regression. With :math:`P = (X_L^\top X_L + \lambda I)^{-1}` over the labelled rows L,
    prediction variances are proportional to :math:`x_i^\top P x_i`, and the label of row v reduces
    their sum by

    .. math:: \frac{\sum_i (x_i^\top P x_v)^2}{1 + x_v^\top P x_v}

    The row of the largest reduction is selected, P is updated (Sherman-Morrison), and so on. The
    reduction does not depend on the labels, so a batch is selected at once. Rows longer than the
    mean norm are shortened to it: outliers have the largest variance, but their labels say little
    about other rows.

    Args:
        x: inputs of the regression for all rows.
        labeled: labelled rows; they are not returned.
        num: number of rows to select.

    Cost: 6·N·in_channels² FLOP, and 4·N·in_channels for each row, in float64.
    """
    num_unlabeled = x.shape[0] - len(labeled.unique())
    if not 1 <= num <= num_unlabeled:
        raise ValueError(
            f"the number of suggested rows must be 1 to {num_unlabeled}, the rows without a label, "
            f"but it is {num}"
        )
    norm = x.double().norm(dim=-1, keepdim=True)
    inputs = x.double() / norm.clamp(min=max(float(norm.mean()), 1e-30))
    inputs = functional.pad(inputs, (0, 1), value=1.0)
    moment = inputs.mT @ inputs
    train = inputs[labeled]
    precision = train.mT @ train
    precision.diagonal().add_(_RIDGE)
    covariance = torch.linalg.inv(precision)
    projected = inputs @ covariance
    variance = (projected * inputs).sum(-1)  # x' P x of every row
    spread = ((projected @ moment) * projected).sum(-1)  # x' P M P x, with M the moment
    is_excluded = torch.zeros(len(inputs), dtype=torch.bool, device=x.device)
    is_excluded[labeled] = True
    queries: list[Tensor] = []
    for _ in range(num):
        best = (spread / (1 + variance)).masked_fill(is_excluded, -torch.inf).argmax()
        queries.append(best)
        is_excluded[best] = True
        # P loses s s' / (1 + x_v' P x_v) with s = P x_v: both sums change by vectors alone.
        step = covariance @ inputs[best]
        scale = 1 + variance[best].clone()
        pushed = moment @ step
        along = inputs @ step
        across = inputs @ (covariance @ pushed)
        spread -= (2 * across - along * (step @ pushed) / scale) * along / scale
        variance -= along.square() / scale
        covariance -= torch.outer(step, step) / scale
    return torch.stack(queries)
