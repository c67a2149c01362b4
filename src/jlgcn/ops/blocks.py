"""Gaussian kernel products computed by blocks of rows: plain PyTorch, twice differentiable.

The reference implementation against which the flash-attention kernels are checked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from jlgcn.ops.precision import centred, compute_dtype, no_autocast

#: Kernel entries per block: 8 MB in float32, which fits in the last-level cache.
BLOCK_ENTRIES = 2**21


def block_matmul(
    z_rows: Tensor,  # (*batch, M, S)
    z_cols: Tensor,  # (*batch, N, S)
    u: Tensor,  # (*batch, N, C)
) -> Tensor:  # (*batch, M, C)
    r"""Multiply a Gaussian kernel matrix with a matrix, one block of rows at a time.

    .. math:: y_i = \sum_j \exp(-\|z^{rows}_i - z^{cols}_j\|^2)\, u_j

    All arguments share batch dimensions and dtype. The caller centres the points, as
    :func:`jlgcn.ops.kernel_matmul` does: the rounding error grows with their squared norm.

    Args:
        z_rows: points of the rows.
        z_cols: points of the columns.
        u: right-hand side.

    Cost: 2·M·N·(S + C) FLOP forward, 2·M·N·(3·S + 2·C) backward; memory for one block of the
    kernel in addition to the arguments, at every order of differentiation.

    Example:
        >>> z = torch.tensor([[0.0], [1.0]])
        >>> block_matmul(z, z, torch.ones(2, 1)).squeeze()
        tensor([1.3679, 1.3679])
    """
    product: Tensor = _BlockMatmul.apply(z_rows, z_cols, u)  # type: ignore[no-untyped-call]
    return product


def kernel_matrix(
    z: Tensor,  # (*batch, N, S)
) -> Tensor:  # (*batch, N, N)
    r"""Return the Gaussian kernel matrix of a point set as a dense tensor.

    .. math:: k_{ij} = \exp(-\|z_i - z_j\|^2)

    For small graphs with many dimensions S: products with a stored matrix do not recompute the
    distances.

    Cost: 2·N²·S FLOP, twice that with its gradients; memory N².

    Example:
        >>> kernel_matrix(torch.tensor([[0.0], [1.0]]))
        tensor([[1.0000, 0.3679],
                [0.3679, 1.0000]])
    """
    z = z.to(compute_dtype(z))
    z, _ = centred(z, z)
    if torch.compiler.is_compiling():  # the compiler derives the gradient
        left, right = exponent_factors(z, z)
        return (left @ right.mT).clamp(max=0).exp()
    kernel: Tensor = _KernelMatrix.apply(z)  # type: ignore[no-untyped-call]
    return kernel


def append_ones(v: Tensor, col_valid: Tensor | None = None) -> Tensor:
    """Append a column of ones to v, (*batch, N, C); the kernel times this column is the degree.

    Rows that are padding become 0, so that their kernel columns contribute nothing.
    """
    u = pad(v, (0, 1), value=1.0)
    return u if col_valid is None else u * col_valid.unsqueeze(-1)


def exponent_factors(z_rows: Tensor, z_cols: Tensor) -> tuple[Tensor, Tensor]:
    """Return factors, (*batch, M, S + 2) and (*batch, N, S + 2), of the kernel's exponent:

    left_i · right_j = -‖z_i - z_j‖².

    The order of the columns matters. A matrix product accumulates them one after the other and
    rounds relative to the partial sum: with one squared norm first, the inner products next and
    the other squared norm last, partial sums never exceed ‖z‖² instead of 2·‖z‖². With squared
    norms that are correct to the last bit, this halves the error for near pairs.
    """  # noqa: D415
    square_rows, square_cols = (
        z.double().square().sum(-1, keepdim=True).to(z.dtype) for z in (z_rows, z_cols)
    )
    left = torch.cat([-torch.ones_like(square_rows), 2 * z_rows, -square_rows], dim=-1)
    right = torch.cat([square_cols, z_cols, torch.ones_like(square_cols)], dim=-1)
    return left, right


def block_forward(z_rows: Tensor, z_cols: Tensor, u: Tensor) -> Tensor:
    """Return :func:`block_matmul`, without recording it for autograd."""
    left, right = exponent_factors(z_rows, z_cols)
    with no_autocast(u.device):
        blocks = [_kernel(left[..., rows, :], right) @ u for rows in _row_blocks(z_rows, z_cols)]
    if not blocks:
        return u.new_zeros(*z_rows.shape[:-1], u.shape[-1])
    return torch.cat(blocks, dim=-2)


def block_backward(
    grad: Tensor,  # (*batch, M, C)
    z_rows: Tensor,
    z_cols: Tensor,
    u: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of :func:`block_matmul` with respect to its three tensors."""
    left, right = exponent_factors(z_rows, z_cols)
    grad_rows = []
    grad_cols, grad_u = torch.zeros_like(z_cols), torch.zeros_like(u)
    for rows in _row_blocks(z_rows, z_cols):
        block = grad[..., rows, :], left[..., rows, :], right, z_rows[..., rows, :], z_cols, u
        if torch.is_grad_enabled():
            # Second derivatives: autograd would keep every block, together the N × N matrix;
            # checkpointing recomputes them.
            parts = checkpoint(
                _block_gradients, *block, use_reentrant=False, preserve_rng_state=False
            )
        else:
            parts = _block_gradients(*block)
        grad_rows.append(parts[0])
        grad_cols = grad_cols + parts[1]
        grad_u = grad_u + parts[2]
    return torch.cat(grad_rows, dim=-2) if grad_rows else z_rows, grad_cols, grad_u


