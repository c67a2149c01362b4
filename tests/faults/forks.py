"""Processes that are killed: forks of a server that has imported everything and computed nothing.

A fork of this process would not do: PyTorch's threads for gradients do not survive one.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["jlgcn.training", "jlgcn.estimator", "tests.training.small"])


@contextmanager
def forked(action: Callable[..., object], *args: object) -> Iterator[ForkServerProcess]:
    """Do something in a process of its own; it is gone afterwards."""
    process = _CONTEXT.Process(target=_quietly, args=(action, *args))
    process.start()
    try:
        yield process
    finally:
        process.terminate()  # so that what it has started itself can be ended by it
        process.join(10)
        process.kill()
        process.join()


def wait(process: ForkServerProcess, seconds: float) -> int | None:
    """Return the exit code of a process, negative for a signal, or None if it still runs."""
    process.join(seconds)
    return process.exitcode


def wait_for(path: Path, process: ForkServerProcess, seconds: float = 120.0) -> None:
    """Wait until a process has written a file."""
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert process.exitcode is None, f"it ended with {process.exitcode}"
        assert time.monotonic() < deadline, f"{path} does not come"
        time.sleep(0.002)


def _quietly(action: Callable[..., object], *args: object) -> None:
    import torch

    torch.set_num_threads(1)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    action(*args)
