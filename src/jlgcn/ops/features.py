"""Features that are nearly all zeros, as bags of words are, multiplied without their zeros."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.nn import functional

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

    def dropout(self, p: float, training: bool = True) -> SparseFeatures:
        """Return the features with each entry set to 0 with probability p, the others scaled up."""
        if not training or p == 0:
            return self
        return replace(self, value=functional.dropout(self.value, p))

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


# A custom operator for the same reason as those of sparse.py: torch.compile.


@torch.library.custom_op("jlgcn::feature_matmul", mutates_args=())
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


@_feature_matmul.register_fake
def _(
    crow: Tensor,
    col: Tensor,
    value: Tensor,
    crow_t: Tensor,
    row_t: Tensor,
    order_t: Tensor,
    weight: Tensor,
) -> Tensor:
    return value.new_empty(crow.shape[0] - 1, weight.shape[1])


def _save_inputs(ctx: FunctionCtx, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _feature_matmul_backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor | None, ...]:
    crow, col, value, crow_t, row_t, order_t, weight = ctx.saved_tensors  # type: ignore[attr-defined]
    # The transpose of the transpose is the matrix, whose entries stand where `order_t` inverts.
    order = torch.empty_like(order_t)
    order[order_t] = torch.arange(order_t.shape[0], device=order_t.device)
    grad_weight: Tensor = _feature_matmul(
        crow_t, row_t, value.index_select(0, order_t), crow, col, order, grad
    )
    return None, None, None, None, None, None, grad_weight.to(weight.dtype)


_feature_matmul.register_autograd(_feature_matmul_backward, setup_context=_save_inputs)