def _block_gradients(
    grad: Tensor, left: Tensor, right: Tensor, z_rows: Tensor, z_cols: Tensor, u: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    with no_autocast(u.device):
        kernel = _kernel(left, right)
        grad_u = kernel.mT @ grad
        grad_log = (grad @ u.mT) * kernel  # gradient of -‖z_i - z_j‖²
        # Σ_j grad_log_ij (z_j - z_i); the column of ones gives Σ_j grad_log_ij.
        to_rows = grad_log @ append_ones(z_cols)
        to_cols = grad_log.mT @ append_ones(z_rows)
        grad_rows = 2 * (to_rows[..., :-1] - z_rows * to_rows[..., -1:])
        grad_cols = 2 * (to_cols[..., :-1] - z_cols * to_cols[..., -1:])
    return grad_rows, grad_cols, grad_u


def _kernel(left: Tensor, right: Tensor) -> Tensor:
    """Return one block of the kernel, (*batch, B, N), clamped to at most 1 despite rounding.

    Subnormal weights become 0: multiplying them is many times slower on a CPU.
    """
    kernel = (left @ right.mT).clamp_(max=0).exp_()
    return torch.threshold_(kernel, torch.finfo(kernel.dtype).tiny, 0.0)


def _row_blocks(z_rows: Tensor, z_cols: Tensor) -> Iterator[slice]:
    block_size = max(1, BLOCK_ENTRIES // max(1, math.prod(z_cols.shape[:-1])))
    for start in range(0, z_rows.shape[-2], block_size):
        yield slice(start, start + block_size)


class _KernelMatrix(torch.autograd.Function):
    """Uses the kernel's symmetry: one matrix product in the backward pass instead of two."""

    @staticmethod
    def forward(ctx: FunctionCtx, z: Tensor) -> Tensor:
        left, right = exponent_factors(z, z)
        with no_autocast(z.device):
            kernel = _kernel(left, right)
        ctx.save_for_backward(z, kernel)
        return kernel

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> Tensor:
        z, kernel = ctx.saved_tensors  # type: ignore[attr-defined]
        grad_log = grad * kernel  # gradient of -‖z_i - z_j‖²
        both = grad_log + grad_log.mT
        with no_autocast(z.device):
            to_z: Tensor = both @ z - both.sum(-1, keepdim=True) * z
        return 2 * to_z


class _BlockMatmul(torch.autograd.Function):
    """Recomputes each block in the backward pass instead of storing it."""

    @staticmethod
    def forward(ctx: FunctionCtx, z_rows: Tensor, z_cols: Tensor, u: Tensor) -> Tensor:
        ctx.save_for_backward(z_rows, z_cols, u)
        return block_forward(z_rows, z_cols, u)

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return block_backward(grad, *ctx.saved_tensors)  # type: ignore[attr-defined]
