r"""Gaussian kernel products on PyTorch's flash-attention kernels (Dao et al., 2022).

The only file that calls private operators of PyTorch.

With queries :math:`q_i = [-1, 2 z_i, -\|z_i\|^2]` and keys :math:`k_j = [\|z_j\|^2, z_j, 1]`,

.. math:: \exp(-\|z_i - z_j\|^2) = \exp(q_i \cdot k_j),

so attention with scale 1, which returns the softmax average ``out`` and the log-sum-exp ``lse`` of
every row, gives the degree :math:`r = \exp(lse)` and the product :math:`r \odot out` without
storing the kernel. (The last entry of the query shifts a whole row and does not change the softmax;
it keeps ``lse`` between 0 and log N, where float32 is accurate.)

Backward. Attention's backward kernel forms
:math:`p_{ij} (\mathit{grad}_i \cdot v_j - \delta_i)` with
:math:`\delta_i = \mathit{grad}_i \cdot out_i`, the term that comes from the softmax's normaliser.
We have no normaliser: our entry is :math:`r_i p_{ij} (g_i \cdot v_j + h_i)` for gradients g of the
product and h of the degree. So we pass grad = r ⊙ g, and as ``out`` not the output but a tensor for
which :math:`\delta_i = -r_i h_i`: zero, except in one spare column in which grad is 1 and v is 0.
The gradient of the degree therefore costs nothing.

The operators are private to PyTorch and may change. A device and dtype uses them only after a
self-check at first use has compared a small product and its gradients with blocks.
"""

from __future__ import annotations

import functools
import math
import warnings

import torch
from torch import Tensor
from torch.nn.functional import pad

from jlgcn.ops.blocks import append_ones, block_backward, block_forward, exponent_factors

#: Replaces ‖z_j‖² of a padding column: its weight is exactly 0 and gradients stay finite.
_ABSENT = 1e30


def flash_forward(
    z_rows: Tensor,  # (*batch, M, S)
    z_cols: Tensor,  # (*batch, N, S)
    v: Tensor,  # (*batch, N, C)
    col_valid: Tensor | None = None,  # (*batch, N), bool
) -> tuple[Tensor, Tensor, Tensor]:  # (*batch, M, C), (*batch, M), (*batch, M)
    """Return the kernel product with v, the degrees and their logarithms (log-sum-exp).

    All arguments share batch dimensions and dtype, the points are centred, and padding is finite.
    Not recorded by autograd; :func:`flash_backward` has the gradients.

    Args:
        z_rows: points of the rows.
        z_cols: points of the columns.
        v: right-hand side; C = 0 computes the degrees only.
        col_valid: False marks padding columns.

    Cost: 4·M·N·D FLOP with D = max(S + 2, C + 1); memory linear in M + N.

    Example:
        >>> z = torch.tensor([[0.0], [1.0]])
        >>> product, degree, log_degree = flash_forward(z, z, torch.ones(2, 1))
        >>> degree
        tensor([1.3679, 1.3679])
    """
    q, k, value = _attention_inputs(z_rows, z_cols, v, col_valid)
    out, lse = _attention(q, k, value)
    lse = lse.reshape(z_rows.shape[:-1])
    degree = lse.exp()
    out = out.reshape(*z_rows.shape[:-1], q.shape[-1])
    return out[..., : v.shape[-1]] * degree.unsqueeze(-1), degree, lse


