"""Dropout that draws nothing for zeros."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

#: Above this share of entries that are not 0, drawing for all of them is as fast.
_MAX_DENSITY = 0.25


def dropout(x: Tensor, p: float, training: bool = True) -> Tensor:
    """Set each entry to 0 with probability p and divide the others by 1 - p, in training.

    The same distribution as :func:`torch.nn.functional.dropout`. A bag of words is nearly all
    zeros, for which it does not matter what is drawn, and on a CPU random numbers cost more than
    the layer behind them: so where few entries of a constant are not 0, only these draw.

    Args:
        x: what is dropped, of any shape.
        p: the probability.
        training: False returns x as it is.

    Cost: a pass over x, and a random number for each entry that is not 0.

    Example:
        >>> dropped = dropout(torch.eye(1000), 0.5)
        >>> sorted(set(dropped.flatten().tolist()))
        [0.0, 2.0]
    """
    if not training or p == 0:
        return x
    is_dense = (
        x.requires_grad
        or torch.compiler.is_compiling()
        or int(torch.count_nonzero(x)) > _MAX_DENSITY * x.numel()
    )
    if is_dense:
        return functional.dropout(x, p)
    flat = x.reshape(-1)
    place = flat.nonzero().squeeze(1)
    out = torch.zeros_like(flat)
    out[place] = functional.dropout(flat[place], p)
    return out.view(x.shape)
