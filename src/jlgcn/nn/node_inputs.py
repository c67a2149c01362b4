"""What a classifier sees of nodes: features after they were spread and before, and kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

#: What a classifier sees of a node, see :class:`jlgcn.nn.ClosedFormOptions`.
Inputs = Literal["leveled", "unit", "unit with own", "unit with own and neighbors"]

# Rows that are shorter are not made longer than 1 by division.
_SHORTEST = 1e-30

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


def check_inputs(inputs: str) -> None:
    """Refuse what is no kind of a classifier's inputs."""
    if inputs not in get_args(Inputs):
        choices = ", ".join(get_args(Inputs))
        raise ValueError(f"inputs must be one of {choices}, but it is {inputs!r}")


def num_blocks(kind: Inputs) -> int:
    """Return how many rows of features a node's inputs are made of."""
    return {"unit with own": 2, "unit with own and neighbors": 3}.get(kind, 1)


def inputs_of(
    kind: Inputs,
    spread: Tensor,  # (N, num_components)
    degree: Tensor,  # (N,)
    own: Tensor | None = None,  # (N, num_components)
    neighbors: Tensor | None = None,  # (N, num_components)
) -> Tensor:  # (N, num_blocks · num_components)
    """Return what a classifier sees of nodes, see :class:`ClosedFormOptions`.

    Far from their start, all walks tell the same of a node: the square root of its degree. So this
    is taken away, by itself or with the length of the whole row.

    Args:
        kind: of inputs.
        spread: features after they were spread.
        degree: of the graph they were spread over.
        own: features before; None where they are not seen.
        neighbors: sums of these over given edges; None where they are not seen.
    """
    if kind == "leveled":
        return spread / degree.sqrt().unsqueeze(-1)
    blocks = [block for block in (spread, own, neighbors)[: num_blocks(kind)] if block is not None]
    widths = [block.shape[-1] for block in blocks]
    inputs = spread.new_empty(*spread.shape[:-1], sum(widths))
    for place, block in zip(inputs.split(widths, dim=-1), blocks, strict=True):
        torch.div(block, length_of(block), out=place)  # not in a place of its own, and then copied
    return inputs


def unit_rows(x: Tensor) -> Tensor:
    """Return rows of length 1; rows of zeros stay so."""
    return x / length_of(x)


def length_of(x: Tensor) -> Tensor:  # (..., 1)
    """Return the lengths of rows, to divide by."""
    length: Tensor = x.norm(dim=-1, keepdim=True)
    return length.clamp(min=_SHORTEST)


@dataclass(frozen=True, eq=False)
class Landmarks:
    r"""Inputs compared with those of labelled nodes, for classes that no plane tells apart.

    .. math:: \phi(u) = k(u)^\top V \Lambda^{-1/2}, \qquad k_l(u) = \exp(-\rho \|u - p_l\|^2)

    with VΛVᵀ the kernel among the landmarks p. A ridge regression on φ is one with the kernel: the
    same as on all labelled nodes if they are all landmarks.

    Attributes:
        points: p, (L, in_channels).
        decay: ρ.
        whitening: of the kernel, (L, rank).
    """

    points: Tensor
    decay: float
    whitening: Tensor

    @classmethod
    def place(cls, inputs: Tensor, train: Tensor, decay: float) -> Landmarks:
        """Place landmarks on labelled nodes, evenly over their list where they are many.

        Args:
            inputs: of all nodes, (N, in_channels).
            train: the labelled nodes, (M,).
            decay: ρ, in units of the mean squared distance of landmarks.

        Cost: L³ FLOP, with L the least of M and 512.
        """
        count = min(len(train), MAX_LANDMARKS)
        places = torch.arange(count) * len(train) // count
        points = inputs[train[places]]
        distance = _squared_distance(points.double(), points.double())
        decay = decay / float(distance.mean().clamp(min=_SHORTEST))
        values, vectors = torch.linalg.eigh((-decay * distance).exp())
        is_kept = values > _MIN_VARIANCE * values[-1]
        whitening = vectors[:, is_kept] * values[is_kept].rsqrt()
        return cls(points, decay, whitening.to(inputs.dtype))

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return φ of rows, (N, rank). Cost: 2·N·L·(in_channels + rank) FLOP."""
        compared = [
            _squared_distance(rows, self.points).mul_(-self.decay).exp_() @ self.whitening
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
        kernel = (-self.decay * _squared_distance(rows, points)).exp() * _SHARES.unsqueeze(-1)
        here = row.double().unsqueeze(-1) * ((_PLACES @ kernel) @ weight)
        there = (points * kernel.sum(0).unsqueeze(-1)).mT @ weight
        return (2 * self.decay * (there - here)).to(row.dtype)


def _squared_distance(x: Tensor, points: Tensor) -> Tensor:  # (N, L)
    # Seen from the points' mean: after long walks rows differ by little of their length, which
    # the difference of large squares would round away.
    center = points.mean(0)
    x, points = x - center, points - center
    lengths = x.square().sum(-1, keepdim=True)
    return torch.addmm(lengths + points.square().sum(-1), x, points.mT, alpha=-2).clamp_(min=0)
