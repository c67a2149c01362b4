"""Why two nodes are joined, and why a node is what it is: sums taken apart exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from jlgcn.nn.learner import GraphLearner
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


@dataclass(frozen=True, eq=False)
class NodeExplanation:
    """What the scores of one node's classes are made of.

    All scores are against the mean of the classes, which is all that a probability depends on, and
    `bias`, `own`, `learned` and `given` sum to `scores`.

    Attributes:
        scores: of the classes, (num_classes,).
        bias: what any node has, (num_classes,).
        own: what the node's own features add, (num_classes,).
        neighbors: nodes that it is joined with, (K,), int64.
        learned: what each of them adds over its learned edge, (K, num_classes).
        given: what each of them adds over its given edge, (K, num_classes).
    """

    scores: Tensor
    bias: Tensor
    own: Tensor
    neighbors: Tensor
    learned: Tensor
    given: Tensor

    def __repr__(self) -> str:
        best = int(self.scores.argmax())
        learned, given = (float(part[:, best].sum()) for part in (self.learned, self.given))
        return (
            f"NodeExplanation(class {best} with {float(self.scores[best]):+.3g}: bias "
            f"{float(self.bias[best]):+.3g}, own features {float(self.own[best]):+.3g}, learned "
            f"edges {learned:+.3g}, given edges {given:+.3g})"
        )


@torch.no_grad()
def explain_edge(
    learner: GraphLearner,
    first: Tensor,  # (in_channels,)
    second: Tensor,  # (in_channels,)
) -> EdgeExplanation:
    r"""Take the learned distance of two nodes apart, by directions and by features.

    With δ = f_i - f_j and M = RRᵀ,

    .. math::
        \|R^\top \delta\|^2 = \sum_s (R^\top \delta)_s^2 = \sum_k \delta_k (M \delta)_k

    Both sums are exact, not approximations around a point. Where two nodes agree in a feature, it
    adds nothing.

    Args:
        learner: the metric.
        first: features of one node, as the learner sees them.
        second: features of the other.

    Cost: 4·in_channels·rank FLOP, in float64.

    Example:
        >>> learner = GraphLearner(2, 2, metric_init="identity")
        >>> explain_edge(learner, torch.tensor([0.0, 1.0]), torch.tensor([2.0, 1.0])).features
        tensor([4., 0.], dtype=torch.float64)
    """
    for name, row in (("first", first), ("second", second)):
        if row.shape != (learner.in_channels,):
            raise ValueError(
                f"{name} must be the {learner.in_channels} features of one node, but its shape is "
                f"{tuple(row.shape)}"
            )
    return take_apart(first, second, learner.metric.weight.T)


@torch.no_grad()
def feature_importance(
    learner: GraphLearner,
    x: Tensor,  # (N, in_channels)
) -> Tensor:  # (in_channels,)
    r"""Return what each feature adds to the squared distance of two nodes, on average over pairs.

    The mean of :func:`explain_edge`'s contributions over all ordered pairs of nodes, a node with
    itself among them:

    .. math::
        \frac{1}{N^2} \sum_{ij} \delta_k (M \delta)_k = 2\, (M \Sigma)_{kk}

    with Σ the features' covariance. They sum to the mean squared distance.

    Args:
        learner: the metric.
        x: features of all nodes, as the learner sees them.

    Cost: 4·N·in_channels·rank FLOP; no pair is visited.

    Example:
        >>> learner = GraphLearner(2, 2, metric_init="identity")
        >>> feature_importance(learner, torch.tensor([[0.0, 7.0], [2.0, 7.0]]))
        tensor([2., 0.], dtype=torch.float64)
    """
    return mean_contributions(x, learner.metric.weight.T)


def take_apart(
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
    """Return the mean over all pairs of what :func:`take_apart` finds for each feature."""
    metric, num_nodes = metric.double(), x.shape[0]
    if isinstance(x, SparseFeatures):  # which centring would fill
        x = x.map(Tensor.double)
        mean = (x.mT @ torch.ones(num_nodes, 1, dtype=x.dtype)).squeeze(-1) / num_nodes
        variance = x.mT.square_norms() / num_nodes - mean.square()
    else:
        x = x.double() - x.double().mean(0)
        variance = x.square().mean(0)
    z = x @ metric
    covariance = x.mT @ (z - z.mean(0)) / num_nodes  # (in_channels, rank), ΣR
    return 2 * (euclidean * variance + (metric * covariance).sum(-1))
