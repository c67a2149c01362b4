"""Principal directions of features, dense or sparse."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from jlgcn.ops.sparse_matrix import SparseFeatures

# Rows of the directions that are held in float64 at a time.
_CHUNK_FEATURES = 2**14


def principal_directions(
    x: Tensor | SparseFeatures,  # (N, in_channels)
    num_components: int,
    power: float = 1.0,
) -> Tensor:  # (in_channels, min(num_components, N, in_channels))
    r"""Return the directions in which features are long, each divided by a power of its length.

    .. math:: X = U S V^\top, \qquad P = V S^{p - 1}, \qquad X P = U S^p

    Args:
        x: features; they are not centred, so that sparse ones stay sparse.
        num_components: how many directions; the rank of X bounds their number, so there are never
            more than rows or columns.
        power: p.

    Cost: with fewer rows than `num_components` and in_channels, 4·N²·in_channels FLOP (the Gram
    matrix X Xᵀ, and Xᵀ times its eigenvectors); else, with in_channels below 1,024,
    2·N·in_channels² FLOP; else ten products with `num_components` columns (randomized range
    finder), which find the directions approximately, always the same ones.

    Example:
        >>> principal_directions(torch.tensor([[2.0, 0.0], [-2.0, 0.0]]), 1).abs()
        tensor([[1.],
                [0.]])
    """
    num_rows, num_features = x.shape
    if num_rows < min(num_components, num_features):
        return _directions_of_few_rows(x, power)
    num_components = min(num_components, num_features)
    if num_features < 1024:
        if isinstance(x, SparseFeatures):
            columns = x @ torch.eye(num_features, dtype=x.dtype, device=x.device)
        else:
            columns = x
        square, vectors = torch.linalg.eigh(columns.double().mT @ columns.double())
    else:
        generator = torch.Generator(x.device).manual_seed(0)
        basis = torch.randn(
            num_features, num_components + 10, generator=generator, dtype=x.dtype, device=x.device
        )
        transpose = x.mT
        for _ in range(5):
            basis = torch.linalg.qr(transpose @ (x @ torch.linalg.qr(basis).Q)).Q
        image = (x @ basis).double()
        square, rotation = torch.linalg.eigh(image.mT @ image)
        vectors = basis.double() @ rotation
    square, vectors = square[-num_components:].flip(0), vectors[:, -num_components:].flip(1)
    length = _length(square)
    directions: Tensor = vectors * (length / length[0]) ** (power - 1)
    return directions.to(x.dtype)


def _directions_of_few_rows(x: Tensor | SparseFeatures, power: float) -> Tensor:
    """Return all N directions, V = Xᵀ U S⁻¹, from the eigenvectors U of the N × N Gram matrix."""
    if isinstance(x, SparseFeatures):
        transpose = x.mT.to_scipy().astype(np.float64)
        gram = torch.from_numpy((transpose.T @ transpose).toarray())
    else:
        transpose = x.detach().mT.double().cpu().numpy()
        gram = torch.from_numpy(transpose.T @ transpose)
    square, vectors = (found.flip(-1) for found in torch.linalg.eigh(gram))
    length = _length(square)
    weight = (vectors / length * (length / length[0]) ** (power - 1)).numpy()
    directions = torch.empty(x.shape[1], x.shape[0], dtype=x.dtype, device="cpu")
    for start in range(0, x.shape[1], _CHUNK_FEATURES):
        stop = start + _CHUNK_FEATURES
        directions[start:stop] = torch.from_numpy(transpose[start:stop] @ weight)
    return directions.to(x.device)


def _length(square: Tensor) -> Tensor:
    return square.clamp(min=square[0] * 1e-10 + 1e-30).sqrt()
