"""Which labels to ask for next."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

# Penalty of the regression whose variance is to shrink, for rows of length 1.
_RIDGE = 0.5


def select_queries(
    x: Tensor,  # (N, in_channels)
    known: Tensor,  # (M,), int64
    num: int,
) -> Tensor:  # (num,), int64
    r"""Return rows whose labels would shrink the variance of all predictions most, one by one.

    With P the inverse of :math:`X_L^\top X_L + \lambda I` over the labelled rows L, the predictions
    of a ridge regression have variances proportional to :math:`x_i^\top P x_i`. One more label, of
    row v, takes from their sum

    .. math:: \frac{\sum_i (x_i^\top P x_v)^2}{1 + x_v^\top P x_v}

    The row with the largest such gain is taken, P is updated, and so on. What the labels are does
    not matter, so several can be asked for at once. Rows longer than the mean are cut to it, for
    those far from all others have the largest variance and tell nothing of anyone else.

    Args:
        x: what the regression sees of all rows.
        known: rows that are labelled; they are not returned.
        num: how many rows to return.

    Cost: 4·num·N·in_channels² FLOP, in float64.
    """
    num_open = x.shape[0] - len(known.unique())
    if not 1 <= num <= num_open:
        raise ValueError(
            f"{num_open} rows have no label, so 1 to {num_open} can be suggested, not {num}"
        )
    length = x.double().norm(dim=-1, keepdim=True)
    inputs = x.double() / length.clamp(min=max(float(length.mean()), 1e-30))
    inputs = functional.pad(inputs, (0, 1), value=1.0)
    moment = inputs.mT @ inputs
    labeled = inputs[known]
    precision = labeled.mT @ labeled
    precision.diagonal().add_(_RIDGE)
    variance = torch.linalg.inv(precision)
    is_known = torch.zeros(len(inputs), dtype=torch.bool)
    is_known[known] = True
    chosen: list[int] = []
    for _ in range(num):
        reach = inputs @ variance
        gain = ((reach @ moment) * reach).sum(-1) / (1 + (reach * inputs).sum(-1))
        best = int(gain.masked_fill(is_known, -torch.inf).argmax())
        chosen.append(best)
        is_known[best] = True
        step = variance @ inputs[best]
        variance = variance - torch.outer(step, step) / (1 + inputs[best] @ step)
    return torch.tensor(chosen)
