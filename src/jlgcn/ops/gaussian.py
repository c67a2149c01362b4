"""Matrix-free products with rectangular Gaussian kernel matrices, under every exact graph."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from jlgcn.ops.blocks import append_ones, block_backward, block_forward, block_matmul
from jlgcn.ops.flash import flash_backward, flash_forward, flash_works
from jlgcn.ops.operators import operator, register_autograd, register_fake
from jlgcn.ops.precision import centred, compute_dtype, without_denormals
from jlgcn.ops.shapes import common_batch

Method = Literal["auto", "flash", "blocks"]
METHODS: tuple[Method, ...] = ("auto", "flash", "blocks")

#: Flash attention pads rank and channels to one common width; above this width, blocks, which do
#: not pad, are faster (docs/decisions.md has the measurements).
MAX_FLASH_WIDTH = 64

#: Above this squared norm of a centred point, float32 weights have lost four digits.
MAX_SQUARED_NORM_FLOAT32 = 1e3

# Above this share of such points, the whole product is computed in float64.
_MAX_LARGE_SHARE = 0.2


def kernel_matmul(
    z_rows: Tensor,  # (*batch, M, S)
    z_cols: Tensor,  # (*batch, N, S)
    v: Tensor,  # (*batch, N, C)
    col_valid: Tensor | None = None,  # (*batch, N), bool
    *,
    method: Method = "auto",
) -> tuple[Tensor, Tensor]:  # (*batch, M, C), (*batch, M)
    r"""Multiply a Gaussian kernel matrix with a matrix without forming it; also return row sums.

    .. math::
        y_i = \sum_j k_{ij} v_j, \qquad d_i = \sum_j k_{ij}, \qquad
        k_{ij} = \exp(-\|z^{rows}_i - z^{cols}_j\|^2)

    Whole graphs, row shards of a process and new nodes attached to old ones all use this function.
    Rows and columns can be partitioned freely: products and degrees over column blocks add up.

    Args:
        z_rows: points of the rows, z = Rᵀf in the paper.
        z_cols: points of the columns; the same tensor for a whole graph.
        v: right-hand side; C = 0 computes the degrees only.
        col_valid: False marks padding columns, which contribute nothing, whatever they contain.
        method ("auto", "flash" or "blocks", default "auto"): "flash" uses PyTorch's flash-attention
            kernels and is once differentiable; "blocks" is plain PyTorch and twice differentiable.
            "auto" takes flash while max(S + 1, C) ≤ 64 and the device passes a self-check, else
            blocks. On a CPU it also computes in float64 where float32 would lose digits: for pairs
            with a point of squared norm above 1,000, or for all pairs if such points are many or in
            a batch. On an accelerator reading the norms would make the host wait in every call;
            pass float64 points there.

    Returns:
        The product, in the dtype of `v`, and the degrees, in float32 or better.

    Shapes: batch dimensions are broadcast.

    Precision: half precision is computed in float32. The relative error of a weight is at most
    8·eps·max(1, ‖z‖²), where z is centred on the mean of the columns. Weights below the smallest
    normal number, 1e-38 in float32, may become 0.

    Cost: time proportional to M·N·(S + C), memory to M + N, forward and backward.

    Example:
        >>> z = torch.tensor([[0.0], [1.0], [50.0]])
        >>> product, degree = kernel_matmul(z, z, torch.eye(3))
        >>> degree
        tensor([1.3679, 1.3679, 1.0000])
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, but it is {method!r}")
    _check_shapes(z_rows, z_cols, v, col_valid)
    dtype = compute_dtype(z_rows, z_cols, v)
    batches = [tensor.shape[:-2] for tensor in (z_rows, z_cols, v)]
    if col_valid is not None:
        batches.append(col_valid.shape[:-1])
    batch = common_batch(*batches)
    rows, cols, values = (
        tensor.to(dtype).expand(*batch, *tensor.shape[-2:]) for tensor in (z_rows, z_cols, v)
    )
    if col_valid is not None:
        col_valid = col_valid.expand(*batch, col_valid.shape[-1])
        values = values.masked_fill(~col_valid.unsqueeze(-1), 0)

    if method == "blocks" or rows.numel() == 0 or cols.numel() == 0:
        rows, cols = centred(rows, cols, col_valid)
        product = block_matmul(rows, cols, append_ones(values, col_valid))
        product, degree = product[..., :-1], product[..., -1]
    else:
        product, degree, _ = _forward(rows, cols, values, col_valid, method == "auto")
    return product.to(v.dtype if v.dtype.is_floating_point else dtype), degree


# Custom operators, opaque to torch.compile and torch.export: the algorithm depends on values (norms
# too large for float32?) and on the device (does flash attention pass its self-check?).


