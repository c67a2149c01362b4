from __future__ import annotations

import multiprocessing
import signal
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from jlgcn._processes import end_with_parent
from tests.processes import killed_with_workers, say_where

COMMAND = "from tests.test_processes import start_pool; start_pool({!r})"


def start_pool(folder: str) -> None:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context, initializer=end_with_parent) as pool:
        pool.submit(work, Path(folder) / "busy").result()


def work(path: Path) -> None:
    say_where(path)
    time.sleep(600)


def test_workers_end_with_a_command_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", COMMAND.format(str(tmp_path))]
    killed_with_workers(command, [tmp_path / "busy"], signal.SIGTERM)
