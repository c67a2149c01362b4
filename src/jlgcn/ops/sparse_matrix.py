"""Sparse feature matrices, such as bags of words, in CSR format."""

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
    r"""A sparse N × K feature matrix in CSR format, with the pattern of its transpose (CSC).

    PyTorch's sparse matrices are transposed in every backward pass, which costs more than both
    products; here the transpose is computed once.

    Attributes:
        crow: row pointers, (N + 1,), int64.
        col: column of each entry, (E,), int64.
        value: the entries, (E,).
        crow_t: row pointers of the transpose, (K + 1,), int64.
        row_t: column indices of the transpose, (E,), int64.
        order_t: index into `value` of each entry of the transpose, (E,), int64.

    Products are differentiable in the right-hand side, not in the entries: features are data.

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
        """Convert a SciPy sparse matrix of any format, to float64 if it is, else to float32.

        The matrix is copied, so that it is not changed, and later changes of it have no effect.
        """
        matrix = scipy.sparse.csr_array(matrix, copy=True)
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
        """Convert a dense matrix, (N, K), dropping its zeros."""
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
                f"weights must have a row for each of {self.shape[1]} columns of the features, but "
                f"they have {weight.shape[0]}; pass the features that the weights were made for"
            )
        product: Tensor = _feature_matmul(
            self.crow, self.col, self.value, self.crow_t, self.row_t, self.order_t, weight
        )
        return product

    @property
    def mT(self) -> SparseFeatures:  # noqa: N802
        """The transpose, (K, N); it shares all index tensors."""
        order = torch.empty_like(self.order_t)
        order[self.order_t] = torch.arange(len(order), device=order.device)
        value = self.value.index_select(0, self.order_t)
        return SparseFeatures(self.crow_t, self.row_t, value, self.crow, self.col, order)

    def map(self, function: Callable[[Tensor], Tensor]) -> SparseFeatures:
        """Apply an elementwise function with f(0) = 0 to the entries."""
        return replace(self, value=function(self.value))

    def scaled(self, rows: Tensor, columns: Tensor) -> SparseFeatures:
        """Return diag(rows) X diag(columns)."""
        return replace(self, value=self.value * rows[self._row] * columns[self.col])

    def square_norms(self) -> Tensor:  # (N,)
        """Return the squared norm of every row."""
        return self.value.new_zeros(self.shape[0]).index_add(0, self._row, self.value.square())

    def dropout(self, p: float, training: bool = True) -> SparseFeatures:
        """Apply dropout with probability p to the entries (:func:`jlgcn.ops.dropout.dropout`)."""
        if not training or p == 0:
            return self
        return replace(self, value=dropout(self.value, p))

    def to(self, device: torch.device | str) -> SparseFeatures:
        """Return the features on another device."""
        return SparseFeatures(
            *(getattr(self, name).to(device) for name in self.__dataclass_fields__)
        )

    def to_scipy(self) -> scipy.sparse.csr_array:
        """Convert to a SciPy CSR array on the CPU."""
        parts = (t.cpu().numpy() for t in (self.value, self.col, self.crow))
        return scipy.sparse.csr_array(tuple(parts), shape=tuple(self.shape))

    def __repr__(self) -> str:
        rows, columns = self.shape
        return f"SparseFeatures({rows} × {columns}, {self.value.shape[0]} entries, {self.device})"


# Numbers gathered per chunk of row pairs: of dense rows as many as stay in the processor's cache.
_CHUNK_ENTRIES = 2**24
_CHUNK_DENSE = 2**18


def pair_distances(
    x: Tensor | SparseFeatures,  # (N, K)
    row: Tensor,  # (E,), int64
    col: Tensor,  # (E,), int64
    other: Tensor | SparseFeatures | None = None,  # (M, K)
) -> Tensor:  # (E,)
    r"""Return the squared Euclidean distances of row pairs, :math:`\|x_i - y_j\|^2`.

    Args:
        x: features of the first rows.
        row: index of the first row of each pair.
        col: index of the second row of each pair.
        other: y, features of the second rows; None for `x`.

    Sparse features are not differentiable here; see :func:`jlgcn.ops.csr.edge_squared_distance`.

    Cost: 3·E·K FLOP, or as many as the pairs' rows have entries; memory E, and a chunk of rows.

    Example:
        >>> x = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
        >>> pair_distances(x, torch.tensor([0]), torch.tensor([1]))
        tensor([25.])
    """
    other = x if other is None else other
    if isinstance(x, Tensor) and isinstance(other, Tensor):
        size = max(1, _CHUNK_DENSE // max(1, x.shape[1]))
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


# A custom operator, because torch.compile does not trace the construction of sparse tensors.


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
    # The backward product uses the transpose, whose own transpose has the inverse permutation.
    order = torch.empty_like(order_t)
    order[order_t] = torch.arange(order_t.shape[0], device=order_t.device)
    grad_weight: Tensor = _feature_matmul(
        crow_t, row_t, value.index_select(0, order_t), crow, col, order, grad
    )
    return None, None, None, None, None, None, grad_weight.to(weight.dtype)


register_autograd("feature_matmul", _feature_matmul_backward, save_inputs)
