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


def share_random_state(device: torch.device) -> None:
    """Set the default generators of all processes to the state of the first process.

    Example:
        >>> share_random_state(torch.device("cpu"))  # nothing to do in a single process
    """
    if not is_distributed():
        return
    state = torch.get_rng_state().to(device)  # NCCL broadcasts tensors of an accelerator only
    dist.broadcast(state, 0)
    torch.set_rng_state(state.cpu())
    if device.type == "cuda":
        state = torch.cuda.get_rng_state(device).to(device)
        dist.broadcast(state, 0)
        torch.cuda.set_rng_state(state.cpu(), device)
