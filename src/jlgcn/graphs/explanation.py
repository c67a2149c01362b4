"""Why two nodes are joined: a learned distance taken apart exactly, by directions and features."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from jlgcn.ops import SparseFeatures


@dataclass(frozen=True, eq=False)
class EdgeExplanation:
    """What a learned weight is made of.

    Attributes:
        squared_distance: ‖Rᵀ(f_i - f_j)‖², the sum of `directions`, and of `features`.
        weight: exp(-squared_distance).
        directions: what each direction of the metric adds, (rank,), not negative.
        features: what each input feature adds, (in_channels,). A negative one makes the nodes more
            alike than the others alone would: it offsets differences in correlated features.
    """

    squared_distance: float
    weight: float
    directions: Tensor
    features: Tensor

    def __repr__(self) -> str:
        return (
            f"EdgeExplanation(weight {self.weight:.3g}, squared distance "
            f"{self.squared_distance:.3g} over {len(self.features):,} features)"
        )


def decompose_distance(
    first: Tensor,  # (in_channels,)
    second: Tensor,  # (in_channels,)
    metric: Tensor,  # (in_channels, rank)
    euclidean: float | None = None,
) -> EdgeExplanation:
    r"""Take a distance apart whose metric is :math:`M = R R^\top`, or that plus a multiple of I.

    Args:
        first: features of one node.
        second: features of the other.
        metric: R.
        euclidean: what I is multiplied by; it is then the first of the directions. None for none.
    """
    difference, metric = first.double() - second.double(), metric.double()
    projected = difference @ metric
    directions, features = projected.square(), difference * (metric @ projected)
    if euclidean is not None:
        own = euclidean * difference.square()
        directions, features = torch.cat([own.sum().unsqueeze(0), directions]), features + own
    distance = float(directions.sum())
    return EdgeExplanation(distance, math.exp(-distance), directions, features)


def mean_contributions(
    x: Tensor | SparseFeatures,  # (N, in_channels)
    metric: Tensor,  # (in_channels, rank)
    euclidean: float = 0.0,
) -> Tensor:  # (in_channels,)
    """Return the mean over all pairs of what :func:`decompose_distance` finds for each feature."""
    metric, num_nodes = metric.double(), x.shape[0]
    if isinstance(x, SparseFeatures):  # which centring would fill
        x = x.map(Tensor.double)
        mean = (x.mT @ x.value.new_ones(num_nodes, 1)).squeeze(-1) / num_nodes
        variance = x.mT.square_norms() / num_nodes - mean.square()
    else:
        x = x.double() - x.double().mean(0)
        variance = x.square().mean(0)
    z = x @ metric
    covariance = x.mT @ (z - z.mean(0)) / num_nodes  # (in_channels, rank), ΣR
    return 2 * (euclidean * variance + (metric * covariance).sum(-1))
