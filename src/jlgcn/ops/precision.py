"""In which precision the numbers of a graph are computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

_HALF = (torch.float16, torch.bfloat16)


def compute_dtype(*tensors: Tensor) -> torch.dtype:
    """Return the dtype in which distances and sums over `tensors` are computed.

    It is the common dtype of the tensors, but at least float32: a squared distance of 17
    underflows in half precision, and a degree of a thousand neighbours has no correct digit
    behind the comma in bfloat16.

    Example:
        >>> compute_dtype(torch.zeros(2, dtype=torch.bfloat16))
        torch.float32
    """
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return torch.float32 if dtype in _HALF or not dtype.is_floating_point else dtype


def no_autocast(device: torch.device) -> AbstractContextManager[None]:
    """Return a context in which `torch.autocast` does not lower matrix products to half precision.

    Needed in backward functions too: on a CPU they run inside the caller's context.
    """
    # The meta device, on which shapes are computed without values, has no autocast.
    return nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False)


@contextmanager
def without_denormals() -> Iterator[None]:
    """Within, numbers below the smallest normal one, 1e-38 in float32, count as 0 in this thread.

    Weights of far pairs fall there, where a CPU multiplies many times slower, and mean nothing.
    Threads that PyTorch has started already keep their own setting: to spare them too, call
    ``torch.set_flush_denormal(True)`` first in a program, as the command line does.

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
    """Move all points so that the mean of the valid columns is the origin; the others become 0.

    Distances do not change, so neither does any gradient: the mean is a constant. Without this, an
    offset of 100 makes the largest weight of a float32 kernel 1.2, where it should be 1.

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
