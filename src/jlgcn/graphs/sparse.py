"""Graphs stored in CSR format, and Gaussian kernel graphs on given edges or nearest neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from jlgcn._devices import is_check_due
from jlgcn._validation import check_edge_index, check_weight
from jlgcn.graphs.graph import Graph
from jlgcn.ops.csr import Pattern, csr_matmul, edge_squared_distance, symmetric_pattern
from jlgcn.ops.knn import Search, nearest_neighbors
from jlgcn.ops.precision import compute_dtype


class SparseGraph(Graph):
    r"""A sparse graph of E entries, given as an edge list in PyTorch Geometric's convention.

    Args:
        edge_index: endpoints of each entry, (2, E), int64; both directions of an edge are listed.
            For an edge list with one direction, use :func:`jlgcn.as_graph`.
        weight: non-negative weights, (E,), equal in both directions; None for 1. Weights of
            duplicate entries are added; without weights, duplicates count once.
        num_nodes: N; None for the largest index plus 1.

    Differentiable in the weights. :attr:`edge_index` and :attr:`weight` are sorted by row, not in
    the order of the arguments.

    Cost: memory E; a product takes 2·E·C FLOP, three times as many with its gradients.

    Example:
        >>> graph = SparseGraph(torch.tensor([[0, 1], [1, 0]]), torch.tensor([2.0, 2.0]), 3)
        >>> graph.degree()
        tensor([2., 2., 0.])
    """

    def __init__(
        self, edge_index: Tensor, weight: Tensor | None = None, num_nodes: int | None = None
    ) -> None:
        edges = collect_edges(edge_index, weight, num_nodes)
        if edges.num_one_way > 0:
            raise ValueError(
                f"edge_index must list both directions of every edge, but {edges.num_one_way} "
                "edges have one direction only; use as_graph, which adds the other"
            )
        mirrored = edges.weight.detach()[edges.pattern.reverse]
        if not torch.allclose(edges.weight.detach(), mirrored, rtol=1e-4, atol=1e-7):
            raise ValueError(
                "weight must be equal in both directions of an edge, but it differs; use as_graph, "
                "which takes the larger of the two"
            )
        self.pattern = edges.pattern
        self.weight = edges.weight

    @classmethod
    def from_pattern(cls, pattern: Pattern, weight: Tensor) -> Self:
        """Return the graph with the given sparsity pattern and weights, (E,), unchecked.

        Example:
            >>> edges = torch.tensor([[0, 1], [1, 0]])
            >>> graph = SparseGraph(edges)
            >>> SparseGraph.from_pattern(graph.pattern, 5 * graph.weight).degree()
            tensor([5., 5.])
        """
        graph = cls.__new__(cls)
        graph.pattern = pattern
        graph.weight = weight
        return graph

    @classmethod
    def without_edges(cls, num_nodes: int, device: torch.device | str = "cpu") -> Self:
        """Return a graph of `num_nodes` isolated nodes.

        Example:
            >>> SparseGraph.without_edges(2).to_dense()
            tensor([[0., 0.],
                    [0., 0.]])
        """
        starts = torch.zeros(num_nodes + 1, dtype=torch.int64, device=device)
        none = starts[:0]
        pattern = Pattern(starts, none, none, none, num_nodes)
        return cls.from_pattern(pattern, none.to(torch.get_default_dtype()))

    @classmethod
    def from_candidates(cls, z: Tensor, edge_index: Tensor) -> Self:
        r"""Return the Gaussian kernel graph restricted to candidate pairs and self-loops.

        .. math:: a_{ij} = \exp(-\|z_i - z_j\|^2)

        for each candidate pair, in both directions, and exactly 1 on the diagonal. With all pairs
        as candidates it equals :class:`jlgcn.KernelGraph`.

        Args:
            z: points, (N, S); the weights are differentiable in them.
            edge_index: candidate pairs, (2, E), int64, in any order, in one or both directions;
                duplicates and self-loops are allowed.

        Cost: a sort of 2·E + N integers, and 3·E·S FLOP.

        Example:
            >>> z = torch.tensor([[0.0], [1.0], [2.0]])
            >>> SparseGraph.from_candidates(z, torch.tensor([[0], [1]])).to_dense()
            tensor([[1.0000, 0.3679, 0.0000],
                    [0.3679, 1.0000, 0.0000],
                    [0.0000, 0.0000, 1.0000]])
        """
        if is_check_due(z.device, "candidates"):
            check_edge_index(edge_index, z.shape[0])
        loops = torch.arange(z.shape[0], device=z.device)
        row, col = torch.cat([edge_index, loops.expand(2, -1)], -1)
        pattern = symmetric_pattern(row, col, z.shape[0])
        distance = edge_squared_distance(pattern, z.to(compute_dtype(z)))
        return cls.from_pattern(pattern, (-distance).exp())

    @property
    def edge_index(self) -> Tensor:
        """Endpoints of each entry, (2, E), sorted by row."""
        return torch.stack([self.pattern.row, self.pattern.col])

    @property
    def shape(self) -> torch.Size:
        """Shape of the matrix, (N, N)."""
        return torch.Size((self.pattern.num_nodes, self.pattern.num_nodes))

    def matmul(self, x: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return the product; batch dimensions of x become columns.

        Selecting rows does not reduce the cost.
        """
        dtype = compute_dtype(self.weight, x)
        columns = x.to(dtype).movedim(-2, 0)  # (N, *batch, C)
        num_columns = math.prod(columns.shape[1:])
        product = csr_matmul(
            self.pattern, self.weight.to(dtype), columns.reshape(self.num_nodes, num_columns)
        )
        product = product.view(columns.shape).movedim(0, -2).to(x.dtype)
        return product if rows is None else product.index_select(-2, rows)

    def rows(self, index: Tensor) -> Tensor:
        """Return rows as a dense matrix."""
        # A product with unit vectors, because `index` may contain a node twice.
        units = torch.zeros(
            self.num_nodes, index.shape[0], dtype=compute_dtype(self.weight), device=self.device
        )
        units[index, torch.arange(index.shape[0], device=index.device)] = 1
        return self.matmul(units).mT  # columns equal rows, by symmetry

    def row(self, node: int) -> tuple[Tensor, Tensor]:  # (K,), (K,)
        """Return the neighbours of one node, ascending, and the weights of its edges.

        Cost: the degree K of the node.

        Example:
            >>> SparseGraph(torch.tensor([[0, 1], [1, 0]]), num_nodes=3).row(1)
            (tensor([0]), tensor([1.]))
        """
        entries = slice(int(self.pattern.crow[node]), int(self.pattern.crow[node + 1]))
        return self.pattern.col[entries], self.weight[entries]

    @property
    def has_no_edges(self) -> bool:
        """Whether the pattern has no entries."""
        return self.pattern.num_edges == 0

    def _dirichlet(self, f: Tensor, scale: Tensor | None) -> Tensor:
        dtype = compute_dtype(f, self.weight)
        weight = self.weight.to(dtype)
        if scale is not None:
            weight = weight * scale[..., self.pattern.row] * scale[..., self.pattern.col]
        graphs = f.to(dtype).reshape(-1, *f.shape[-2:]).unbind(0)
        distance = torch.stack([edge_squared_distance(self.pattern, graph) for graph in graphs])
        # A float64 sum of many small terms; its cost is negligible.
        return (weight * distance.view(*f.shape[:-2], -1)).sum(-1, dtype=torch.float64).to(dtype)

    def _map_tensors(self, function: Callable[[Tensor], Tensor]) -> Self:
        weight = function(self.weight)
        return type(self).from_pattern(self.pattern.to(weight.device), weight)


