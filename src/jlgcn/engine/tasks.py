"""Tasks: a stage, its arguments, and the name of the file that it makes of them."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from tqdm import tqdm

from jlgcn._memory import return_freed_memory
from jlgcn._optional import require
from jlgcn._threads import threads_for
from jlgcn.closed_form.shard_runner import Done
from jlgcn.closed_form.shards import Stage
from jlgcn.engine.store import Store, open_store

logger = logging.getLogger(__name__)

# Part of every hash: files of other versions of the stages are not taken for ours.
_VERSION = 4


@dataclass(frozen=True, eq=False)
class Task:
    """A stage with its arguments, all of which JSON can hold.

    Attributes:
        stage: the stage.
        arguments: its keyword arguments.
        name: name of its file: stage, shard, hash of the arguments.
    """

    stage: Stage
    arguments: Mapping[str, Any]
    name: str

    @classmethod
    def of(cls, stage: Stage, arguments: Mapping[str, Any]) -> Task:
        """Return a task with its name."""
        content = json.dumps([_VERSION, stage.__name__, arguments], sort_keys=True)
        place = f"{arguments['shard']:05d}-" if "shard" in arguments else ""
        digest = hashlib.sha256(content.encode()).hexdigest()[:24]
        return cls(stage, arguments, f"{stage.__name__}-{place}{digest}")


def run_task(uris: tuple[str, ...], stage: Stage, arguments: Mapping[str, Any], name: str) -> None:
    """Run a stage where it is called, and write its file: the same bits by every engine.

    On one thread, since sums depend on the number of threads; without gradients, which a process
    of its own would record, and for which a diffusion takes one step more.
    """
    store = open_store(*uris)
    with torch.no_grad(), _one_thread():
        store.put(name, stage(store, **arguments))
    return_freed_memory()  # or the next task of this process has it on top of its own


@contextmanager
def _one_thread() -> Iterator[None]:
    faiss = require("faiss", "scale", "an engine")
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        with threads_for(0):
            yield
    finally:
        faiss.omp_set_num_threads(before)


def bar_of(tasks: Sequence[Task]) -> tqdm:
    """Return a progress bar of the tasks of a stage: in a terminal, if stages are logged."""
    is_shown = len(tasks) > 1 and logger.isEnabledFor(logging.INFO)
    stage = tasks[0].stage.__name__
    return tqdm(total=len(tasks), desc=stage, leave=False, disable=None if is_shown else True)


class Executor(Protocol):
    """What runs tasks: a pool of processes, or a cluster."""

    def execute(self, uris: tuple[str, ...], tasks: Sequence[Task], num_bytes: int) -> None:
        """Run tasks, in any order; raise if one fails for good.

        Args:
            uris: folders of the store.
            tasks: tasks of one stage.
            num_bytes: memory that each takes.
        """

    def close(self) -> None:
        """End what was started."""


@dataclass(frozen=True, eq=False)
class Engine:
    """Runs the stages whose files are not there yet.

    Attributes:
        store: where files are.
        executor: what runs tasks.
    """

    store: Store
    executor: Executor

    def run(
        self,
        stage: Stage,
        arguments: Sequence[Mapping[str, Any]],
        *,
        num_bytes: int,
        suffix: str = "",
    ) -> list[Done]:
        """Run a stage with each of several arguments, see :class:`Runner`.

        Args:
            stage: the stage.
            arguments: arguments of each task.
            num_bytes: memory that a task takes.
            suffix: how the names of its files end, if it writes files for others.
        """
        tasks = [Task.of(stage, each) for each in arguments]
        present = (suffix,) if suffix else ()
        missing = {t.name: t for t in tasks if not self.store.has(t.name, *present)}
        started = time.perf_counter()
        if missing:
            self.executor.execute(self.store.uris, list(missing.values()), num_bytes)
        logger.info(
            "%s: %d of %d tasks in %.1f s",
            *(stage.__name__, len(missing), len(tasks), time.perf_counter() - started),
        )
        return [Done(t.name, {} if suffix else self.store.summary(t.name)) for t in tasks]

    def run_through(
        self,
        stage: Stage,
        arguments: Sequence[Mapping[str, Any]],
        then: Stage,
        arguments_of: Callable[[list[str]], Sequence[Mapping[str, Any]]],
        *,
        num_bytes: int,
    ) -> list[Done]:
        """Run a stage whose files only the next one reads, see :class:`Runner`."""
        names = [Task.of(stage, each).name for each in arguments]
        following = arguments_of(names)
        if not all(self.store.has(Task.of(then, each).name) for each in following):
            self.run(stage, arguments, num_bytes=num_bytes)
        done = self.run(then, following, num_bytes=num_bytes)
        self.store.delete(names)
        return done

    def keep(self, tensors: Mapping[str, Tensor]) -> str:
        """Write tensors of the driver to a file, and return its name."""
        return self.store.keep(tensors)
