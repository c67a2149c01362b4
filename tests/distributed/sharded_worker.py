"""Run by several processes: how far a layer over all of them is from the layer of one."""

from __future__ import annotations

import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from jlgcn import KernelGraph, SparseGraph
from jlgcn.distributed.sharded import ShardedKernelGraph, ShardedSparseGraph, Shards
from jlgcn.graphs import Graph

NUM_NODES = 23  # not a multiple of any number of processes


def loss_and_gradients(
    given: Graph, learned: Graph, x: Tensor, target: Tensor, inputs: tuple[Tensor, ...]
) -> list[Tensor]:
    graph = (given + learned.normalized()).normalized()
    loss = (graph @ x - target).square().sum() + 0.1 * learned.dirichlet(x)
    loss = loss + graph.dirichlet(x + 1000)  # far from the origin, where energies cancel
    return [loss.detach(), *torch.autograd.grad(loss, inputs)]


def largest_difference(dtype: torch.dtype) -> float:
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator).to(dtype)

    z, x, target = draw(NUM_NODES, 3), draw(NUM_NODES, 4), draw(NUM_NODES, 4)
    edges = torch.randint(NUM_NODES, (2, 30), generator=generator)
    edges = torch.cat([edges, edges.flip(0)], -1)
    given = SparseGraph(edges, torch.ones(60, dtype=dtype), NUM_NODES)
    z.requires_grad_()
    x.requires_grad_()
    loss, *expected = loss_and_gradients(given, KernelGraph(z), x, target, (z, x))

    shards = Shards(NUM_NODES)
    own_z, own_x = (t.detach()[shards.own].requires_grad_() for t in (z, x))
    own_loss, *got = loss_and_gradients(
        ShardedSparseGraph.from_graph(given, shards),
        ShardedKernelGraph(own_z, shards),
        own_x,
        target[shards.own],
        (own_z, own_x),
    )
    errors = [(shards.sum(own_loss) - loss).abs() / loss]
    errors += [
        (ours - whole[shards.own]).abs().max() / whole.abs().max()
        for ours, whole in zip(got, expected, strict=True)
    ]
    error = torch.stack(errors).max().double()
    dist.all_reduce(error, dist.ReduceOp.MAX)
    return float(error)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    found = {
        "float64": largest_difference(torch.float64),
        "float32": largest_difference(torch.float32),
    }
    dist.destroy_process_group()
    tasks = Path("/proc/self/task").glob("*/comm")
    found["threads"] = sum("gloo" in task.read_text() for task in tasks)
    if rank == 0:
        print(json.dumps(found), flush=True)
