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
    return torch.Size(torch.broadcast_shapes(*shapes))
