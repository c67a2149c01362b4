"""Inductive prediction: new nodes attached to a graph by directed edges to its old nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from jlgcn._validation import check_cross_edges, check_weight
from jlgcn.graphs.graph import Graph
from jlgcn.graphs.kernel import kernel_weights
from jlgcn.graphs.sparse import SparseGraph
from jlgcn.ops.gaussian import Method, kernel_matmul
from jlgcn.ops.knn import nearest_neighbors
from jlgcn.ops.precision import compute_dtype


@dataclass(frozen=True, eq=False)
class KernelRows:
    r"""Gaussian kernel weights of M new nodes to all N old nodes, :math:`\exp(-\|z_u - z_j\|^2)`.

    Attributes:
        z_new: points of the new nodes, (M, S).
        z_old: points of the old nodes, (N, S).
        method: algorithm of the products, see :func:`jlgcn.ops.kernel_matmul`.

    Cost: a product takes time M·N·(S + C) and memory (M + N)·(S + C).

    Example:
        >>> KernelRows(torch.zeros(1, 2), torch.zeros(3, 2)).matmul(torch.ones(3, 1))
        tensor([[3.]])
    """

    z_new: Tensor
    z_old: Tensor
    method: Method = "auto"

    @property
    def num_rows(self) -> int:
        """Number of new nodes, M."""
        return self.z_new.shape[0]

    def matmul(self, x: Tensor) -> Tensor:
        """Return the product with (N, C)."""
        return kernel_matmul(self.z_new, self.z_old, x, method=self.method)[0]

    def dense(self, index: Tensor, num_old: int) -> Tensor:
        """Return some rows, (len(index), N)."""
        return kernel_weights(self.z_new[index], self.z_old)

    def map_tensors(self, function: Callable[[Tensor], Tensor]) -> KernelRows:
        """Return these rows with `function` applied to their tensors."""
        return KernelRows(function(self.z_new), function(self.z_old), self.method)


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Sparse weights of M new nodes to old nodes, in coordinate (COO) format.

    Attributes:
        row: new node of each entry, from 0 to M - 1, (E,), int64.
        col: old node of each entry, (E,), int64.
        weight: weight of each entry, (E,).
        num_rows: M.

    Cost: a product takes time and memory E·C.

    Example:
        >>> rows = SparseRows(torch.tensor([0]), torch.tensor([2]), torch.tensor([0.5]), 1)
        >>> rows.matmul(torch.tensor([[1.0], [2.0], [3.0]]))
        tensor([[1.5000]])
    """

    row: Tensor
    col: Tensor
    weight: Tensor
    num_rows: int

    def matmul(self, x: Tensor) -> Tensor:
        """Return the product with (N, C)."""
        product = x.new_zeros(self.num_rows, x.shape[-1])
        return product.index_add(0, self.row, self.weight.to(x.dtype).unsqueeze(-1) * x[self.col])

    def dense(self, index: Tensor, num_old: int) -> Tensor:
        """Return some rows, (len(index), N)."""
        is_asked = self.row == index.unsqueeze(-1)  # (len(index), E)
        place, entry = is_asked.nonzero(as_tuple=True)
        rows = self.weight.new_zeros(index.shape[0], num_old)
        return rows.index_put((place, self.col[entry]), self.weight[entry], accumulate=True)

    def map_tensors(self, function: Callable[[Tensor], Tensor]) -> SparseRows:
        """Return these rows with `function` applied to their tensors."""
        row, col, weight = (function(t) for t in (self.row, self.col, self.weight))
        return SparseRows(row, col, weight, self.num_rows)


