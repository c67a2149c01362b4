"""Process groups under `torchrun`."""

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
    """Initialise the process group of `torchrun` within the context; do nothing in one process.

    If a process dies or hangs, the others log its rank and exit, so that
    ``torchrun --max-restarts`` restarts all of them.

    Args:
        device (torch.device or str, default "cpu"): device of the computation; NCCL is the backend
            for CUDA, Gloo for others.
        silence (float, default 45): seconds without a heartbeat after which a process is lost.

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
        # A prefix per start: gloo would read addresses of processes from before a restart.
        dist.init_process_group(backend, store=store_of_this_start(), rank=rank, world_size=size)
    else:
        dist.init_process_group(backend)
    try:
        with heartbeat(dist.get_rank(), dist.get_world_size(), silence):
            yield
            # The first process to finish sends heartbeats until the last one has finished.
            dist.barrier()
    finally:
        dist.destroy_process_group()
