"""Precision of distances and sums: dtypes, autocast, subnormal numbers, centring."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal, get_args

import torch
from torch import Tensor

_HALF = (torch.float16, torch.bfloat16)

#: Precision of the products with weights in training.
Precision = Literal["float32", "bfloat16"]


def compute_dtype(*tensors: Tensor) -> torch.dtype:
    """Return the dtype in which distances and sums over `tensors` are computed.

    The promoted dtype of the tensors, but at least float32: exp(-17) underflows in float16, and a
    degree of a thousand neighbours has no correct decimal in bfloat16.

    Example:
        >>> compute_dtype(torch.zeros(2, dtype=torch.bfloat16))
        torch.float32
    """
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return torch.float32 if dtype in _HALF or not dtype.is_floating_point else dtype


def no_autocast(device: torch.device) -> AbstractContextManager[None]:
    """Return a context that disables `torch.autocast`, so that products keep their precision.

    Backward functions need it too: on a CPU they run inside the caller's autocast context.
    """
    # The meta device (shapes without values) has no autocast.
    return nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False)


def mixed_precision(device: torch.device, precision: Precision) -> AbstractContextManager[None]:
    """Return a context in which products with weights are computed in a precision.

    "float32" leaves everything as it is. "bfloat16" is `torch.autocast`; distances, degrees and
    products with graphs keep their precision (:func:`no_autocast`).

    Example:
        >>> with mixed_precision(torch.device("cpu"), "bfloat16"):
        ...     torch.nn.Linear(2, 3)(torch.ones(1, 2)).dtype
        torch.bfloat16
    """
    choices = get_args(Precision)
    if precision not in choices:
        raise ValueError(f"precision must be one of {', '.join(choices)}, but it is {precision!r}")
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


@contextmanager
def without_denormals() -> Iterator[None]:
    """Flush subnormal numbers (below 1e-38 in float32) to 0 in this thread, within the context.

    Weights of distant pairs are subnormal; a CPU multiplies them many times slower, and they are
    negligible. Threads that PyTorch has already started keep their own setting: to include them,
    call ``torch.set_flush_denormal(True)`` at the start of a program, as the command line does.

    Example:
        >>> with without_denormals():
        ...     float(torch.tensor(1e-38) * torch.tensor(0.1))
        0.0
    """
    tiny = torch.tensor(torch.finfo(torch.float32).tiny, device="cpu")
    flushes_already = float(tiny / 2) == 0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(flushes_already)


def centred(
    rows: Tensor,  # (*batch, M, S)
    cols: Tensor,  # (*batch, N, S)
    col_valid: Tensor | None = None,  # (*batch, N), bool
) -> tuple[Tensor, Tensor]:
    """Subtract the mean of the valid columns from all points; padding columns become 0.

    Distances do not change, and neither do gradients, for which the mean is a constant. Without
    centring, an offset of 100 makes the largest weight of a float32 kernel 1.2 instead of 1.

    Example:
        >>> centred(torch.tensor([[5.0]]), torch.tensor([[1.0], [3.0]]))[1].squeeze()
        tensor([-1.,  1.])
    """
    if cols.shape[-2] == 0:
        return rows, cols
    if col_valid is None:
        mean = cols.detach().mean(-2, keepdim=True)
        return rows - mean, cols - mean
    is_absent = ~col_valid.unsqueeze(-1)
    num_valid = col_valid.sum(-1).clamp(min=1)[..., None, None]
    mean = cols.detach().masked_fill(is_absent, 0).sum(-2, keepdim=True) / num_valid
    return rows - mean, (cols - mean).masked_fill(is_absent, 0)
