"""Truncated SVD of dense or sparse features."""

from __future__ import annotations

from collections.abc import Callable

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
    if x.shape[0] < min(num_components, x.shape[1]):
        return _directions_of_few_rows(x, power)

    def gram(basis: Tensor | None) -> Tensor:
        if basis is not None:
            image = x @ basis
        elif isinstance(x, SparseFeatures):
            image = x @ torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
        else:
            image = x
        return image.double().mT @ image.double()

    return directions_by_products(
        lambda basis: x.mT @ (x @ basis),
        gram,
        x.shape[1],
        num_components,
        power=power,
        like=x.value if isinstance(x, SparseFeatures) else x,
    )


def directions_by_products(
    product: Callable[[Tensor], Tensor],
    gram: Callable[[Tensor | None], Tensor],
    num_features: int,
    num_components: int,
    *,
    like: Tensor,
    power: float = 1.0,
) -> Tensor:  # (in_channels, num_components)
    """Return :func:`principal_directions` of features that are seen by sums over rows alone.

    Args:
        product: returns Xᵀ (X Q) of a basis Q, (in_channels, K).
        gram: returns (X Q)ᵀ (X Q) in float64, of the identity for None.
        num_features: in_channels.
        num_components: number of singular vectors, at most the number of rows.
        like: a tensor of the dtype and device of the features.
        power: as there.
    """
    num_components = min(num_components, num_features)
    if num_features < 1024:
        square, vectors = torch.linalg.eigh(gram(None))
    else:
        generator = torch.Generator(like.device).manual_seed(0)
        basis = torch.randn(
            num_features,
            num_components + 10,
            generator=generator,
            dtype=like.dtype,
            device=like.device,
        )
        for _ in range(5):
            basis = torch.linalg.qr(product(torch.linalg.qr(basis).Q)).Q
        square, rotation = torch.linalg.eigh(gram(basis))
        vectors = basis.double() @ rotation
    square, vectors = square[-num_components:].flip(0), vectors[:, -num_components:].flip(1)
    length = _length(square)
    directions: Tensor = vectors * (length / length[0]) ** (power - 1)
    return directions.to(like.dtype)


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