@operator(
    "kernel_matmul(Tensor z_rows, Tensor z_cols, Tensor v, Tensor? col_valid, bool guarded) "
    "-> (Tensor, Tensor, Tensor)"
)
@without_denormals()
def _forward(
    z_rows: Tensor, z_cols: Tensor, v: Tensor, col_valid: Tensor | None, guarded: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the product, the degree and the log-sum-exp that the backward pass needs."""
    total = v.new_zeros(*z_rows.shape[:-1], v.shape[-1] + 1)
    lse = v.new_full(z_rows.shape[:-1], -torch.inf)
    for part in _parts(z_rows, z_cols, col_valid, guarded):
        rows, cols, valid = _points(z_rows, z_cols, col_valid, part)
        values = _select(v, part.cols).to(rows.dtype)
        if not guarded or _prefers_flash(rows, values):
            product, degree, log_degree = flash_forward(rows, cols, values, valid)
            product = torch.cat([product, degree.unsqueeze(-1)], -1)
            # Not log(degree): far from all columns the degree underflows to 0, its log does not.
            places = slice(None) if part.rows is None else part.rows
            lse[..., places] = torch.logaddexp(lse[..., places], log_degree.to(lse.dtype))
        else:
            product = block_forward(rows, cols, append_ones(values, valid))
        _add(total, part.rows, product)
    # The results of a custom operator must not share memory.
    return total[..., :-1].clone(), total[..., -1].clone(), lse


@register_fake("kernel_matmul")
def _(z_rows: Tensor, z_cols: Tensor, v: Tensor, *_: object) -> tuple[Tensor, Tensor, Tensor]:
    degree = z_rows.new_empty(z_rows.shape[:-1])
    return z_rows.new_empty(*z_rows.shape[:-1], v.shape[-1]), degree, torch.empty_like(degree)


@operator(
    "kernel_matmul_backward(Tensor grad_product, Tensor grad_degree, Tensor z_rows, Tensor z_cols, "
    "Tensor v, Tensor? col_valid, Tensor lse, bool guarded) -> (Tensor, Tensor, Tensor)"
)
@without_denormals()
def _backward(
    grad_product: Tensor,
    grad_degree: Tensor,
    z_rows: Tensor,
    z_cols: Tensor,
    v: Tensor,
    col_valid: Tensor | None,
    lse: Tensor,
    guarded: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients with respect to z_rows, z_cols and v."""
    grad = torch.cat([grad_product, grad_degree.unsqueeze(-1)], dim=-1)
    totals = torch.zeros_like(z_rows), torch.zeros_like(z_cols), torch.zeros_like(v)
    for part in _parts(z_rows, z_cols, col_valid, guarded):
        rows, cols, valid = _points(z_rows, z_cols, col_valid, part)
        values = _select(v, part.cols).to(rows.dtype)
        d_out = _select(grad, part.rows).to(rows.dtype)
        if not guarded or _prefers_flash(rows, values):
            # Any upper bound of the part's log-sum-exp is valid; the whole row's is one.
            log_degree = _select(lse.unsqueeze(-1), part.rows).squeeze(-1).to(rows.dtype)
            gradients = flash_backward(
                d_out[..., :-1], d_out[..., -1], rows, cols, values, valid, log_degree
            )
        else:
            with torch.no_grad():  # create_graph=True enables recording, which is not supported
                to_rows, to_cols, to_u = block_backward(
                    d_out, rows, cols, append_ones(values, valid)
                )
            to_v = to_u[..., :-1] if valid is None else to_u[..., :-1] * valid.unsqueeze(-1)
            gradients = to_rows, to_cols, to_v
        for total, places, gradient in zip(
            totals, (part.rows, part.cols, part.cols), gradients, strict=True
        ):
            _add(total, places, gradient)
    return totals


@register_fake("kernel_matmul_backward")
def _(*arguments: Tensor) -> tuple[Tensor, ...]:
    return tuple(tensor.new_empty(tensor.shape) for tensor in arguments[2:5])


class _Part(NamedTuple):
    """A block of rows and columns (None for all) that is multiplied in one precision."""

    rows: Tensor | None = None
    cols: Tensor | None = None
    in_float64: bool = False


def _points(
    z_rows: Tensor, z_cols: Tensor, col_valid: Tensor | None, part: _Part
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the points of a part, centred on the mean of its columns, and its col_valid."""
    rows, cols = _select(z_rows, part.rows), _select(z_cols, part.cols)
    if part.in_float64:
        rows, cols = rows.double(), cols.double()
    if col_valid is not None and part.cols is not None:
        col_valid = col_valid.index_select(-1, part.cols)
    return *centred(rows, cols, col_valid), col_valid


def _parts(z_rows: Tensor, z_cols: Tensor, col_valid: Tensor | None, guarded: bool) -> list[_Part]:
    """Partition the kernel into a float32 part and, for points of large norm, float64 parts.

    The error of a weight grows with the larger norm of its two points. A few outliers should not
    make the whole product twice as slow, so their rows and columns are computed separately.
    """
    # On an accelerator the host would wait for the norms in every call.
    if not guarded or z_rows.dtype != torch.float32 or z_rows.device.type != "cpu":
        return [_Part()]
    rows, cols = centred(z_rows, z_cols, col_valid)
    is_large = [z.square().sum(-1) > MAX_SQUARED_NORM_FLOAT32 for z in (rows, cols)]
    shares = [float(part.double().mean()) for part in is_large]
    if max(shares) == 0:
        return [_Part()]
    if rows.dim() > 2 or max(shares) > _MAX_LARGE_SHARE:
        return [_Part(in_float64=True)]
    large_rows, large_cols = (part.nonzero().squeeze(-1) for part in is_large)
    small_rows, small_cols = ((~part).nonzero().squeeze(-1) for part in is_large)
    parts = [_Part(small_rows, small_cols)]
    if len(large_cols) > 0:
        parts.append(_Part(small_rows, large_cols, in_float64=True))
    if len(large_rows) > 0:
        parts.append(_Part(large_rows, None, in_float64=True))
    return parts


def _select(tensor: Tensor, places: Tensor | None) -> Tensor:
    return tensor if places is None else tensor.index_select(-2, places)


def _add(total: Tensor, places: Tensor | None, part: Tensor) -> None:
    if places is None:
        total += part.to(total.dtype)
    else:
        total.index_add_(-2, places, part.to(total.dtype))


def _prefers_flash(rows: Tensor, v: Tensor) -> bool:
    width = max(rows.shape[-1] + 1, v.shape[-1])
    return width <= MAX_FLASH_WIDTH and flash_works(rows.device, rows.dtype)


def _save_for_backward(
    ctx: FunctionCtx,
    inputs: tuple[Tensor, Tensor, Tensor, Tensor | None, bool],
    output: tuple[Tensor, Tensor, Tensor],
) -> None:
    z_rows, z_cols, v, col_valid, guarded = inputs
    ctx.save_for_backward(z_rows, z_cols, v, col_valid, output[2])  # type: ignore[arg-type]
    ctx.guarded = guarded  # type: ignore[attr-defined]


def _autograd_backward(
    ctx: FunctionCtx, grad_product: Tensor, grad_degree: Tensor, _: Tensor
) -> tuple[Tensor | None, ...]:
    z_rows, z_cols, v, col_valid, lse = ctx.saved_tensors  # type: ignore[attr-defined]
    guarded = ctx.guarded  # type: ignore[attr-defined]
    gradients = _backward(grad_product, grad_degree, z_rows, z_cols, v, col_valid, lse, guarded)
    return *gradients, None, None


def _refuse_second_derivative(ctx: FunctionCtx, *gradients: Tensor) -> None:
    raise RuntimeError(
        "flash attention is once differentiable, but a second derivative was requested; use "
        'method="blocks", which is twice differentiable'
    )


register_autograd("kernel_matmul", _autograd_backward, _save_for_backward)
register_autograd("kernel_matmul_backward", _refuse_second_derivative)


def _check_shapes(z_rows: Tensor, z_cols: Tensor, v: Tensor, col_valid: Tensor | None) -> None:
    if min(z_rows.dim(), z_cols.dim(), v.dim()) < 2:
        raise ValueError(
            "z_rows, z_cols and v must be matrices, (*batch, nodes, channels), but their shapes "
            f"are {tuple(z_rows.shape)}, {tuple(z_cols.shape)} and {tuple(v.shape)}; "
            "add a last dimension with .unsqueeze(-1)"
        )
    if z_rows.shape[-1] != z_cols.shape[-1]:
        raise ValueError(
            f"z_rows and z_cols must have the same number of dimensions, but they have "
            f"{z_rows.shape[-1]} and {z_cols.shape[-1]}; project both with the same metric"
        )
    if z_cols.shape[-2] != v.shape[-2]:
        raise ValueError(
            f"v must have a row for each of {z_cols.shape[-2]} columns of the kernel, but it has "
            f"{v.shape[-2]}; pass one row of v for each row of z_cols"
        )
    if col_valid is not None and (
        col_valid.dtype != torch.bool or col_valid.shape[-1:] != z_cols.shape[-2:-1]
    ):
        raise ValueError(
            f"col_valid must be bool with {z_cols.shape[-2]} entries, one for each column, but it "
            f"is {col_valid.dtype} of shape {tuple(col_valid.shape)}; pass a mask of z_cols"
        )
