"""A network of one process, made to work on its part of what several processes share."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.nn.parallel import DistributedDataParallel

from jlgcn.distributed.sharded import ShardedKernelGraph, Shards
from jlgcn.graphs import Graph, KernelGraph
from jlgcn.nn import GraphLearner
from jlgcn.nn.batch_norm import BatchNorm


def distribute(model: nn.Module, num_nodes: int) -> Shards:
    """Let a network of one process work on its rows of a graph that several processes share.

    Applied from outside: the network's own code does not change. From now on every process calls it
    with the features of its own rows (``x[shards.own]``) and its rows of the given graph
    (:class:`jlgcn.distributed.ShardedSparseGraph`), and gets the logits of its own rows; learned
    graphs are :class:`jlgcn.distributed.ShardedKernelGraph`, exact over all rows. A loss is this
    process's share of a sum over all, and gradients of parameters are added up over processes as
    they come.

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
            module.gather_rows = shards.gather
            module.is_calibrated = bool(module.is_scaled)  # as in the first process
            module.register_forward_hook(partial(_over_processes, shards))
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(_add_up)
    return shards


def share_batches(model: nn.Module) -> nn.Module:
    """Let the processes of a group share every batch of a network for whole graphs.

    Batch normalisation then sees the rows of all processes, and gradients of parameters are
    averaged over them as they come.

    Args:
        model: the network; all processes take the parameters of the first.

    Returns:
        What to call in place of the network.

    Cost: a broadcast of the parameters now, an all-reduce of their gradients in every step, and two
    of as many numbers as there are channels for every batch normalisation.

    Example:
        >>> from jlgcn.nn import GraphLevelJLGCN
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> shared = share_batches(GraphLevelJLGCN(3, 2, (4, 8)))
        >>> shared(torch.randn(2, 5, 3)).logits.shape
        torch.Size([2, 2])
        >>> dist.destroy_process_group()
    """
    for module in model.modules():
        if isinstance(module, BatchNorm):
            module.sum_over_processes = _Sum.apply
    return DistributedDataParallel(model)


class _Sum(torch.autograd.Function):
    """A sum over processes; what each does with it flows back to all."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor) -> Tensor:
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> Tensor:
        total = grad.clone()
        dist.all_reduce(total)
        return total


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
