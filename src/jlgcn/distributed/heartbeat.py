"""Processes that notice when one of them is gone or stopped, and say which.

A collective waits for everybody, and its own time limit would have to be longer than the longest
step. So every process counts up a number of its own in the store that `torchrun` keeps, and looks
at those of the others; whoever stops counting is named, and the process ends, so that `torchrun`
can start all of them again from their checkpoint.
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

#: Seconds without a sign of life after which a process counts as lost.
SILENCE_SECONDS = 45.0

#: Exit code of a process that has lost another one: EX_TEMPFAIL, so try again.
LOST_CODE = 75

_BEAT_SECONDS = 1.0


@contextmanager
def heartbeat(rank: int, world_size: int, silence: float = SILENCE_SECONDS) -> Iterator[None]:
    """Within, this process shows that it lives, and ends if another one does not.

    Args:
        rank: of this process.
        world_size: how many there are.
        silence: seconds without a sign of life after which a process counts as lost.

    Cost: a thread that asks the store for `world_size` small numbers a second.
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
    """Return a new connection to the store of `torchrun`, under a name that no start shares."""
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
            # Adding nothing reads a number, and makes it 0 where there is none yet.
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
                # One that has never counted is still starting, or has finished with its last.
                _leave(
                    f"rank {other} has given no sign of life for {silence:.0f} s: it was killed, "
                    f"stopped, or its machine is gone; rank {rank} ends, and torchrun "
                    "--max-restarts starts all again from their checkpoint"
                )
                return


def _leave(message: str) -> None:
    """End at once: the main thread waits in a collective that nobody will finish."""
    logger.error(message)
    sys.stderr.write(f"jlgcn: {message}\n")
    sys.stderr.flush()
    os._exit(LOST_CODE)
