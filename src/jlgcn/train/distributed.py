"""Several processes that train one network together, as `torchrun` starts them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from jlgcn.graphs import Graph, KernelGraph, ShardedKernelGraph, Shards
from jlgcn.nn import GraphLearner
from jlgcn.nn.batch_norm import is_distributed
from jlgcn.train.heartbeat import SILENCE_SECONDS, heartbeat, store_of_this_start


@contextmanager
def joined_processes(silence: float = SILENCE_SECONDS) -> Iterator[None]:
    """Join the processes that `torchrun` has started, if it has started several; leave at the end.

    A process that is killed or stopped is noticed by the others, which name it and end, so that
    ``torchrun --max-restarts`` can start all of them again.

    Args:
        silence: seconds without a sign of life after which a process counts as lost.

    Example:
        >>> with joined_processes():
        ...     process_group()
        (0, 1)
    """
    joins = int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized()
    if not joins:
        yield
        return
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        # Under a name of this start: gloo would find the addresses of processes that are gone.
        dist.init_process_group(backend, store=store_of_this_start(), rank=rank, world_size=size)
    else:
        dist.init_process_group(backend)
    try:
        with heartbeat(dist.get_rank(), dist.get_world_size(), silence):
            yield
            # Whoever is done first goes on counting until the last one is done.
            dist.barrier()
    finally:
        dist.destroy_process_group()


def process_group() -> tuple[int, int]:
    """Return the rank of this process and how many there are; (0, 1) for one alone.

    Example:
        >>> process_group()
        (0, 1)
    """
    return (dist.get_rank(), dist.get_world_size()) if is_distributed() else (0, 1)


def sum_over_processes(value: Tensor) -> Tensor:
    """Return the sum of a tensor over all processes.

    Example:
        >>> sum_over_processes(torch.tensor(2.0))
        tensor(2.)
    """
    return mean_over_processes(value) * process_group()[1]


def mean_over_processes(value: Tensor) -> Tensor:
    """Return the mean of a tensor over all processes.

    Example:
        >>> mean_over_processes(torch.tensor(2.0))
        tensor(2.)
    """
    if is_distributed():
        value = value.clone()
        dist.all_reduce(value)
        value /= dist.get_world_size()
    return value


def distribute(model: nn.Module, num_nodes: int) -> Shards:
    """Let a network of one process work on its rows of a graph that several processes share.

    Applied from outside: the network's own code does not change. From now on every process calls it
    with the features of its own rows (``x[shards.own]``) and its rows of the given graph
    (:class:`jlgcn.graphs.ShardedSparseGraph`), and gets the logits of its own rows; learned graphs
    are :class:`jlgcn.graphs.ShardedKernelGraph`, exact over all rows. A loss is this process's
    share of a sum over all, and gradients of parameters are added up over processes as they come.

    Args:
        model: the network; all processes take the parameters of the first.
        num_nodes: nodes in all.

    Returns:
        How rows are laid out over processes.

    Cost: a broadcast of the parameters now, an all-reduce of their gradients in every step.

    Example:
        >>> from jlgcn.nn import JLGCN
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> model = JLGCN(8, 16, 3, backend="exact")
        >>> shards = distribute(model, 5)
        >>> model(torch.randn(5, 8)[shards.own]).learned[0]
        ShardedKernelGraph(5 × 5, float32, cpu)
        >>> dist.destroy_process_group()
    """
    shards = Shards(num_nodes)
    for tensor in (*model.parameters(), *model.buffers()):
        dist.broadcast(tensor.data, 0)
    for module in model.modules():
        if isinstance(module, GraphLearner):
            module.shares_rows = True
            module.register_forward_pre_hook(partial(_scale_by_all_rows, shards))
            module.register_forward_hook(partial(_over_processes, shards))
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(_add_up)
    return shards


def _scale_by_all_rows(shards: Shards, learner: nn.Module, args: tuple[Any, ...]) -> None:
    # A metric that is scaled by the features it sees first must see those of all processes.
    assert isinstance(learner, GraphLearner)
    if not bool(learner.is_scaled):
        with torch.no_grad():
            learner.project(shards.gather(args[0].detach()))


def _over_processes(
    shards: Shards, learner: nn.Module, args: tuple[Any, ...], learned: Graph
) -> ShardedKernelGraph:
    if not isinstance(learned, KernelGraph):
        raise ValueError(
            f"only exact graphs are shared by processes, but this is a {type(learned).__name__}; "
            'set backend="exact"'
        )
    return ShardedKernelGraph(learned.z, shards, method=learned.method)


def _add_up(parameter: Tensor) -> None:
    assert parameter.grad is not None
    dist.all_reduce(parameter.grad)