def gaussian_knn_graph(
    z: Tensor,  # (N, S)
    num_neighbors: int,
    graph: SparseGraph | None = None,
    *,
    search: Search = "auto",
) -> SparseGraph:
    r"""Return the symmetrised k-nearest-neighbour graph with Gaussian kernel weights.

    The candidates of a node are its k nearest rows of z, itself, and its neighbours in `graph`; two
    nodes are connected if either is a candidate of the other. The weights
    :math:`\exp(-\|z_i - z_j\|^2)` are differentiable in z, the choice of candidates is not.

    Args:
        z: points.
        num_neighbors (int ≥ 1): k, without the node itself.
        graph: a graph whose edges are added to the candidates; its weights are ignored.
        search ("auto", "exact" or "faiss", default "auto"): "auto" is exact up to 50,000 rows and
            uses FAISS above (extra ``ann``), see :func:`jlgcn.ops.nearest_neighbors`.

    Cost: the search, a sort of 2·N·(k + 1) integers, and memory linear in the edges.

    Example:
        >>> z = torch.tensor([[0.0], [1.0], [5.0], [6.0]])
        >>> gaussian_knn_graph(z, 1).edge_index
        tensor([[0, 0, 1, 1, 2, 2, 3, 3],
                [0, 1, 0, 1, 2, 3, 2, 3]])
    """
    neighbors = nearest_neighbors(z, num_neighbors, search=search)
    row = torch.arange(z.shape[0], device=z.device).repeat_interleave(neighbors.shape[1])
    col = neighbors.flatten()
    if search != "exact":
        found = col >= 0  # an approximate search may find fewer than k neighbours
        row, col = row[found], col[found]
    candidates = [torch.stack([row, col])]
    if graph is not None:
        if graph.num_nodes != z.shape[0]:
            raise ValueError(
                f"the graph has {graph.num_nodes} nodes but z has {z.shape[0]} rows; "
                "pass the graph and the points of the same nodes"
            )
        candidates.append(graph.edge_index)
    return SparseGraph.from_candidates(z, torch.cat(candidates, -1))


@dataclass(frozen=True)
class Edges:
    """A validated edge list: symmetrised pattern, summed weights, and what was irregular.

    Attributes:
        pattern: sparsity pattern of the edges in both directions.
        weight: weights of the entries, 0 where only the other direction was listed.
        num_one_way: number of edges listed in one direction only.
        num_duplicates: number of entries listed more than once.
    """

    pattern: Pattern
    weight: Tensor
    num_one_way: int
    num_duplicates: int


def collect_edges(edge_index: Tensor, weight: Tensor | None, num_nodes: int | None) -> Edges:
    """Validate, symmetrise and coalesce an edge list."""
    if num_nodes is None:
        num_nodes = int(edge_index.max()) + 1 if edge_index.numel() else 0
    check_edge_index(edge_index, num_nodes)
    row, col = edge_index
    pattern = symmetric_pattern(row, col, num_nodes)
    place = pattern.find(row, col)
    count = torch.bincount(place, minlength=pattern.num_edges)
    if weight is None:
        weight = (count > 0).to(torch.get_default_dtype())
    else:
        check_weight(weight, edge_index)
        weight = weight.new_zeros(pattern.num_edges).index_add(0, place, weight)
    return Edges(pattern, weight, int((count == 0).sum()), int((count > 1).sum()))
