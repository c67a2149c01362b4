"""Truncated SVD of dense or sparse features."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from jlgcn.ops.sparse_matrix import SparseFeatures

# Rows of V per chunk in float64.
_CHUNK_FEATURES = 2**14


def principal_directions(
    x: Tensor | SparseFeatures,  # (N, in_channels)
    num_components: int,
    power: float = 1.0,
) -> Tensor:  # (in_channels, min(num_components, N, in_channels))
    r"""Return the leading right singular vectors, scaled by a power of their singular values.

    .. math:: X = U S V^\top, \qquad P = V S^{p - 1}, \qquad X P = U S^p

    Args:
        x: features; not centred, so that sparse features stay sparse.
        num_components (int ≥ 1): number of singular vectors, at most min(N, in_channels).
        power (float, default 1.0): p; 1 gives principal components X P = U S, 0 whitens them.

    Cost: for N < min(num_components, in_channels), 4·N²·in_channels FLOP (eigenvectors of the Gram
    matrix X Xᵀ); else, for in_channels < 1,024, 2·N·in_channels² FLOP (eigenvectors of XᵀX); else
    ten products with num_components + 10 columns (randomized SVD with power iterations, Halko et
    al., 2011), with a fixed seed.

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
    """Return all N right singular vectors V = Xᵀ U S⁻¹ from the Gram matrix X Xᵀ = U S² Uᵀ."""
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
