"""Features that are nearly all zeros, as bags of words are, multiplied without their zeros."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from jlgcn.ops.dropout import dropout
from jlgcn.ops.operators import operator, register_autograd, register_fake, save_inputs
from jlgcn.ops.precision import no_autocast


@dataclass(frozen=True, eq=False)
class SparseFeatures:
    r"""An N × K matrix in compressed rows that weights are multiplied with, again and again.

    PyTorch's own sparse matrices turn themselves around in every backward pass, which costs more
    than both products; here the transpose is found once.

    Attributes:
        crow: where each row begins, (N + 1,), int64.
        col: column of each entry, (E,), int64.
        value: the entries, (E,).
        crow_t: where each column begins, (K + 1,), int64.
        row_t: row of each entry, by columns, (E,), int64.
        order_t: where each entry of the transpose stands in `value`, (E,), int64.

    Not differentiable in the entries: features are data.

    Cost: memory 5·E; a product with (K, H) takes 2·E·H FLOP, and as many for its gradient.

    Example:
        >>> x = SparseFeatures.from_dense(torch.tensor([[0.0, 2.0], [3.0, 0.0]]))
        >>> x @ torch.eye(2)
        tensor([[0., 2.],
                [3., 0.]])
    """

    crow: Tensor
    col: Tensor
    value: Tensor
    crow_t: Tensor
    row_t: Tensor
    order_t: Tensor

    @classmethod
    def from_scipy(cls, matrix: Any) -> SparseFeatures:  # noqa: ANN401
        """Return a sparse matrix of SciPy, of any format, in float32 or float64."""
        matrix = scipy.sparse.csr_array(matrix)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        wide = matrix.dtype == np.float64
        value = matrix.data if wide else matrix.data.astype(np.float32)
        places = scipy.sparse.csr_array(
            (np.arange(1, matrix.nnz + 1), matrix.indices, matrix.indptr), shape=matrix.shape
        )
        transposed = places.T.tocsr()
        crow, col, crow_t, row_t = (
            torch.from_numpy(part.astype(np.int64))
            for part in (matrix.indptr, matrix.indices, transposed.indptr, transposed.indices)
        )
        order_t = torch.from_numpy(transposed.data - 1)
        return cls(crow, col, torch.from_numpy(value), crow_t, row_t, order_t)

    @classmethod
    def from_dense(cls, x: Tensor) -> SparseFeatures:
        """Return the entries of a dense matrix that are not 0."""
        return cls.from_scipy(scipy.sparse.csr_array(x.detach().cpu().numpy())).to(x.device)

    @property
    def shape(self) -> torch.Size:
        """Shape of the matrix, (N, K)."""
        return torch.Size((self.crow.shape[0] - 1, self.crow_t.shape[0] - 1))

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the entries."""
        return self.value.dtype

    @property
    def device(self) -> torch.device:
        """Device of the entries."""
        return self.value.device

    @property
    def _row(self) -> Tensor:
        """Row of each entry, (E,)."""
        return torch.repeat_interleave(self.crow.diff(), output_size=self.col.shape[0])

    def __matmul__(self, weight: Tensor) -> Tensor:  # (K, H) to (N, H)
        if weight.shape[0] != self.shape[1]:
            raise ValueError(
                f"features have {self.shape[1]} columns but the weights {weight.shape[0]} rows; "
                "pass the features that the weights were made for"
            )
        product: Tensor = _feature_matmul(
            self.crow, self.col, self.value, self.crow_t, self.row_t, self.order_t, weight
        )
        return product

    @property
    def mT(self) -> SparseFeatures:  # noqa: N802
        """The transpose, (K, N), which shares all tensors but the entries."""
        order = torch.empty_like(self.order_t)
        order[self.order_t] = torch.arange(len(order), device=order.device)
        value = self.value.index_select(0, self.order_t)
        return SparseFeatures(self.crow_t, self.row_t, value, self.crow, self.col, order)

    def map(self, function: Callable[[Tensor], Tensor]) -> SparseFeatures:
        """Return the features with a function, under which 0 stays 0, applied to every entry."""
        return replace(self, value=function(self.value))

    def scaled(self, rows: Tensor, columns: Tensor) -> SparseFeatures:
        """Return diag(rows) X diag(columns)."""
        return replace(self, value=self.value * rows[self._row] * columns[self.col])

    def square_norms(self) -> Tensor:  # (N,)
        """Return the squared length of every row."""
        return self.value.new_zeros(self.shape[0]).index_add(0, self._row, self.value.square())

    def dropout(self, p: float, training: bool = True) -> SparseFeatures:
        """Return the features with each entry set to 0 with probability p, the others scaled up."""
        if not training or p == 0:
            return self
        return replace(self, value=dropout(self.value, p))

    def to(self, device: torch.device | str) -> SparseFeatures:
        """Return the features on another device."""
        return SparseFeatures(
            *(getattr(self, name).to(device) for name in self.__dataclass_fields__)
        )

    def to_scipy(self) -> scipy.sparse.csr_array:
        """Return the features as a sparse matrix of SciPy."""
        parts = (t.cpu().numpy() for t in (self.value, self.col, self.crow))
        return scipy.sparse.csr_array(tuple(parts), shape=tuple(self.shape))

    def __repr__(self) -> str:
        rows, columns = self.shape
        return f"SparseFeatures({rows} × {columns}, {self.value.shape[0]} entries, {self.device})"


