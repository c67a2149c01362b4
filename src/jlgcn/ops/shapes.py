"""Batch dimensions."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def common_batch(*shapes: Sequence[int]) -> torch.Size:
    """Return the shape that all `shapes` broadcast to (typed, unlike PyTorch's).

    Example:
        >>> common_batch((4, 1), (3,))
        torch.Size([4, 3])
    """
    first, *others = shapes
    if all(tuple(first) == tuple(other) for other in others):
        return torch.Size(first)  # PyTorch's function imports sympy, half the time of a first fit
    return torch.Size(torch.broadcast_shapes(*shapes))
