"""Principal directions of features, dense or sparse."""

from __future__ import annotations

import torch
from torch import Tensor

from jlgcn.ops.features import SparseFeatures


def principal_directions(
    x: Tensor | SparseFeatures,  # (N, in_channels)
    num_components: int,
    power: float = 1.0,
) -> Tensor:  # (in_channels, min(num_components, in_channels))
    r"""Return the directions in which features are long, each divided by a power of its length.

    .. math:: X = U S V^\top, \qquad P = V S^{p - 1}, \qquad X P = U S^p

    Args:
        x: features; they are not centred, so that sparse ones stay sparse.
        num_components: how many directions.
        power: p.

    Cost: where in_channels is below 1,024, 2·N·in_channels² FLOP; above, ten products with
    `num_components` columns, which find the directions approximately, always the same ones.

    Example:
        >>> principal_directions(torch.tensor([[2.0, 0.0], [-2.0, 0.0]]), 1).abs()
        tensor([[1.],
                [0.]])
    """
    num_components = min(num_components, x.shape[1])
    if x.shape[1] < 1024:
        columns = x @ torch.eye(x.shape[1], dtype=x.dtype) if isinstance(x, SparseFeatures) else x
        square, vectors = torch.linalg.eigh(columns.double().mT @ columns.double())
    else:
        generator = torch.Generator().manual_seed(0)
        basis = torch.randn(x.shape[1], num_components + 10, generator=generator, dtype=x.dtype)
        transpose = x.mT
        for _ in range(5):
            basis = torch.linalg.qr(transpose @ (x @ torch.linalg.qr(basis).Q)).Q
        image = (x @ basis).double()
        square, rotation = torch.linalg.eigh(image.mT @ image)
        vectors = basis.double() @ rotation
    square, vectors = square[-num_components:].flip(0), vectors[:, -num_components:].flip(1)
    length = square.clamp(min=float(square[0]) * 1e-10 + 1e-30).sqrt()
    directions: Tensor = vectors * (length / length[0]) ** (power - 1)
    return directions.to(x.dtype)