# Numbers that are gathered at a time where pairs of rows are compared.
_CHUNK_ENTRIES = 2**24


def pair_distances(
    x: Tensor | SparseFeatures,  # (N, K)
    row: Tensor,  # (E,), int64
    col: Tensor,  # (E,), int64
    other: Tensor | SparseFeatures | None = None,  # (M, K)
) -> Tensor:  # (E,)
    r"""Return the squared distance of pairs of rows, :math:`\|x_i - x_j\|^2`.

    Args:
        x: features.
        row: the first of each pair.
        col: the second of each pair.
        other: where the second is a row of, if not of `x`.

    Not differentiable; where gradients are wanted see :func:`edge_squared_distance`.

    Cost: 3·E·K FLOP, or as many as the pairs' rows have entries; memory E, and a chunk of rows.

    Example:
        >>> x = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
        >>> pair_distances(x, torch.tensor([0]), torch.tensor([1]))
        tensor([25.])
    """
    other = x if other is None else other
    if isinstance(x, Tensor) and isinstance(other, Tensor):
        size = max(1, _CHUNK_ENTRIES // max(1, x.shape[1]))
        parts = [
            (x[i] - other[j]).square().sum(-1)
            for i, j in zip(row.split(size), col.split(size), strict=True)
        ]
        return torch.cat(parts) if parts else x.new_empty(0)
    assert isinstance(x, SparseFeatures)
    assert isinstance(other, SparseFeatures)
    first, second = x.to_scipy(), other.to_scipy()
    size = max(1, _CHUNK_ENTRIES * x.shape[0] // (x.value.shape[0] + x.shape[0]))
    parts = [
        torch.from_numpy((first[i.numpy()] - second[j.numpy()]).power(2).sum(1))
        for i, j in zip(row.cpu().split(size), col.cpu().split(size), strict=True)
    ]
    return torch.cat(parts).to(x.device) if parts else x.value.new_empty(0)


# A custom operator for the same reason as those of csr.py: torch.compile.


@operator(
    "feature_matmul(Tensor crow, Tensor col, Tensor value, Tensor crow_t, Tensor row_t, "
    "Tensor order_t, Tensor weight) -> Tensor"
)
def _feature_matmul(
    crow: Tensor,
    col: Tensor,
    value: Tensor,
    crow_t: Tensor,
    row_t: Tensor,
    order_t: Tensor,
    weight: Tensor,
) -> Tensor:
    size = (crow.shape[0] - 1, crow_t.shape[0] - 1)
    with no_autocast(weight.device):
        matrix = torch.sparse_csr_tensor(crow, col, value, size, check_invariants=False)
        return matrix @ weight.to(value.dtype)


@register_fake("feature_matmul")
def _(crow: Tensor, col: Tensor, value: Tensor, *others: Tensor) -> Tensor:
    return value.new_empty(crow.shape[0] - 1, others[-1].shape[1])


def _feature_matmul_backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor | None, ...]:
    crow, col, value, crow_t, row_t, order_t, weight = ctx.saved_tensors  # type: ignore[attr-defined]
    # The transpose of the transpose is the matrix, whose entries stand where `order_t` inverts.
    order = torch.empty_like(order_t)
    order[order_t] = torch.arange(order_t.shape[0], device=order_t.device)
    grad_weight: Tensor = _feature_matmul(
        crow_t, row_t, value.index_select(0, order_t), crow, col, order, grad
    )
    return None, None, None, None, None, None, grad_weight.to(weight.dtype)


register_autograd("feature_matmul", _feature_matmul_backward, save_inputs)
