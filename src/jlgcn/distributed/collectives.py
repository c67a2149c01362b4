"""Rank, world size and all-reduce, which also work without a process group."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor


def is_distributed() -> bool:
    """Return whether there is a process group of more than one process.

    Example:
        >>> is_distributed()
        False
    """
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def process_group() -> tuple[int, int]:
    """Return rank and world size; (0, 1) without a process group.

    Example:
        >>> process_group()
        (0, 1)
    """
    return (dist.get_rank(), dist.get_world_size()) if is_distributed() else (0, 1)


def sum_over_processes(value: Tensor) -> Tensor:
    """Return the sum of a tensor over all processes.

    Example:
        >>> import torch
        >>> sum_over_processes(torch.tensor(2.0))
        tensor(2.)
    """
    return mean_over_processes(value) * process_group()[1]


def mean_over_processes(value: Tensor) -> Tensor:
    """Return the mean of a tensor over all processes.

    Example:
        >>> import torch
        >>> mean_over_processes(torch.tensor(2.0))
        tensor(2.)
    """
    if is_distributed():
        value = value.clone()
        dist.all_reduce(value)
        value /= dist.get_world_size()
    return value


def shared_seed(device: torch.device) -> int:
    """Return the seed of the default generator of the first process, in all processes.

    Example:
        >>> _ = torch.manual_seed(3)
        >>> shared_seed(torch.device("cpu"))
        3
    """
    # Seeds have 64 bits without a sign.
    seed = torch.tensor(torch.initial_seed() % 2**63, device=device)
    if is_distributed():
        dist.broadcast(seed, 0)
    return int(seed)