def flash_backward(
    grad_product: Tensor,  # (*batch, M, C)
    grad_degree: Tensor,  # (*batch, M)
    z_rows: Tensor,
    z_cols: Tensor,
    v: Tensor,
    col_valid: Tensor | None,
    lse: Tensor,  # (*batch, M)
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of :func:`flash_forward` with respect to z_rows, z_cols and v.

    Cost: 10·M·N·D FLOP with D as in :func:`flash_forward`; memory linear in M + N, on a CPU times
    the number of threads.
    """
    q, k, value = _attention_inputs(z_rows, z_cols, v, col_valid)
    degree = lse.exp().unsqueeze(-1)
    grad = torch.cat([grad_product * degree, torch.ones_like(degree)], dim=-1)
    grad = _as_heads(pad(grad, (0, q.shape[-1] - grad.shape[-1])))
    out = torch.zeros_like(grad)
    spare = v.shape[-1]
    out[..., spare : spare + 1] = _as_heads(-degree * grad_degree.unsqueeze(-1))
    dq, dk, dv = _attention_backward(grad, q, k, value, out, lse.reshape(grad.shape[:-1]))

    rank = z_rows.shape[-1]
    dq = dq.reshape(*z_rows.shape[:-1], -1)
    dk = dk.reshape(*z_cols.shape[:-1], -1)
    # Chain rule through the queries and keys. With e_ij the gradient of -‖z_i - z_j‖², the entry of
    # dq after those of z is Σ_j e_ij, and the first entry of dk is -Σ_i e_ij.
    grad_rows = 2 * (dq[..., 1 : rank + 1] - z_rows * dq[..., rank + 1 : rank + 2])
    grad_cols = dk[..., 1 : rank + 1] + 2 * z_cols * dk[..., :1]
    return grad_rows, grad_cols, dv[..., : v.shape[-1]].reshape(v.shape)


@functools.cache
def flash_works(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether flash attention agrees with blocks on `device`, in values and gradients.

    Checked once per process, device and dtype on a small rectangular problem with padding. Warns
    if the operators are missing or disagree; devices other than CPU and CUDA have none.

    Example:
        >>> flash_works(torch.device("cpu"), torch.float32)
        True
    """
    if device.type not in ("cpu", "cuda"):
        return False
    if device.type == "cuda" and dtype == torch.float64:
        return False  # the memory-efficient kernels have no float64
    try:
        error = self_check(device, dtype)
    except (AttributeError, RuntimeError, TypeError) as problem:
        reason = f"the operators failed ({str(problem).splitlines()[0]})"
    else:
        if error <= 1e3 * torch.finfo(dtype).eps:
            return True
        reason = f"results differ from blocks by {error:.1e}"
    warnings.warn(
        f"flash attention is not used for learned graphs on {device} in {dtype}: {reason} with "
        f"torch {torch.__version__}; the slower block algorithm is used instead. Please report the "
        "output of `jlgcn doctor`",
        RuntimeWarning,
        stacklevel=2,
    )
    return False


@torch.no_grad()
def self_check(device: torch.device, dtype: torch.dtype) -> float:
    """Return the largest error of flash values and gradients against blocks in float64.

    Example:
        >>> self_check(torch.device("cpu"), torch.float64) < 1e-13
        True
    """

    # Deterministic inputs: a check must not advance the caller's random generator.
    def waves(count: int, width: int, phase: float) -> Tensor:
        grid = torch.arange(count * width, dtype=torch.float64, device="cpu")
        return torch.sin(grid * 1.7 + phase).reshape(1, count, width).to(device, dtype)

    z_rows, z_cols, v = waves(37, 5, 0.0), waves(45, 5, 1.0), waves(45, 9, 2.0)
    grad_product, grad_degree = waves(37, 9, 3.0), waves(37, 1, 4.0)
    col_valid = torch.arange(45, device=device).unsqueeze(0) < 41

    product, degree, lse = flash_forward(z_rows, z_cols, v, col_valid)
    gradients = flash_backward(
        grad_product, grad_degree.squeeze(-1), z_rows, z_cols, v, col_valid, lse
    )
    rows, cols = z_rows.double(), z_cols.double()
    u = append_ones(v, col_valid).double()
    exact = block_forward(rows, cols, u)
    grad = torch.cat([grad_product, grad_degree], dim=-1).double()
    to_rows, to_cols, to_u = block_backward(grad, rows, cols, u)
    to_v = to_u[..., :-1] * col_valid.unsqueeze(-1)

    got = (product, degree.unsqueeze(-1), *gradients)
    expected = (exact[..., :-1], exact[..., -1:], to_rows, to_cols, to_v)
    return max(float((a - b).abs().max()) for a, b in zip(got, expected, strict=True))


# Points as queries, keys and values of attention.


def _attention_inputs(
    z_rows: Tensor, z_cols: Tensor, v: Tensor, col_valid: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values, each (batch, 1, ·, D).

    All share the last dimension D, which the flash kernel requires; it has room for v and one
    spare column (see the module docstring).
    """
    q, k = exponent_factors(z_rows, z_cols)
    if col_valid is not None:
        k[..., 0].masked_fill_(~col_valid, _ABSENT)
    width = max(q.shape[-1], v.shape[-1] + 1)
    if z_rows.is_cuda:
        width += -width % 8  # the CUDA kernels read 16 bytes at a time
    return (
        _as_heads(pad(q, (0, width - q.shape[-1]))),
        _as_heads(pad(k, (0, width - k.shape[-1]))),
        _as_heads(pad(v, (0, width - v.shape[-1]))),
    )


def _as_heads(tensor: Tensor) -> Tensor:
    """Flatten the batch dimensions and add one head: (*batch, N, D) to (batch, 1, N, D)."""
    return tensor.reshape(math.prod(tensor.shape[:-2]), 1, *tensor.shape[-2:])


# The private operators.


def _attention(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return softmax(q kᵀ) v and the log-sum-exp of the rows."""
    if q.is_cuda:
        out, lse, _, _ = torch.ops.aten._scaled_dot_product_efficient_attention(
            q, k, v, None, True, 0.0, False, scale=1.0
        )
        return out, lse[..., : q.shape[-2]].contiguous()
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, 0.0, False, scale=1.0
    )
    return out, lse


def _attention_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return attention's gradients with respect to q, k and v."""
    if q.is_cuda:
        # The kernel needs the log-sum-exp padded to whole warps, as its forward pass returns it.
        lse = pad(lse, (0, -lse.shape[-1] % 32))
        unused = torch.zeros((), dtype=torch.int64, device=q.device)  # no dropout, no random state
        dq, dk, dv, _ = torch.ops.aten._scaled_dot_product_efficient_attention_backward(
            grad, q, k, v, None, out, lse, unused, unused, 0.0, [True, True, True, False], False,
            scale=1.0,
        )  # fmt: skip
        return dq, dk, dv
    # On a CPU the backward kernel runs one thread per head. Rows are independent, so with fewer
    # graphs than threads the rows of a graph are split over several heads that share k and v.
    batch, _, num_rows, width = q.shape
    heads = min(-(-torch.get_num_threads() // batch), num_rows)
    rows_per_head = -(-num_rows // heads)
    num_padding = heads * rows_per_head - num_rows

    def split(tensor: Tensor) -> Tensor:
        return pad(tensor, (0, 0, 0, num_padding)).view(batch, heads, rows_per_head, -1)

    dq, dk, dv = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        split(grad),
        split(q),
        k.expand(-1, heads, -1, -1),
        v.expand(-1, heads, -1, -1),
        split(out),
        split(lse.unsqueeze(-1)).squeeze(-1),
        0.0,
        False,
        scale=1.0,
    )
    dq = dq.reshape(batch, 1, heads * rows_per_head, width)[:, :, :num_rows]
    return dq, dk.sum(1, keepdim=True), dv.sum(1, keepdim=True)