class AttachedGraph(Graph):
    r"""A graph of N old nodes with M new nodes attached by directed edges, for inductive use.

    .. math:: \begin{pmatrix} A & 0 \\ B & \mathrm{diag}(b) \end{pmatrix}

    Old nodes keep their rows, degrees and features; a new node has edges B to old nodes and a
    self-loop b, and new nodes have no edges between them. A network trained on A therefore
    classifies new nodes with unchanged code: sums, scalings and normalisations are those of
    :class:`Graph`. This is the only graph that is not symmetric.

    Args:
        base: the graph A of the old nodes.
        new: the rows B.
        own: self-loop weights b, (M,); None for 0.

    Cost: the cost of `base`, plus M rows.

    Example:
        >>> from jlgcn import SparseGraph
        >>> edge = SparseGraph(torch.tensor([[0, 1], [1, 0]]))
        >>> attach(edge, 1, torch.tensor([[0], [1]])).to_dense()
        tensor([[0., 1., 0.],
                [1., 0., 0.],
                [0., 1., 0.]])
    """

    def __init__(
        self, base: Graph, new: KernelRows | SparseRows, own: Tensor | None = None
    ) -> None:
        if len(base.shape) > 2:
            raise ValueError(f"base must be a single graph, but it is {base}; attach to one graph")
        self.base = base
        self.new = new
        self.own = own

    @property
    def shape(self) -> torch.Size:
        """Shape of the matrix, (N + M, N + M)."""
        size = self.base.num_nodes + self.num_new
        return torch.Size((size, size))

    @property
    def num_new(self) -> int:
        """Number of new nodes, M."""
        return self.new.num_rows

    @property
    def has_no_edges(self) -> bool:
        """Whether neither old nor new nodes have an edge."""
        no_new = isinstance(self.new, SparseRows) and self.new.row.numel() == 0
        return no_new and self.base.has_no_edges and self.own is None

    def matmul(self, x: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return the product; batch dimensions of x are multiplied one by one."""
        if x.dim() > 2:
            parts = x.reshape(-1, *x.shape[-2:]).unbind(0)
            product = torch.stack([self.matmul(part, rows) for part in parts])
            return product.view(*x.shape[:-2], *product.shape[-2:])
        num_old = self.base.num_nodes
        wide = x.to(compute_dtype(x))
        old, new = wide[:num_old], wide[num_old:]
        attached = self.new.matmul(old)
        if self.own is not None:
            attached = attached + self.own.to(wide.dtype).unsqueeze(-1) * new
        if rows is not None and bool((rows >= num_old).all()):  # prediction of new nodes only
            return attached.index_select(0, rows - num_old).to(x.dtype)
        product = torch.cat([self.base.matmul(old), attached]).to(x.dtype)
        return product if rows is None else product.index_select(0, rows)

    def rows(self, index: Tensor) -> Tensor:
        """Return rows as a dense matrix; rows of old nodes are 0 at new nodes."""
        num_old = self.base.num_nodes
        is_old = index < num_old
        place = index[~is_old] - num_old
        old = self.base.rows(index[is_old])
        new = self.new.dense(place, num_old)
        own = new.new_zeros(len(place), self.num_new)
        if self.own is not None:
            own = own.scatter(1, place.unsqueeze(-1), self.own[place].unsqueeze(-1))
        together = torch.cat(
            [torch.cat([old, old.new_zeros(len(old), self.num_new)], -1), torch.cat([new, own], -1)]
        )
        order = torch.cat([is_old.nonzero(), (~is_old).nonzero()]).squeeze(-1)
        return together[order.argsort()]

    def _compute_degree(self) -> Tensor:
        # Degrees of old nodes from `base`, so that they stay bitwise the same.
        old = self.base.degree()
        ones = torch.ones(self.base.num_nodes, 1, dtype=old.dtype, device=old.device)
        new = self.new.matmul(ones).squeeze(-1)
        return torch.cat([old, new if self.own is None else new + self.own.to(new.dtype)])

    def _dirichlet(self, f: Tensor, scale: Tensor | None) -> Tensor:
        num_old = self.base.num_nodes
        old_scale = None if scale is None else scale[..., :num_old]
        energy = self.base._dirichlet(f[..., :num_old, :], old_scale)
        # Σ_j b_uj ‖f_u - f_j‖², with the square expanded; self-loops contribute nothing.
        f64 = f.double()
        f64 = f64 - f64.detach().mean(-2, keepdim=True)
        s = torch.ones_like(f64[..., :1]) if scale is None else scale.double().unsqueeze(-1)
        s = s.expand(*f64.shape[:-1], 1)
        square = f64.square().sum(-1, keepdim=True)
        columns = torch.cat([s, s * f64, s * square], -1)
        product = self.to(dtype=torch.float64).matmul(columns)
        new = product[..., num_old:, :]
        if self.own is not None:
            new = new - self.own.double().unsqueeze(-1) * columns[..., num_old:, :]
        new = s[..., num_old:, :] * new
        f_new, square_new = f64[..., num_old:, :], square[..., num_old:, :]
        terms = (
            square_new * new[..., :1]
            - 2 * (f_new * new[..., 1:-1]).sum(-1, keepdim=True)
            + new[..., -1:]
        )
        return energy + terms.sum((-2, -1)).to(energy.dtype)

    def _map_tensors(self, function: Callable[[Tensor], Tensor]) -> Self:
        new = self.new.map_tensors(function)
        own = None if self.own is None else function(self.own)
        return type(self)(self.base._map_tensors(function), new, own)


def attach(
    graph: Graph,
    num_new: int,
    edges: Tensor | None = None,  # (2, E), int64
    weight: Tensor | None = None,  # (E,)
) -> AttachedGraph:
    """Attach new nodes to a given graph, for inductive prediction.

    Args:
        graph: the graph of the old nodes.
        num_new: number of new nodes.
        edges: index of the new node, from 0 to num_new - 1, and of the old node of each edge; None
            for isolated new nodes.
        weight: edge weights; None for 1.

    Cost: none until it is used.

    Example:
        >>> from jlgcn import KernelGraph
        >>> attach(KernelGraph(torch.zeros(3, 1)), 2).num_nodes
        5
    """
    if not isinstance(graph, Graph):
        raise TypeError(
            f"graph must be a Graph, but it is a {type(graph).__name__}; pass as_graph(edge_index, "
            "num_nodes)"
        )
    if edges is None:
        edges = torch.empty(2, 0, dtype=torch.int64, device=graph.device)
    check_cross_edges(edges, num_new, graph.num_nodes)
    row, col = edges
    if weight is None:
        weight = torch.ones(row.shape[0], dtype=graph.dtype, device=graph.device)
    check_weight(weight, edges)
    return AttachedGraph(graph, SparseRows(row, col, weight, num_new))


def attach_points(
    base: Graph,
    z: Tensor,  # (N + M, S)
    graph: Graph,
    num_neighbors: int,
) -> AttachedGraph:
    """Attach new nodes to a learned graph by Gaussian kernel weights of their projected features.

    Args:
        base: the learned graph of the N old nodes.
        z: projected features of the old nodes, then of the M new nodes.
        graph: the given graph with the new nodes attached; its sparse edges are candidates.
        num_neighbors: k nearest old nodes of a new node if `base` is sparse; else all old nodes.

    Cost: a k-nearest-neighbour search of M rows among N; none if `base` is exact.
    """
    old, new = z[: -graph.num_new], z[-graph.num_new :]
    own = torch.ones_like(new[:, 0])  # the diagonal of the kernel
    if not isinstance(base, SparseGraph):
        return AttachedGraph(base, KernelRows(new, old), own)
    neighbors = nearest_neighbors(old, num_neighbors, queries=new)
    row = torch.arange(len(new), device=z.device).repeat_interleave(neighbors.shape[1])
    pairs = torch.stack([row, neighbors.flatten()])
    pairs = pairs[:, pairs[1] >= 0]
    if isinstance(graph, AttachedGraph) and isinstance(graph.new, SparseRows):
        pairs = torch.cat([pairs, torch.stack([graph.new.row, graph.new.col])], -1)
    row, col = torch.unique(pairs, dim=1)
    weight = (-(new[row] - old[col]).square().sum(-1)).exp()
    return AttachedGraph(base, SparseRows(row, col, weight, len(new)), own)
