"""Several processes, as torchrun or a pool starts them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run_processes(number: int, *arguments: str) -> str:
    """Run ``python -m ARGUMENTS`` in so many processes that form a group; return what they print.

    Args:
        number: of processes.
        arguments: module and arguments.
    """
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={number}"]
    command += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "-m", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def say_where(path: Path) -> None:
    """Write the number of this process to a file, all at once."""
    path.with_suffix(".tmp").write_text(str(os.getpid()))
    path.with_suffix(".tmp").rename(path)


def killed_with_workers(command: list[str], paths: list[Path], number: signal.Signals) -> None:
    """Kill a command and assert that its workers end, too.

    Args:
        command: starts workers.
        paths: files that they write with :func:`say_where`.
        number: the signal, which only the command gets.
    """
    workers: list[int] = []
    with subprocess.Popen(command, cwd=ROOT) as process:
        try:
            _wait(lambda: process.poll() is not None or all(path.exists() for path in paths), 120)
            workers = [int(path.read_text()) for path in paths]
            assert all(map(_is_running, workers))
        finally:
            process.send_signal(number)
    try:
        _wait(lambda: not any(map(_is_running, workers)), 20)
    finally:
        for worker in filter(_is_running, workers):
            os.kill(worker, signal.SIGKILL)


def _wait(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"nothing happened in {seconds:g} seconds"
        time.sleep(0.05)


def _is_running(number: int) -> bool:
    """Whether a process runs; one that ended and waits for its parent does not."""
    state = Path(f"/proc/{number}/stat")
    try:
        os.kill(number, 0)
        return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
