"""The local engine: stages in a pool of processes, files on disk."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool

from jlgcn._memory import available_bytes
from jlgcn._processes import end_with_parent
from jlgcn.engine.tasks import Task, bar_of, run_task


class LocalExecutor:
    """Runs tasks in processes of one thread each, as many as cores and memory allow.

    Args:
        num_workers: number of processes; None for one for each core. With 1, tasks run in this
            process.
    """

    def __init__(self, num_workers: int | None = None) -> None:
        # The cores that this process may use, where the system says so.
        affinity = getattr(os, "sched_getaffinity", None)
        cores = len(affinity(0)) if affinity is not None else os.cpu_count()
        self.num_workers = num_workers or cores or 1
        self._pool: ProcessPoolExecutor | None = None

    def execute(self, uris: tuple[str, ...], tasks: Sequence[Task], num_bytes: int) -> None:
        """Run tasks, as :class:`jlgcn.engine.tasks.Executor` says."""
        free = available_bytes()
        if num_bytes > free:
            raise ValueError(
                f"{tasks[0].stage.__name__} needs {num_bytes / 2**30:,.1f} GiB a task but "
                f"{free / 2**30:,.1f} GiB of memory are free; take a larger machine, or in Python "
                "smaller shards (shard_rows=) or fewer components (n_components=)"
            )
        if self.num_workers == 1:
            with bar_of(tasks) as bar:
                for task in tasks:
                    run_task(uris, task.stage, task.arguments, task.name)
                    bar.update()
            return
        if self._pool is None:
            context = multiprocessing.get_context("spawn")  # threads do not survive a fork
            self._pool = ProcessPoolExecutor(
                self.num_workers, mp_context=context, initializer=end_with_parent
            )
        limit = max(1, min(self.num_workers, free // num_bytes))
        running: set[Future[None]] = set()
        waiting = list(reversed(tasks))
        try:
            with bar_of(tasks) as bar:
                while waiting or running:
                    while waiting and len(running) < limit:
                        task = waiting.pop()
                        arguments = (uris, task.stage, task.arguments, task.name)
                        running.add(self._pool.submit(run_task, *arguments))
                    finished, running = wait(running, return_when=FIRST_COMPLETED)
                    for each in finished:
                        each.result()
                        bar.update()
        except BrokenProcessPool:
            raise OSError(
                f"a process that ran {tasks[0].stage.__name__} was killed, perhaps for want of "
                "memory: run the command again, which goes on from here, with fewer workers; or "
                'the script has no `if __name__ == "__main__":` around the call, which its '
                "processes would make, too"
            ) from None

    def close(self) -> None:
        """End the processes of the pool."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
