"""Broadcasting of batch dimensions."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def common_batch(*shapes: Sequence[int]) -> torch.Size:
    """Return the shape that all `shapes` broadcast to (typed, unlike PyTorch's).

    Example:
        >>> common_batch((4, 1), (3,))
        torch.Size([4, 3])
    """
    # PyTorch's function imports sympy, which takes half of the time of a first fit. Compared only
    # outside of a compiler: sizes are symbols there, and a comparison would fix them.
    if not torch.compiler.is_compiling() and len({tuple(shape) for shape in shapes}) == 1:
        return torch.Size(shapes[0])
    return torch.Size(torch.broadcast_shapes(*shapes))
