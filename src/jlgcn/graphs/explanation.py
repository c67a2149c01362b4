"""Exact decomposition of a learned squared distance by metric directions and input features."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from jlgcn.ops import SparseFeatures


@dataclass(frozen=True, eq=False)
class EdgeExplanation:
    """The additive decomposition of the squared distance behind a learned edge weight.

    Attributes:
        squared_distance: ‖Rᵀ(f_i - f_j)‖², the sum of `directions` and also of `features`.
        weight: exp(-squared_distance).
        directions: contribution of each direction of the metric, (rank,), non-negative.
        features: contribution of each input feature, (in_channels,). A negative contribution
            reduces the distance: it offsets differences in correlated features.
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
    r"""Decompose a squared distance under the metric :math:`M = R R^\top + c I`.

    Args:
        first: features of one node.
        second: features of the other node.
        metric: R.
        euclidean (float or None, default None): c; its contribution is then the first direction.
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
    """Return the contribution of each feature (:func:`decompose_distance`), averaged over pairs."""
    metric, num_nodes = metric.double(), x.shape[0]
    if isinstance(x, SparseFeatures):  # centring would make them dense
        x = x.map(Tensor.double)
        mean = (x.mT @ x.value.new_ones(num_nodes, 1)).squeeze(-1) / num_nodes
        variance = x.mT.square_norms() / num_nodes - mean.square()
    else:
        x = x.double() - x.double().mean(0)
        variance = x.square().mean(0)
    z = x @ metric
    covariance = x.mT @ (z - z.mean(0)) / num_nodes  # (in_channels, rank), ΣR
    return 2 * (euclidean * variance + (metric * covariance).sum(-1))
