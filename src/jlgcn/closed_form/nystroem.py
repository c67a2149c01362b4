"""Nyström approximation of a Gaussian (RBF) kernel, with labelled nodes as landmarks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from jlgcn.closed_form.inputs import SHORTEST

#: Most landmarks.
MAX_LANDMARKS = 512

# Rows whose kernel is computed at a time, which bounds the memory.
_CHUNK_ROWS = 4096

# Eigenvalues of the landmarks' kernel below this share of the largest are rounding errors.
_MIN_EIGENVALUE = 1e-6

# Gauss-Legendre nodes of the integral in `integrated_gradient`; exact to rounding for our kernels.
_QUADRATURE_NODES = 32


@dataclass(frozen=True, eq=False)
class Landmarks:
    r"""Nyström features of a Gaussian kernel, for classes that are not linearly separable.

    `Williams & Seeger, 2001
    <https://papers.nips.cc/paper/1866-using-the-nystrom-method-to-speed-up-kernel-machines>`_:

    .. math:: \phi(u) = k(u)^\top V \Lambda^{-1/2}, \qquad k_l(u) = \exp(-\gamma \|u - p_l\|^2)

    where VΛVᵀ is the eigendecomposition of the kernel among the landmarks p. Ridge regression on φ
    is kernel ridge regression, exact if all labelled nodes are landmarks.

    Attributes:
        points: p, (L, in_channels).
        gamma: γ.
        whitening: V Λ^(-1/2), (L, rank).
    """

    points: Tensor
    gamma: float
    whitening: Tensor

    @classmethod
    def place(cls, inputs: Tensor, train: Tensor, gamma: float) -> Landmarks:
        """Take up to 512 labelled nodes as landmarks, evenly spaced in their list.

        Args:
            inputs: classifier inputs of all nodes, (N, in_channels).
            train: labelled nodes, (M,).
            gamma: γ, in units of the inverse mean squared distance of landmarks.

        Cost: L³ FLOP, with L = min(M, 512).
        """
        count = min(len(train), MAX_LANDMARKS)
        places = torch.arange(count, device=train.device) * len(train) // count
        points = inputs[train[places]]
        distance = _squared_distance(points.double(), points.double())
        gamma = gamma / float(distance.mean().clamp(min=SHORTEST))
        values, vectors = torch.linalg.eigh((-gamma * distance).exp())
        is_kept = values > _MIN_EIGENVALUE * values[-1]
        whitening = vectors[:, is_kept] * values[is_kept].rsqrt()
        return cls(points, gamma, whitening.to(inputs.dtype))

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return φ of rows, (N, rank). Cost: 2·N·L·(in_channels + rank) FLOP."""
        features = [
            _squared_distance(rows, self.points).mul_(-self.gamma).exp_() @ self.whitening
            for rows in inputs.split(_CHUNK_ROWS)
        ]
        return torch.cat(features)

    def integrated_gradient(self, row: Tensor, weight: Tensor) -> Tensor:
        r"""Return the integrated gradient of φ(u)·W on the path from 0 to u.

        Integrated gradients (`Sundararajan et al., 2017 <https://arxiv.org/abs/1703.01365>`_),

        .. math:: G = \int_0^1 \frac{\partial}{\partial u} \phi(t u)^\top W \, dt,
            \qquad u^\top G = \phi(u)^\top W - \phi(0)^\top W

        attribute the scores of a node linearly to its inputs.

        Args:
            row: u, (in_channels,).
            weight: W, (rank, num_classes).

        Cost: 64·L·(in_channels + num_classes) FLOP, in float64.
        """
        nodes, quadrature = (
            torch.from_numpy(part).to(row.device)
            for part in np.polynomial.legendre.leggauss(_QUADRATURE_NODES)
        )
        steps, quadrature = (1 + nodes) / 2, quadrature / 2  # from [-1, 1] to [0, 1]
        points, weight = self.points.double(), (self.whitening @ weight).double()
        rows = steps.unsqueeze(-1) * row.double()
        kernel = (-self.gamma * _squared_distance(rows, points)).exp() * quadrature.unsqueeze(-1)
        at_row = row.double().unsqueeze(-1) * ((steps @ kernel) @ weight)
        at_points = (points * kernel.sum(0).unsqueeze(-1)).mT @ weight
        return (2 * self.gamma * (at_points - at_row)).to(row.dtype)


def _squared_distance(x: Tensor, points: Tensor) -> Tensor:  # (N, L)
    # Centred: diffused rows differ by little of their norm, and the difference of large squares
    # would cancel.
    center = points.mean(0)
    x, points = x - center, points - center
    squares = x.square().sum(-1, keepdim=True) + points.square().sum(-1)
    return torch.addmm(squares, x, points.mT, alpha=-2).clamp_(min=0)
