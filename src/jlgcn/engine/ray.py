"""The Ray engine: stages as tasks of a cluster, files where all of its machines reach them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jlgcn._optional import require
from jlgcn.engine.tasks import Task, bar_of, run_task

#: How often a task is tried again: after an error of input or output, the death of its worker or
#: machine, and for want of memory. Ray's own retries for want of memory have no end by default.
MAX_RETRIES = 3

# Tasks that wait for every core, so that the driver never lists them all.
_TASKS_PER_CORE = 4


class RayExecutor:
    """Runs tasks on a Ray cluster, each with the memory that it asks for.

    Data stay in files: only names and sums pass through Ray. A task whose machine dies runs again
    elsewhere; one that fails :data:`MAX_RETRIES` times more ends the fit, which goes on from there
    when it is run again.

    Args:
        address: address of the cluster, ``host:port`` or "auto"; None starts Ray on this machine,
            unless it runs already.
        num_workers: cores that a Ray started here may use; None for all.
    """

    def __init__(self, address: str | None = None, num_workers: int | None = None) -> None:
        self._ray = require("ray", "ray", "the Ray engine")
        self._is_ours = not self._ray.is_initialized()
        if self._is_ours:
            mine = {} if address else {"num_cpus": num_workers, "include_dashboard": False}
            try:
                self._ray.init(address=address or "local", log_to_driver=False, **mine)
            except (ValueError, OSError):
                raise
            except Exception as error:  # a bare one, if processes of Ray are late
                self._ray.shutdown()
                raise OSError(
                    f"Ray did not start ({_first_line(error)}); if the machine is busy, run the "
                    "command again later, which goes on from here, or take --engine local"
                ) from None
        self._run = self._ray.remote(max_retries=0)(run_task)

    def execute(self, uris: tuple[str, ...], tasks: Sequence[Task], num_bytes: int) -> None:
        """Run tasks, as :class:`jlgcn.engine.tasks.Executor` says."""
        ray, stage = self._ray, tasks[0].stage.__name__
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        largest = max((node.get("memory", 0) for node in nodes), default=0)
        if num_bytes > largest:
            raise ValueError(
                f"{stage} needs {num_bytes / 2**30:,.1f} GiB a task but the largest machine of the "
                f"cluster has {largest / 2**30:,.1f} GiB; take larger machines, or in Python "
                "smaller shards (shard_rows=) or fewer components (n_components=)"
            )
        limit = _TASKS_PER_CORE * max(1, int(sum(node.get("CPU", 0) for node in nodes)))
        run = self._run.options(memory=num_bytes, name=stage)
        crashes = (
            ray.exceptions.OutOfMemoryError,
            ray.exceptions.WorkerCrashedError,
            ray.exceptions.NodeDiedError,
        )
        waiting = [(task, MAX_RETRIES) for task in reversed(tasks)]
        running: dict[Any, tuple[Task, int]] = {}
        try:
            with bar_of(tasks) as bar:
                while waiting or running:
                    while waiting and len(running) < limit:
                        task, retries = waiting.pop()
                        found = run.remote(uris, task.stage, task.arguments, task.name)
                        running[found] = task, retries
                    (found,), _ = ray.wait([*running])
                    task, retries = running.pop(found)
                    try:
                        ray.get(found)
                        bar.update()
                    except (OSError, *crashes):
                        if retries == 0:
                            raise
                        waiting.append((task, retries - 1))
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except crashes as error:
            raise OSError(
                f"{stage} failed {MAX_RETRIES + 1} times ({type(error).__name__}); if memory ran "
                "out, take smaller shards or larger machines, and run the command again, which "
                "goes on from here"
            ) from None
        except ray.exceptions.RayError as error:
            raise OSError(
                f"Ray failed in {stage} ({type(error).__name__}: {_first_line(error)}); run the "
                "command again, which goes on from here"
            ) from None

    def close(self) -> None:
        """Leave the cluster, or end the Ray that was started here."""
        if self._is_ours:
            self._ray.shutdown()


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
