"""Dropout that draws nothing for zeros, and four entries' fate from one random number."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

#: Above this share of entries that are not 0, drawing for all of them is as fast.
_MAX_DENSITY = 0.25

#: Values of the 16 bits that decide over an entry.
_LEVELS = 1 << 16


def dropout(x: Tensor, p: float, training: bool = True) -> Tensor:
    """Set each entry to 0 with probability p and divide the others by 1 - p, in training.

    The same distribution as :func:`torch.nn.functional.dropout`, on a CPU with p to the nearest
    1/65,536. There random numbers cost more than the layer behind them, so four entries share the
    64 bits of one; and a bag of words is nearly all zeros, for which it does not matter what is
    drawn, so where few entries of a constant are not 0, only these draw.

    Args:
        x: what is dropped, of any shape.
        p: the probability.
        training: False returns x as it is.

    Cost: passes over x, and on a CPU a random number for every fourth entry.

    Example:
        >>> dropped = dropout(torch.eye(1000), 0.5)
        >>> sorted(set(dropped.flatten().tolist()))
        [0.0, 2.0]
    """
    if not training or p == 0:
        return x
    dropped = round(p * _LEVELS)
    if x.device.type != "cpu" or torch.compiler.is_compiling() or not 0 < dropped < _LEVELS:
        return functional.dropout(x, p)
    if x.requires_grad or int(torch.count_nonzero(x)) > _MAX_DENSITY * x.numel():
        return _drop(x, p)
    flat = x.reshape(-1)
    place = flat.nonzero().squeeze(1)
    out = torch.zeros_like(flat)
    out[place] = _drop(flat[place], p)
    return out.view(x.shape)


def _drop(x: Tensor, p: float) -> Tensor:
    """Draw for every entry."""
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device)
    bits = words.random_(-(1 << 63), None).view(torch.int16)[: x.numel()].view(x.shape)
    return x * (bits >= round(p * _LEVELS) - _LEVELS // 2).to(x.dtype).div_(1 - p)
