"""The exact Gaussian kernel graph on all pairs of nodes, in O(N) memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor

from jlgcn.graphs.graph import Graph
from jlgcn.ops.gaussian import METHODS, Method, kernel_matmul
from jlgcn.ops.precision import compute_dtype
from jlgcn.ops.shapes import common_batch


class KernelGraph(Graph):
    r"""The complete graph with Gaussian kernel weights of points z, matrix-free.

    Equation 8 of the paper, with z = Rᵀf:

    .. math:: a_{ij} = \exp(-\|R^\top (f_i - f_j)\|^2) = \exp(-\|z_i - z_j\|^2)

    Args:
        z: points, (\*batch, N, S); each leading index is a separate graph.
        method ("auto", "flash" or "blocks", default "auto"): algorithm of the products, see
            :func:`jlgcn.ops.kernel_matmul`; "blocks" is twice differentiable.
        valid: False marks padding nodes of a batch, (\*batch, N). They have no edges, whatever
            their points contain.

    Cost: a product takes time N²·(S + C) and memory N·(S + C), forward and backward; the degrees
    take time N²·S.

    Precision: relative error of a weight about eps·max(1, ‖z‖²), with z centred.

    Example:
        >>> graph = KernelGraph(torch.tensor([[0.0], [1.0], [50.0]]))
        >>> graph.degree()
        tensor([1.3679, 1.3679, 1.0000])
    """

    def __init__(self, z: Tensor, *, method: Method = "auto", valid: Tensor | None = None) -> None:
        if method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}, but it is {method!r}")
        if z.dim() < 2:
            raise ValueError(
                f"z must be a matrix, (*batch, nodes, rank), but its shape is {tuple(z.shape)}; "
                "for points on a line use z.unsqueeze(-1)"
            )
        if not z.dtype.is_floating_point:
            raise ValueError(f"z must be floating point, but it is {z.dtype}; call z.float()")
        if valid is not None and (valid.dtype != torch.bool or valid.shape[-1] != z.shape[-2]):
            raise ValueError(
                f"valid must be bool with one entry for each of {z.shape[-2]} nodes, but it is "
                f"{valid.dtype} of shape {tuple(valid.shape)}; pass a mask of the nodes"
            )
        self.z = z
        self.method: Method = method
        self.valid = valid

    @property
    def shape(self) -> torch.Size:
        r"""Shape of the adjacency matrix, (\*batch, N, N)."""
        batch = self.z.shape[:-2]
        if self.valid is not None:
            batch = common_batch(batch, self.valid.shape[:-1])
        return torch.Size((*batch, self.z.shape[-2], self.z.shape[-2]))

    def matmul(self, x: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return the kernel product, in one pass over all pairs with these rows."""
        points, valid = self._points(), self.valid
        if rows is not None:
            points = points.index_select(-2, rows)
            valid = None if valid is None else valid.index_select(-1, rows)
        product, _ = kernel_matmul(points, self.z, x, self.valid, method=self.method)
        return product if valid is None else product * valid.unsqueeze(-1)

    def rows(self, index: Tensor) -> Tensor:
        """Return weights computed from differences: exactly 1 on the diagonal."""
        z = self._points()
        weight = kernel_weights(z.index_select(-2, index), z)
        if self.valid is None:
            return weight
        return weight * self.valid[..., index].unsqueeze(-1) * self.valid.unsqueeze(-2)

    def _compute_degree(self) -> Tensor:
        no_columns = self.z.new_zeros(*self.z.shape[:-1], 0)
        points = self._points()
        _, degree = kernel_matmul(points, self.z, no_columns, self.valid, method=self.method)
        return degree if self.valid is None else degree * self.valid

    def _points(self) -> Tensor:
        """Return z with padding set to 0, so that NaN in padding cannot propagate."""
        return self.z if self.valid is None else self.z.masked_fill(~self.valid.unsqueeze(-1), 0)

    def _map_tensors(self, function: Callable[[Tensor], Tensor]) -> Self:
        valid = None if self.valid is None else function(self.valid)
        return type(self)(function(self.z), method=self.method, valid=valid)


def kernel_weights(
    z_rows: Tensor,  # (*batch, M, S)
    z_cols: Tensor,  # (*batch, N, S)
) -> Tensor:  # (*batch, M, N)
    """Return exp(-‖z_i - z_j‖²) for all pairs, computed from differences in float32 or better."""
    dtype = compute_dtype(z_rows, z_cols)
    distance = z_rows.new_zeros((), dtype=dtype)
    # One coordinate at a time: all differences at once take S times the memory.
    for row, col in zip(z_rows.to(dtype).unbind(-1), z_cols.to(dtype).unbind(-1), strict=True):
        distance = distance + (row.unsqueeze(-1) - col.unsqueeze(-2)).square()
    return (-distance).exp()
