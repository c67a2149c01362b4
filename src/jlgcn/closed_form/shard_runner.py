"""What runs the stages of a fit in shards, as the closed form sees it; the engines are one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from jlgcn.closed_form.shards import Stage


class Done(NamedTuple):
    """A stage that ran: the name of its file, and its summary."""

    name: str
    summary: Mapping[str, Tensor]


class Runner(Protocol):
    """What runs stages: in this process, in a pool, on a cluster."""

    def run(
        self, stage: Stage, arguments: Sequence[dict[str, Any]], *, num_bytes: int
    ) -> list[Done]:
        """Run a stage with each of several arguments, in any order and place.

        Args:
            stage: a function of :mod:`jlgcn.closed_form.shards`, or one like it.
            arguments: keyword arguments of each task: names of files, numbers and text.
            num_bytes: memory that a task takes.
        """

    def run_through(
        self,
        stage: Stage,
        arguments: Sequence[dict[str, Any]],
        then: Stage,
        arguments_of: Callable[[list[str]], Sequence[dict[str, Any]]],
        *,
        num_bytes: int,
    ) -> list[Done]:
        """Run a stage, then another one, which alone reads the files of the first: they go.

        Args:
            stage: the first stage.
            arguments: of each of its tasks.
            then: the second stage, whose results are returned.
            arguments_of: takes the names of the first stage's files, and returns its arguments.
            num_bytes: memory that a task of either takes.
        """

    def keep(self, tensors: Mapping[str, Tensor]) -> str:
        """Write tensors of the driver to a file, and return its name."""


def sum_of(done: Sequence[Done], key: str) -> Tensor:
    """Return the sum of a tensor in all summaries, in the order of the tasks."""
    total = done[0].summary[key].clone()
    for each in done[1:]:
        total += each.summary[key]
    return total
