"""Run by two processes: the first asks a graph for what the second does not ask for."""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist

from jlgcn import SparseGraph
from jlgcn.distributed.sharded import ShardedKernelGraph, ShardedSparseGraph, Shards

if __name__ == "__main__":
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    rank = dist.get_rank()
    shards = Shards(5)
    edge = SparseGraph(torch.tensor([[0, 1], [1, 0]]), num_nodes=5)
    none = SparseGraph(torch.empty(2, 0, dtype=torch.int64), num_nodes=5)
    given, nothing = (ShardedSparseGraph.from_graph(graph, shards) for graph in (edge, none))
    learned = ShardedKernelGraph(torch.zeros(5, 2)[shards.own], shards)
    if rank == 0:
        assert not given.has_no_edges
        assert nothing.has_no_edges
        assert nothing.to(dtype=torch.float64).has_no_edges
        assert nothing + learned is learned
        assert "ShardedSparseGraph(3 × 3" in repr(given)
    # Had the first process begun a collective, it would meet this one of the second.
    total = torch.tensor(rank + 1.0)
    dist.all_reduce(total)
    assert float(total) == 3
    dist.destroy_process_group()
