"""Features of a network's first layer: a dense tensor, or sparse in CSR format."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import linear

from jlgcn._validation import as_input, check_projection
from jlgcn.ops import SparseFeatures
from jlgcn.ops.dropout import dropout

#: Features of nodes: (\*batch, N, in_channels), or sparse, (N, in_channels).
Features = Tensor | SparseFeatures


def as_features(x: Features, parameter: Tensor, in_channels: int) -> Features:
    """Validate features and convert them to the dtype of a network; sparse ones stay sparse.

    Args:
        x: features of any real dtype.
        parameter: a parameter of the network, for its device and dtype.
        in_channels: number of input features of the network.
    """
    if not isinstance(x, SparseFeatures):
        return as_input(x, parameter, in_channels)
    if x.shape[1] != in_channels or x.device != parameter.device:
        # For its errors, on a matrix of the same size without memory.
        as_input(torch.empty((), device=x.device).expand(x.shape), parameter, in_channels)
    return x if x.dtype == parameter.dtype else x.map(lambda value: value.to(parameter.dtype))


def drop(x: Features, p: float, training: bool = True) -> Features:
    """Apply dropout, to the entries of sparse features."""
    return dropout(x, p, training) if isinstance(x, Tensor) else x.dropout(p, training)


def product(x: Features, weight: Tensor) -> Tensor:
    """Return x Wᵀ for a weight of shape (out_channels, in_channels).

    Example:
        >>> x = torch.eye(2)
        >>> product(SparseFeatures.from_dense(x), torch.tensor([[1.0, 2.0]]))
        tensor([[1.],
                [2.]])
    """
    return linear(x, weight) if isinstance(x, Tensor) else x @ weight.mT


def rows_of(x: Features, start: int, stop: int) -> Features:
    """Return the rows from `start` up to `stop`.

    Example:
        >>> rows_of(torch.eye(3), 1, 2)
        tensor([[0., 1., 0.]])
    """
    if isinstance(x, Tensor):
        return x[start:stop]
    return SparseFeatures.from_scipy(x.to_scipy()[start:stop]).to(x.device)


def project(
    x: Features,
    weight: Tensor,  # (rank, in_channels)
    *,
    may_centre: bool,
) -> Tensor:  # (*batch, N, rank)
    """Return x Wᵀ, centred if the points are far from the origin, so that distances do not cancel.

    On an accelerator points are always centred: the test would synchronise with the device.

    Args:
        x: features.
        weight: metric.
        may_centre: False for a shard of the rows, whose mean is not that of all.
    """
    always_centres = may_centre and x.device.type != "cpu"
    z = _centred_product(x, weight) if always_centres else product(x, weight)
    check_projection(z, x if isinstance(x, Tensor) else x.value)
    if may_centre and not always_centres and is_far_away(z):
        z = _centred_product(x, weight)
    return z


def _centred_product(x: Features, weight: Tensor) -> Tensor:
    if isinstance(x, Tensor):
        return linear(x - x.mean(-2, keepdim=True), weight)
    # Sparse features would fill up: the difference of products instead, in float64.
    wide = x.map(Tensor.double) @ weight.mT.double()
    return (wide - wide.mean(0)).to(weight.dtype)


@torch.no_grad()
def is_far_away(z: Tensor) -> bool:
    """Whether the mean of the points is more than 100 times their standard deviation."""
    mean = z.mean(-2)
    spread = (z - mean.unsqueeze(-2)).square().sum(-1).mean(-1)
    return bool((mean.square().sum(-1) > 1e4 * spread).any()) and z.shape[-2] > 1
