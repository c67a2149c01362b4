"""Dropout that is fast on a CPU: 16 random bits per entry, none for the zeros of sparse inputs."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

#: Above this density, drawing for all entries is as fast as finding the nonzero ones.
_MAX_DENSITY = 0.25

#: Number of values of the 16 random bits per entry.
_LEVELS = 1 << 16


def dropout(x: Tensor, p: float, training: bool = True) -> Tensor:
    """Apply dropout: set each entry to 0 with probability p and divide the others by 1 - p.

    The distribution of :func:`torch.nn.functional.dropout`, on a CPU with p rounded to the nearest
    1/65,536. Random numbers dominate the cost there, so one 64-bit number serves four entries, and
    for a sparse constant, such as a bag of words, only the nonzero entries draw.

    Args:
        x: a tensor of any shape.
        p (float in [0, 1]): dropout probability.
        training (bool, default True): False returns x unchanged.

    Cost: a few passes over x; on a CPU one random number per four entries.

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
    """Drop entries of x, drawing 16 bits for each."""
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device)
    bits = words.random_(-(1 << 63), None).view(torch.int16)[: x.numel()].view(x.shape)
    return x * (bits >= round(p * _LEVELS) - _LEVELS // 2).to(x.dtype).div_(1 - p)
