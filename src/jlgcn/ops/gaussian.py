"""The one rectangular primitive under every exact learned graph."""

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

#: Flash pads rank and channels to one width and multiplies seven times with it; above this width
#: blocks, which multiply with each as it is, are faster (docs/decisions.md has the figures).
MAX_FLASH_WIDTH = 64

#: Above this squared length of a centred point, float32 has lost four digits of the weights.
MAX_SQUARED_NORM_FLOAT32 = 1e3

# Above this share of points beyond it, everything is multiplied in float64.
_MAX_LONG_SHARE = 0.2


def kernel_matmul(
    z_rows: Tensor,  # (*batch, M, S)
    z_cols: Tensor,  # (*batch, N, S)
    v: Tensor,  # (*batch, N, C)
    col_valid: Tensor | None = None,  # (*batch, N), bool
    *,
    method: Method = "auto",
) -> tuple[Tensor, Tensor]:  # (*batch, M, C), (*batch, M)
    r"""Multiply the Gaussian kernel of two point sets with a matrix, and return its row sums too.

    .. math::
        y_i = \sum_j k_{ij} v_j, \qquad d_i = \sum_j k_{ij}, \qquad
        k_{ij} = \exp(-\|z^{rows}_i - z^{cols}_j\|^2)

    Whole graphs, row shards of a process and new nodes against old ones
    are all calls of this function: rows may be split at will, and columns too, since products and
    degrees over parts of the columns add up.

    Args:
        z_rows: points of the rows, z = Rᵀf in the paper's letters.
        z_cols: points of the columns; the same tensor for a whole graph.
        v: right-hand side; it may have no columns, where only the degree is wanted.
        col_valid: False marks columns that are padding. They change nothing, whatever they hold.
        method: "flash" runs on PyTorch's attention kernels and can be differentiated once;
            "blocks" is plain torch and can be differentiated twice. "auto" is the fastest of them
            that is safe, differentiable once: flash while max(S + 1, C) ≤ 64, blocks above or where
            the device fails flash's self-check, and either in float64 where float32 would lose its
            digits: for pairs with a point of squared length above 1,000, or for all of them where
            such points are many or in a batch. Lengths are tested on a CPU only, since the host
            would wait for an accelerator; pass float64 there.

    Returns:
        The product, in the dtype of `v`, and the degree, in float32 or better.

    Shapes: batch dimensions are broadcast.

    Precision: half precision is computed in float32. Otherwise weights carry a relative error of
    at most 8·eps·max(1, ‖z‖²), where z is centred on the mean of the columns. What is below the
    smallest normal number, 1e-38 in float32, may count as 0.

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


# Custom operators, because what happens inside depends on values (are the points too long for
# float32?) and on state (does flash work here?): to torch.compile and torch.export they are opaque.


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
        values = _taken(v, part.cols).to(rows.dtype)
        if not guarded or _prefers_flash(rows, values):
            product, degree, log_degree = flash_forward(rows, cols, values, valid)
            product = torch.cat([product, degree.unsqueeze(-1)], -1)
            # Not the logarithm of the sum: far from all columns, a degree is 0 and this is not.
            places = slice(None) if part.rows is None else part.rows
            lse[..., places] = torch.logaddexp(lse[..., places], log_degree.to(lse.dtype))
        else:
            product = block_forward(rows, cols, append_ones(values, valid))
        _add(total, part.rows, product)
    # Results of an operator must not share memory.
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
    """Return the gradients with respect to the rows' points, the columns' points and v."""
    grad = torch.cat([grad_product, grad_degree.unsqueeze(-1)], dim=-1)
    totals = torch.zeros_like(z_rows), torch.zeros_like(z_cols), torch.zeros_like(v)
    for part in _parts(z_rows, z_cols, col_valid, guarded):
        rows, cols, valid = _points(z_rows, z_cols, col_valid, part)
        values = _taken(v, part.cols).to(rows.dtype)
        own = _taken(grad, part.rows).to(rows.dtype)
        if not guarded or _prefers_flash(rows, values):
            # Any log-sum-exp will do that is no less than that of the part: that of the whole row.
            log_degree = _taken(lse.unsqueeze(-1), part.rows).squeeze(-1).to(rows.dtype)
            gradients = flash_backward(
                own[..., :-1], own[..., -1], rows, cols, values, valid, log_degree
            )
        else:
            with torch.no_grad():  # create_graph=True switches recording on, but not in here
                to_rows, to_cols, to_u = block_backward(own, rows, cols, append_ones(values, valid))
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
    """Rows and columns, None for all, that are multiplied in one go."""

    rows: Tensor | None = None
    cols: Tensor | None = None
    in_float64: bool = False


def _points(
    z_rows: Tensor, z_cols: Tensor, col_valid: Tensor | None, part: _Part
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the points of a part, centred on its columns, and which of these are no padding."""
    rows, cols = _taken(z_rows, part.rows), _taken(z_cols, part.cols)
    if part.in_float64:
        rows, cols = rows.double(), cols.double()
    if col_valid is not None and part.cols is not None:
        col_valid = col_valid.index_select(-1, part.cols)
    return *centred(rows, cols, col_valid), col_valid


def _parts(z_rows: Tensor, z_cols: Tensor, col_valid: Tensor | None, guarded: bool) -> list[_Part]:
    """Return what is multiplied in float32 and what, for long points, in float64.

    The error of a weight grows with the longer of its two points. A few outliers among many would
    make everything twice as slow, so where they are few their rows and columns go by themselves.
    """
    # On an accelerator the host would wait for the lengths in every call.
    if not guarded or z_rows.dtype != torch.float32 or z_rows.device.type != "cpu":
        return [_Part()]
    rows, cols = centred(z_rows, z_cols, col_valid)
    is_long = [z.square().sum(-1) > MAX_SQUARED_NORM_FLOAT32 for z in (rows, cols)]
    shares = [float(part.double().mean()) for part in is_long]
    if max(shares) == 0:
        return [_Part()]
    if rows.dim() > 2 or max(shares) > _MAX_LONG_SHARE:
        return [_Part(in_float64=True)]
    long_rows, long_cols = (part.nonzero().squeeze(-1) for part in is_long)
    short_rows, short_cols = ((~part).nonzero().squeeze(-1) for part in is_long)
    parts = [_Part(short_rows, short_cols)]
    if len(long_cols) > 0:
        parts.append(_Part(short_rows, long_cols, in_float64=True))
    if len(long_rows) > 0:
        parts.append(_Part(long_rows, None, in_float64=True))
    return parts


def _taken(tensor: Tensor, places: Tensor | None) -> Tensor:
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
        "the flash kernel can be differentiated once, but a second derivative was asked for; "
        'use method="blocks", which can be differentiated twice'
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
            f"z_rows has {z_rows.shape[-1]} dimensions but z_cols has {z_cols.shape[-1]}; "
            "project both with the same metric"
        )
    if z_cols.shape[-2] != v.shape[-2]:
        raise ValueError(
            f"v has {v.shape[-2]} rows but z_cols has {z_cols.shape[-2]}; "
            "pass one row of v for each column of the kernel"
        )
    if col_valid is not None and (
        col_valid.dtype != torch.bool or col_valid.shape[-1:] != z_cols.shape[-2:-1]
    ):
        raise ValueError(
            f"col_valid must be bool with {z_cols.shape[-2]} entries, one for each column, but it "
            f"is {col_valid.dtype} of shape {tuple(col_valid.shape)}"
        )
