"""Several processes that train one network together, as `torchrun` starts them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

from jlgcn.distributed.heartbeat import SILENCE_SECONDS, heartbeat, store_of_this_start


@contextmanager
def torchrun_group(
    device: torch.device | str = "cpu", *, silence: float = SILENCE_SECONDS
) -> Iterator[None]:
    """Join the processes that `torchrun` has started, if it has started several; leave at the end.

    A process that is killed or stopped is noticed by the others, which name it and end, so that
    ``torchrun --max-restarts`` can start all of them again.

    Args:
        device: where the processes compute; NCCL connects GPUs, Gloo CPUs.
        silence: seconds without a sign of life after which a process counts as lost.

    Example:
        >>> with torchrun_group():
        ...     dist.is_initialized()  # this process is alone
        False
    """
    joins = int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized()
    if not joins:
        yield
        return
    backend = "nccl" if torch.device(device).type == "cuda" else "gloo"
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        # Under a name of this start: gloo would find the addresses of processes that are gone.
        dist.init_process_group(backend, store=store_of_this_start(), rank=rank, world_size=size)
    else:
        dist.init_process_group(backend)
    try:
        with heartbeat(dist.get_rank(), dist.get_world_size(), silence):
            yield
            # Whoever is done first goes on counting until the last one is done.
            dist.barrier()
    finally:
        dist.destroy_process_group()
