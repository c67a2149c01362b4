"""Failure detection: a heartbeat that ends a process when another one has died or hangs.

A collective waits for all processes, and its timeout would have to exceed the longest step. So each
process increments a counter in `torchrun`'s key-value store and watches the other counters. If one
stops, the watcher logs its rank and ends its own process, so that `torchrun` restarts all processes
from their checkpoint.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch.distributed as dist

logger = logging.getLogger(__name__)

#: Seconds without a heartbeat after which a process is considered lost.
SILENCE_SECONDS = 45.0

#: Exit code after the loss of another process: EX_TEMPFAIL, "try again".
LOST_CODE = 75

_BEAT_SECONDS = 1.0


@contextmanager
def heartbeat(rank: int, world_size: int, silence: float = SILENCE_SECONDS) -> Iterator[None]:
    """Send heartbeats within the context, and end this process if another one's stop.

    Args:
        rank: rank of this process.
        world_size: number of processes.
        silence (float, default 45): seconds without a heartbeat after which a process is lost.

    Cost: a thread that reads `world_size` counters from the store every second.
    """
    store = store_of_this_start(silence)
    done = threading.Event()
    watcher = threading.Thread(
        target=_watch,
        args=(store, rank, world_size, silence, done),
        name="jlgcn-heartbeat",
        daemon=True,
    )
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join(timeout=2 * _BEAT_SECONDS)


def store_of_this_start(timeout: float = 300.0) -> Any:  # noqa: ANN401
    """Return a new connection to `torchrun`'s store, with a key prefix per (re)start."""
    store = dist.TCPStore(  # type: ignore[attr-defined]
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=False,
        timeout=timedelta(seconds=timeout),
        wait_for_workers=False,
    )
    start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return dist.PrefixStore(f"jlgcn/start-{start}", store)  # type: ignore[attr-defined]


def _watch(
    store: Any,  # noqa: ANN401
    rank: int,
    world_size: int,
    silence: float,
    done: threading.Event,
) -> None:
    seen: dict[int, tuple[int, float]] = {}
    others = [other for other in range(world_size) if other != rank]
    while not done.wait(_BEAT_SECONDS):
        try:
            store.add(f"alive/{rank}", 1)
            # Adding 0 reads a counter, and creates it if it does not exist yet.
            counts = {other: store.add(f"alive/{other}", 0) for other in others}
        except (RuntimeError, OSError) as problem:
            if not done.is_set():
                _leave(f"rank {rank} cannot reach the store of torchrun any more ({problem})")
            return
        now = time.monotonic()
        for other, count in counts.items():
            if other not in seen or seen[other][0] != count:
                seen[other] = (count, now)
            elif now - seen[other][1] > silence:
                # A counter that never moved belongs to a process that is starting or has ended.
                _leave(
                    f"rank {other} has sent no heartbeat for {silence:.0f} s: it was killed or "
                    f"stopped, or its machine is down; rank {rank} ends, so that torchrun "
                    "--max-restarts restarts all from their checkpoint"
                )
                return


def _leave(message: str) -> None:
    """Exit immediately: the main thread waits in a collective that will not finish."""
    logger.error(message)
    sys.stderr.write(f"jlgcn: {message}\n")
    sys.stderr.flush()
    os._exit(LOST_CODE)
