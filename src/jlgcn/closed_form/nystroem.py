"""Nyström features: a Gaussian kernel seen from some of the rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from jlgcn.closed_form.inputs import SHORTEST

#: Labelled nodes that others are compared with, at most.
MAX_LANDMARKS = 512

# Nodes that are compared with landmarks at a time, so that nothing as large as all inputs is made.
_NUM_COMPARED_AT_A_TIME = 4096

# Directions in which landmarks differ by less, of the most that they do, are rounding.
_MIN_VARIANCE = 1e-6

# Where a gradient is taken between no features and a node's own, and what it counts in the mean:
# Gauss and Legendre's rule, which is exact to rounding here.
_NODES, _SHARES = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(32))
_PLACES, _SHARES = (1 + _NODES) / 2, _SHARES / 2


@dataclass(frozen=True, eq=False)
class Landmarks:
    r"""Inputs compared with those of labelled nodes, for classes that no plane tells apart.

    .. math:: \phi(u) = k(u)^\top V \Lambda^{-1/2}, \qquad k_l(u) = \exp(-\gamma \|u - p_l\|^2)

    with VΛVᵀ the kernel among the landmarks p. A ridge regression on φ is one with the kernel: the
    same as on all labelled nodes if they are all landmarks.

    Attributes:
        points: p, (L, in_channels).
        gamma: γ.
        whitening: of the kernel, (L, rank).
    """

    points: Tensor
    gamma: float
    whitening: Tensor

    @classmethod
    def place(cls, inputs: Tensor, train: Tensor, gamma: float) -> Landmarks:
        """Place landmarks on labelled nodes, evenly over their list where they are many.

        Args:
            inputs: of all nodes, (N, in_channels).
            train: the labelled nodes, (M,).
            gamma: γ, in units of the inverse mean squared distance of landmarks.

        Cost: L³ FLOP, with L the least of M and 512.
        """
        count = min(len(train), MAX_LANDMARKS)
        places = torch.arange(count) * len(train) // count
        points = inputs[train[places]]
        distance = _squared_distance(points.double(), points.double())
        gamma = gamma / float(distance.mean().clamp(min=SHORTEST))
        values, vectors = torch.linalg.eigh((-gamma * distance).exp())
        is_kept = values > _MIN_VARIANCE * values[-1]
        whitening = vectors[:, is_kept] * values[is_kept].rsqrt()
        return cls(points, gamma, whitening.to(inputs.dtype))

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return φ of rows, (N, rank). Cost: 2·N·L·(in_channels + rank) FLOP."""
        compared = [
            _squared_distance(rows, self.points).mul_(-self.gamma).exp_() @ self.whitening
            for rows in inputs.split(_NUM_COMPARED_AT_A_TIME)
        ]
        return torch.cat(compared)

    def mean_gradient(self, row: Tensor, weight: Tensor) -> Tensor:
        r"""Return the mean gradient of φ(t·u)·W over t from 0 to 1.

        .. math:: G = \int_0^1 \frac{\partial}{\partial u} \phi(t u)^\top W \, dt,
            \qquad u^\top G = \phi(u)^\top W - \phi(0)^\top W

        so that a node's scores are a sum over all that its inputs are a sum of.

        Args:
            row: u, (in_channels,).
            weight: W, (rank, num_classes).

        Cost: 64·L·(in_channels + num_classes) FLOP, in float64.
        """
        points, weight = self.points.double(), (self.whitening @ weight).double()
        rows = _PLACES.unsqueeze(-1) * row.double()
        kernel = (-self.gamma * _squared_distance(rows, points)).exp() * _SHARES.unsqueeze(-1)
        here = row.double().unsqueeze(-1) * ((_PLACES @ kernel) @ weight)
        there = (points * kernel.sum(0).unsqueeze(-1)).mT @ weight
        return (2 * self.gamma * (there - here)).to(row.dtype)


def _squared_distance(x: Tensor, points: Tensor) -> Tensor:  # (N, L)
    # Seen from the points' mean: after long walks rows differ by little of their length, which
    # the difference of large squares would round away.
    center = points.mean(0)
    x, points = x - center, points - center
    lengths = x.square().sum(-1, keepdim=True)
    return torch.addmm(lengths + points.square().sum(-1), x, points.mT, alpha=-2).clamp_(min=0)
