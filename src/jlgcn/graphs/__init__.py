"""Graphs as operators: one interface, and a class for each way to hold a graph.

Sharded graphs are imported when they are first used: they need PyTorch's distributed package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jlgcn.graphs.attached import AttachedGraph, KernelRows, SparseRows, attach
from jlgcn.graphs.convert import as_graph
from jlgcn.graphs.dense import DenseGraph
from jlgcn.graphs.diffusion import diffuse, num_steps
from jlgcn.graphs.edge_list import EdgeList, strongest_edges
from jlgcn.graphs.graph import Graph, ScaledGraph, SumGraph
from jlgcn.graphs.kernel import KernelGraph
from jlgcn.graphs.sparse import SparseGraph, knn_graph

if TYPE_CHECKING:
    from jlgcn.graphs.sharded import ShardedKernelGraph, ShardedSparseGraph, Shards

__all__ = [
    "AttachedGraph",
    "DenseGraph",
    "EdgeList",
    "Graph",
    "KernelGraph",
    "KernelRows",
    "ScaledGraph",
    "ShardedKernelGraph",
    "ShardedSparseGraph",
    "Shards",
    "SparseGraph",
    "SparseRows",
    "SumGraph",
    "as_graph",
    "attach",
    "diffuse",
    "knn_graph",
    "num_steps",
    "strongest_edges",
]


def __getattr__(name: str) -> object:
    if name not in ("ShardedKernelGraph", "ShardedSparseGraph", "Shards"):
        raise AttributeError(f"module 'jlgcn.graphs' has no attribute {name!r}")
    import torch.distributed

    if not torch.distributed.is_available():
        raise ImportError(
            f"{name} needs torch.distributed, which this build of PyTorch does not have; install "
            "one that has it, or hold the graph in one process (jlgcn.KernelGraph)"
        )
    from jlgcn.graphs import sharded

    return getattr(sharded, name)
