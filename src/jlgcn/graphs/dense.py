"""Graphs stored as dense adjacency matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor

from jlgcn.graphs.graph import Graph
from jlgcn.ops.precision import compute_dtype, no_autocast


class DenseGraph(Graph):
    r"""A graph stored as a dense adjacency matrix, for small graphs and batches of them.

    Args:
        weight: symmetric, non-negative adjacency matrix, (\*batch, N, N).

    Cost: memory N² per graph; a product takes 2·N²·C FLOP.

    Example:
        >>> graph = DenseGraph(torch.tensor([[0.0, 2.0], [2.0, 0.0]]))
        >>> graph @ torch.tensor([[1.0], [10.0]])
        tensor([[20.],
                [ 2.]])
    """

    def __init__(self, weight: Tensor) -> None:
        if weight.dim() < 2 or weight.shape[-1] != weight.shape[-2]:
            raise ValueError(
                "weight must be square, (*batch, nodes, nodes), but its shape is "
                f"{tuple(weight.shape)}; for an edge list use SparseGraph"
            )
        if not weight.dtype.is_floating_point:
            raise ValueError(
                f"weight must be floating point, but it is {weight.dtype}; call weight.float()"
            )
        self.weight = weight

    @property
    def shape(self) -> torch.Size:
        """Shape of the adjacency matrix."""
        return self.weight.shape

    def matmul(self, x: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return the matrix product."""
        dtype = compute_dtype(self.weight, x)
        weight = self.weight if rows is None else self.rows(rows)
        with no_autocast(x.device):
            return (weight.to(dtype) @ x.to(dtype)).to(x.dtype)

    def rows(self, index: Tensor) -> Tensor:
        """Return rows of the adjacency matrix."""
        return self.weight.index_select(-2, index)

    def _scaled(self, scale: Tensor) -> DenseGraph:
        weight = self.weight.to(compute_dtype(self.weight, scale))
        return DenseGraph(scale.unsqueeze(-1) * weight * scale.unsqueeze(-2))

    def __add__(self, other: Graph) -> Graph:
        if isinstance(other, DenseGraph) and other.num_nodes == self.num_nodes:
            return DenseGraph(self.weight + other.weight)
        return super().__add__(other)

    def _compute_degree(self) -> Tensor:
        return self.weight.sum(-1, dtype=compute_dtype(self.weight))

    def _dirichlet(self, f: Tensor, scale: Tensor | None) -> Tensor:
        weight = (self if scale is None else self._scaled(scale)).weight.double()
        f64 = f.double()
        f64 = f64 - f64.detach().mean(-2, keepdim=True)
        # Row and column sums are equal, but their derivatives are not: with both, the gradient of
        # each weight is ‖f_i - f_j‖² itself.
        degrees = weight.sum(-1) + weight.sum(-2)
        energy = degrees * f64.square().sum(-1) - 2 * (f64 * (weight @ f64)).sum(-1)
        return energy.sum(-1).to(compute_dtype(f))

    def _map_tensors(self, function: Callable[[Tensor], Tensor]) -> Self:
        return type(self)(function(self.weight))
