"""Row-sharded and data-parallel training of unchanged networks."""

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
    """Shard the nodes of one graph over the processes of a group (row-parallel training).

    The code of the network does not change: hooks are added. Every process then calls the network
    with the features of its own rows (``x[shards.own]``) and its rows of the given graph
    (:class:`jlgcn.distributed.ShardedSparseGraph`), and receives the logits of its rows; learned
    graphs are :class:`jlgcn.distributed.sharded.ShardedKernelGraph`, exact over all nodes. The
    loss of a process is its share of a sum over all processes; gradients of parameters are summed
    over processes as they are accumulated.

    Args:
        model: the network; the parameters of rank 0 are broadcast to all processes.
        num_nodes: number of nodes in all processes together.

    Returns:
        The layout of the rows over processes.

    Cost: one broadcast of the parameters, and an all-reduce of their gradients in every step.

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
            module.is_calibrated = bool(module.is_scaled)  # as in rank 0
            module.register_forward_hook(partial(_shard, shards))
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(_sum_gradient)
    return shards


def share_batches(model: nn.Module) -> nn.Module:
    """Train a graph-level network data-parallel, with synchronised batch normalisation.

    Each process computes a part of every batch. Batch statistics are those of all processes, and
    gradients are averaged over them (:class:`torch.nn.parallel.DistributedDataParallel`).

    Args:
        model: the network; the parameters of rank 0 are broadcast to all processes.

    Returns:
        The module to call instead of `model`.

    Cost: one broadcast of the parameters; in every step an all-reduce of their gradients, and two
    all-reduces of one number per channel for every batch normalisation.

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
    """A differentiable all-reduce: the gradient is summed over processes, too."""

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


def _shard(
    shards: Shards, learner: nn.Module, args: tuple[Any, ...], learned: Graph
) -> ShardedKernelGraph:
    if not isinstance(learned, KernelGraph):
        raise ValueError(
            f"only an exact graph can be sharded over processes, but the learned graph is a "
            f'{type(learned).__name__}; set backend="exact"'
        )
    return ShardedKernelGraph(learned.z, shards, method=learned.method)


def _sum_gradient(parameter: Tensor) -> None:
    assert parameter.grad is not None
    dist.all_reduce(parameter.grad)
