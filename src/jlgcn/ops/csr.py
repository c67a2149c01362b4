"""Products of CSR matrices with a symmetric sparsity pattern and learned weights.

``torch.sparse`` materialises a dense N × N gradient for the weights, and gather with ``index_add``
is several times slower. Here every gradient is again one of three CSR products (SpMM, SDDMM and
edge distances), so that all orders of derivatives exist.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from jlgcn.ops.operators import operator, register_autograd, register_fake, save_inputs
from jlgcn.ops.precision import no_autocast

# Numbers per chunk of differences, so that a chunk stays in the caches.
_CHUNK_ENTRIES = 2**18

# Largest number of nodes, and of edges (two entries each): a sort key packs the column of an entry
# (31 bits and the sign) and its position (32 bits) into one int64.
_MAX_SIZE = 2**31


@dataclass(frozen=True, eq=False)
class Pattern:
    """The sparsity pattern of a symmetric N × N matrix in CSR format.

    Attributes:
        crow: row pointers, (N + 1,), int64.
        row: row of each entry, (E,), int64.
        col: column of each entry, (E,), int64; ascending within a row, without duplicates.
        reverse: position of the entry (j, i) for each entry (i, j), (E,), int64.
        num_nodes: number of nodes, N.
    """

    crow: Tensor
    row: Tensor
    col: Tensor
    reverse: Tensor
    num_nodes: int

    @property
    def num_edges(self) -> int:
        """Number of entries; an edge between two nodes counts twice, a self-loop once."""
        return self.col.shape[0]

    def to(self, device: torch.device | str | None) -> Pattern:
        """Return the pattern on another device."""
        crow, row, col, reverse = (
            tensor.to(device) for tensor in (self.crow, self.row, self.col, self.reverse)
        )
        return Pattern(crow, row, col, reverse, self.num_nodes)

    def find(self, row: Tensor, col: Tensor) -> Tensor:
        """Return the positions of the entries (row, col), all of which must exist."""
        return torch.searchsorted(self.row * self.num_nodes + self.col, row * self.num_nodes + col)


def symmetric_pattern(row: Tensor, col: Tensor, num_nodes: int) -> Pattern:
    """Return the symmetrised pattern of an edge list, without duplicates.

    Args:
        row: first node of each edge, (E,), int64.
        col: second node of each edge, (E,), int64.
        num_nodes: number of nodes, N, at most 2³¹.

    Raises:
        ValueError: there are more than 2³¹ nodes or edges.

    Cost: two sorts of at most 2·E integers.

    Example:
        >>> pattern = symmetric_pattern(torch.tensor([0, 2, 0]), torch.tensor([1, 1, 1]), 3)
        >>> torch.stack([pattern.row, pattern.col])
        tensor([[0, 1, 1, 2],
                [1, 0, 2, 1]])
    """
    if max(num_nodes, row.shape[0]) > _MAX_SIZE:
        raise ValueError(
            f"a sparse graph can have at most {_MAX_SIZE:,} nodes and as many edges, but there are "
            f"{num_nodes:,} nodes and {row.shape[0]:,} edges; set a smaller num_neighbors, or "
            "split the graph"
        )
    keys = _sorted(torch.cat([row * num_nodes + col, col * num_nodes + row]))
    keys = torch.unique_consecutive(keys)
    row = keys.div(max(1, num_nodes), rounding_mode="floor")
    col = keys - row * num_nodes
    crow = torch.zeros(num_nodes + 1, dtype=torch.int64, device=keys.device)
    torch.cumsum(torch.bincount(row, minlength=num_nodes), 0, out=crow[1:])
    # Sorting by (col, row) transposes the pattern. Entries are already sorted by row, so a key of
    # column and position is enough.
    position = torch.arange(keys.shape[0], device=keys.device)
    reverse = _sorted((col << 32) | position) & 0xFFFFFFFF
    return Pattern(crow, row, col, reverse, num_nodes)


def _sorted(keys: Tensor) -> Tensor:
    # torch.sort also returns positions, which takes five times as long as NumPy's sort.
    if keys.device.type == "cpu":
        return torch.from_numpy(np.sort(keys.numpy()))
    return keys.sort().values


def csr_matmul(
    pattern: Pattern,
    weight: Tensor,  # (E,)
    x: Tensor,  # (N, C)
) -> Tensor:  # (N, C)
    r"""Multiply a CSR matrix with a dense matrix (SpMM), differentiable in both.

    .. math:: y_i = \sum_{j \in N(i)} w_{ij} x_j

    Args:
        pattern: sparsity pattern.
        weight: weight of each entry, of the same floating-point dtype as `x`.
        x: right-hand side.

    Cost: 2·E·C FLOP forward, 4·E·C backward; memory linear in E + N·C.

    Example:
        >>> pattern = symmetric_pattern(torch.tensor([0]), torch.tensor([1]), 2)
        >>> csr_matmul(pattern, torch.tensor([3.0, 3.0]), torch.tensor([[1.0], [2.0]]))
        tensor([[6.],
                [3.]])
    """
    return _csr_matmul(pattern.crow, pattern.col, pattern.reverse, weight, x)


def edge_squared_distance(
    pattern: Pattern,
    z: Tensor,  # (N, S)
) -> Tensor:  # (E,)
    """Return ‖z_i - z_j‖² for every entry (i, j) of the pattern, differentiable in z.

    Computed from differences: equal rows have distance exactly 0 at any offset, and the two
    directions of an edge are bitwise equal.

    Cost: 3·E·S FLOP forward, 2·E·(S + 1) backward; memory linear in E + N·S.

    Example:
        >>> pattern = symmetric_pattern(torch.tensor([0]), torch.tensor([1]), 2)
        >>> edge_squared_distance(pattern, torch.tensor([[1.0], [4.0]]))
        tensor([9., 9.])
    """
    return _edge_squared_distance(pattern.crow, pattern.row, pattern.col, pattern.reverse, z)


# Custom operators, because torch.compile does not trace the construction of sparse tensors.


@operator("csr_matmul(Tensor crow, Tensor col, Tensor reverse, Tensor weight, Tensor x) -> Tensor")
def _csr_matmul(crow: Tensor, col: Tensor, reverse: Tensor, weight: Tensor, x: Tensor) -> Tensor:
    with no_autocast(x.device):
        return _csr(crow, col, weight) @ x


@register_fake("csr_matmul")
def _(crow: Tensor, col: Tensor, reverse: Tensor, weight: Tensor, x: Tensor) -> Tensor:
    return x.new_empty(x.shape)


@operator("edge_dot(Tensor crow, Tensor col, Tensor reverse, Tensor a, Tensor b) -> Tensor")
def _edge_dot(crow: Tensor, col: Tensor, reverse: Tensor, a: Tensor, b: Tensor) -> Tensor:
    with no_autocast(a.device):
        places = _csr(crow, col, a.new_zeros(col.shape))
        dots: Tensor = torch.sparse.sampled_addmm(places, a, b.mT).values()
    return dots


@register_fake("edge_dot")
def _(crow: Tensor, col: Tensor, reverse: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return a.new_empty(col.shape)


@operator(
    "edge_squared_distance(Tensor crow, Tensor row, Tensor col, Tensor reverse, Tensor z) -> Tensor"
)
def _edge_squared_distance(
    crow: Tensor, row: Tensor, col: Tensor, reverse: Tensor, z: Tensor
) -> Tensor:
    distances = z.new_empty(col.shape)
    chunk = max(1, _CHUNK_ENTRIES // max(1, z.shape[-1]))
    for start in range(0, col.shape[0], chunk):
        edges = slice(start, start + chunk)
        difference = z.index_select(0, row[edges])
        difference -= z.index_select(0, col[edges])
        torch.sum(difference.square_(), -1, out=distances[edges])
    return distances


@register_fake("edge_squared_distance")
def _(crow: Tensor, row: Tensor, col: Tensor, reverse: Tensor, z: Tensor) -> Tensor:
    return z.new_empty(col.shape)


def _csr_matmul_backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor | None, ...]:
    crow, col, reverse, weight, x = ctx.saved_tensors  # type: ignore[attr-defined]
    *_, needs_weight, needs_x = ctx.needs_input_grad  # type: ignore[attr-defined]
    grad_weight = _edge_dot(crow, col, reverse, grad, x) if needs_weight else None
    # The transpose has the same pattern, with the weights permuted by `reverse`.
    grad_x = (
        _csr_matmul(crow, col, reverse, weight.index_select(0, reverse), grad) if needs_x else None
    )
    return None, None, None, grad_weight, grad_x


def _edge_dot_backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor | None, ...]:
    crow, col, reverse, a, b = ctx.saved_tensors  # type: ignore[attr-defined]
    *_, needs_a, needs_b = ctx.needs_input_grad  # type: ignore[attr-defined]
    grad_a = _csr_matmul(crow, col, reverse, grad, b) if needs_a else None
    grad_b = _csr_matmul(crow, col, reverse, grad.index_select(0, reverse), a) if needs_b else None
    return None, None, None, grad_a, grad_b


def _edge_squared_distance_backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor | None, ...]:
    crow, _, col, reverse, z = ctx.saved_tensors  # type: ignore[attr-defined]
    # 2 Σ_j (g_ij + g_ji)(z_i - z_j); the column of ones gives the sum of the weights.
    weight = 2 * (grad + grad.index_select(0, reverse))
    z = z - z.detach().mean(0)
    z_and_ones = torch.cat([z, torch.ones_like(z[:, :1])], -1)
    product = _csr_matmul(crow, col, reverse, weight, z_and_ones)
    return None, None, None, None, z * product[:, -1:] - product[:, :-1]


register_autograd("csr_matmul", _csr_matmul_backward, save_inputs)
register_autograd("edge_dot", _edge_dot_backward, save_inputs)
register_autograd("edge_squared_distance", _edge_squared_distance_backward, save_inputs)


def _csr(crow: Tensor, col: Tensor, weight: Tensor) -> Tensor:
    size = (crow.shape[0] - 1, crow.shape[0] - 1)
    return torch.sparse_csr_tensor(crow, col, weight, size, check_invariants=False)


def _silence_beta_notice() -> None:
    # torch warns once per process that CSR tensors are in beta, which users of this package cannot
    # act on.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        index = torch.zeros(2, dtype=torch.int64, device="cpu")
        torch.sparse_csr_tensor(index, index[:0], index[:0].float(), (1, 1))


_silence_beta_notice()
