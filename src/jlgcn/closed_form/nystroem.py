"""Nyström approximation of a Gaussian (RBF) kernel, with labelled nodes as landmarks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

#: Most landmarks.
MAX_LANDMARKS = 512

#: γ of the kernel, in units of the inverse variance of the features.
GAMMA = 0.25

# Rows whose kernel is computed at a time, which bounds the memory.
_CHUNK_ROWS = 4096

# Eigenvalues of the landmarks' kernel below this share of the largest are rounding errors.
_MIN_EIGENVALUE = 1e-7


@dataclass(frozen=True, eq=False)
class Landmarks:
    r"""Kernel values with landmarks, for classes that are not linearly separable.

    .. math:: k_l(u) = \exp(-\gamma \|u - p_l\|^2)

    Attributes:
        points: p, (L, D).
        gamma: γ.
    """

    points: Tensor
    gamma: float

    @classmethod
    def place(cls, labeled: Tensor, variance: float) -> Landmarks:
        """Take up to 512 labelled nodes as landmarks, evenly spaced in their list.

        Args:
            labeled: features of the labelled nodes, (M, D).
            variance: total variance of the features of all nodes, which sets γ.
        """
        count = min(len(labeled), MAX_LANDMARKS)
        places = torch.arange(count, device=labeled.device) * len(labeled) // count
        return cls(labeled[places], GAMMA / max(variance, 1e-30))

    def whitening(self) -> Tensor:  # (L, rank), float64
        r"""Return V Λ^(-1/2), of the eigendecomposition of the kernel among the landmarks.

        Nyström features (`Williams & Seeger, 2001
        <https://papers.nips.cc/paper/1866-using-the-nystrom-method-to-speed-up-kernel-machines>`_)
        are :math:`\phi(u) = k(u)^\top V \Lambda^{-1/2}`: a linear classifier on them is one with
        the kernel, exact if all labelled nodes are landmarks.

        Cost: L³ FLOP.
        """
        points = self.points.double()
        values, vectors = torch.linalg.eigh((-self.gamma * _squared_distance(points, points)).exp())
        is_kept = values > _MIN_EIGENVALUE * values[-1]
        whitening: Tensor = vectors[:, is_kept] * values[is_kept].rsqrt()
        return whitening

    def scores(self, features: Tensor, weight: Tensor) -> Tensor:  # (N, C)
        """Return k(u)·W of rows, (N, D), for weights of the landmarks, (L, C).

        Cost: 2·N·L·(D + C) FLOP.
        """
        return torch.cat(
            [
                _squared_distance(rows, self.points).mul_(-self.gamma).exp_() @ weight
                for rows in features.split(_CHUNK_ROWS)
            ]
        )


def _squared_distance(x: Tensor, points: Tensor) -> Tensor:  # (N, L)
    # Centred: where rows differ by little of their norm, the difference of large squares cancels.
    center = points.mean(0)
    x, points = x - center, points - center
    squares = x.square().sum(-1, keepdim=True) + points.square().sum(-1)
    return torch.addmm(squares, x, points.mT, alpha=-2).clamp_(min=0)
