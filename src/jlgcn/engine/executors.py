"""What runs tasks, by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from jlgcn.engine.local import LocalExecutor
from jlgcn.engine.ray import RayExecutor
from jlgcn.engine.tasks import Executor

EngineName = Literal["local", "ray"]


@contextmanager
def open_executor(
    engine: str, num_workers: int | None = None, address: str | None = None
) -> Iterator[Executor]:
    """Start what runs tasks, and end it; arguments as of :meth:`ShardedModel.fit`."""
    executor: Executor
    match engine:
        case "local":
            executor = LocalExecutor(num_workers)
        case "ray":
            executor = RayExecutor(address, num_workers)
        case other:
            raise ValueError(f"engine must be local or ray, but it is {other!r}")
    try:
        yield executor
    finally:
        executor.close()
