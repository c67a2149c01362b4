"""The edges of largest weight of a graph, as an edge list."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from jlgcn.graphs.graph import Graph, ScaledGraph, SumGraph
from jlgcn.graphs.sparse import SparseGraph

# Weights per block of rows of a graph without an edge list.
_BLOCK_ENTRIES = 8_000_000


@dataclass(frozen=True, eq=False)
class EdgeList:
    """Undirected edges, each once, by descending weight, ties by node index.

    Attributes:
        source: the endpoint of smaller index, (E,), int64.
        target: the endpoint of larger index, (E,), int64.
        weight: edge weights, (E,).
        num_nodes: number of nodes of the graph, isolated ones included.
    """

    source: Tensor
    target: Tensor
    weight: Tensor
    num_nodes: int

    def __len__(self) -> int:
        return self.source.shape[0]

    def __repr__(self) -> str:
        return f"EdgeList({len(self):,} edges of {self.num_nodes:,} nodes)"


@torch.no_grad()
def top_edges(
    graph: Graph, *, top_k: int | None = None, threshold: float | None = None
) -> EdgeList:
    """Return the edges of largest weight, without self-loops.

    Args:
        graph: a single graph, not a batch.
        top_k (int ≥ 1 or None, default None): keep an edge if it is among the `top_k` largest of
            either endpoint.
        threshold (float or None, default None): keep an edge of at least this weight. With both
            arguments, an edge must satisfy both; one of them is required.

    Returns:
        The edges, on the CPU.

    Cost: for sparse graphs, and sums and scalings of them, a sort of the edges; for other graphs N²
    weights, computed by blocks of rows. Memory for the returned edges and one block.

    Example:
        >>> from jlgcn import KernelGraph
        >>> z = torch.tensor([[0.0], [0.1], [1.0], [9.0]])
        >>> edges = top_edges(KernelGraph(z), threshold=0.5)
        >>> edges.source, edges.target
        (tensor([0]), tensor([1]))
    """
    if top_k is None and threshold is None:
        raise ValueError(
            "top_k or threshold is needed, but both are None; pass top_k=10, threshold=0.5 or both"
        )
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k must be at least 1, but it is {top_k}")
    if len(graph.shape) > 2:
        raise ValueError(f"graph must be a single graph, but it is {graph}; take one of the batch")
    sparse = _as_sparse(graph)
    if sparse is not None:
        row, col, weight = _heaviest_entries(sparse, top_k, threshold)
    else:
        row, col, weight = _heaviest_of_rows(graph, top_k, threshold)
    # An edge may be found from both endpoints; the two weights differ by rounding at most.
    key = torch.minimum(row, col) * graph.num_nodes + torch.maximum(row, col)
    key, place = torch.unique(key, return_inverse=True)
    weight = weight.new_zeros(len(key)).scatter_reduce(0, place, weight, "amax")
    order = weight.argsort(descending=True, stable=True)
    key, weight = key[order], weight[order]
    return EdgeList(key // graph.num_nodes, key % graph.num_nodes, weight, graph.num_nodes)


def _as_sparse(graph: Graph) -> SparseGraph | None:
    """Return a sum or scaling of sparse graphs as one sparse graph; None for other graphs."""
    if isinstance(graph, SparseGraph):
        return graph
    if isinstance(graph, ScaledGraph) and graph.scale.dim() == 1:
        base = _as_sparse(graph.base)
        if base is None:
            return None
        row, col = base.edge_index
        return SparseGraph.from_pattern(
            base.pattern, base.weight * graph.scale[row] * graph.scale[col]
        )
    if isinstance(graph, SumGraph):
        parts = [_as_sparse(part) for part in graph.parts]
        found = [part for part in parts if part is not None]
        if len(found) < len(parts):
            return None
        return SparseGraph(
            torch.cat([part.edge_index for part in found], -1),
            torch.cat([part.weight for part in found]),
            graph.num_nodes,
        )
    return None


def _heaviest_entries(
    graph: SparseGraph, top_k: int | None, threshold: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    row, col = graph.edge_index.cpu()
    weight = graph.weight.cpu()
    keep = (row != col) & (weight > 0)
    if threshold is not None:
        keep &= weight >= threshold
    row, col, weight = row[keep], col[keep], weight[keep]
    if top_k is not None:
        # Sorted by row, then by descending weight, ties by column.
        order = torch.from_numpy(np.lexsort((-weight.numpy(), row.numpy())))
        place = torch.arange(len(row), device=row.device) - torch.searchsorted(row, row)
        order = order[place < top_k]
        row, col, weight = row[order], col[order], weight[order]
    return row, col, weight


def _heaviest_of_rows(
    graph: Graph, top_k: int | None, threshold: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    num_nodes = graph.num_nodes
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    nodes = torch.arange(num_nodes, device="cpu")
    for index in nodes.split(max(1, _BLOCK_ENTRIES // max(1, num_nodes))):
        block = graph.rows(index.to(graph.device)).cpu()
        block[nodes[: len(index)], index] = 0
        if top_k is None:
            assert threshold is not None
            row, col = (block >= threshold).nonzero(as_tuple=True)
            weight = block[row, col]
        else:
            values, columns = block.topk(min(top_k, num_nodes), dim=-1)
            row, place = (values >= (threshold or 0.0)).nonzero(as_tuple=True)
            col, weight = columns[row, place], values[row, place]
        row, col, weight = row[weight > 0], col[weight > 0], weight[weight > 0]
        found.append((index[row], col, weight))
    if not found:
        return nodes, nodes, nodes.float()
    rows, cols, weights = zip(*found, strict=True)
    return torch.cat(rows), torch.cat(cols), torch.cat(weights)
