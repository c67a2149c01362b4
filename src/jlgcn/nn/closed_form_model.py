"""What the closed form has learned: a metric, graphs, a classifier; for old nodes and new ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from jlgcn.graphs import SparseGraph
from jlgcn.nn.candidates import Candidates, Features, GraphChoice
from jlgcn.nn.explain import EdgeExplanation, NodeExplanation, mean_contributions, take_apart
from jlgcn.nn.suggest import most_telling_rows

Control = Literal["none", "random metric", "shuffled graph"]


@dataclass(frozen=True)
class ClosedFormOptions:
    """How :func:`fit_closed_form` learns.

    Where a choice is None, labels make it: each value that comes into question is tried in the
    first layer, whose graph no label has touched, and that is taken under which the labels of the
    validation nodes are most likely; without such nodes, those of training nodes, each predicted by
    all others, if they become more likely by more than a standard error.

    Attributes:
        num_layers: graphs that are learned one after another; the first by the features alone.
        num_neighbors: heaviest candidates that a node is joined with; None for 5, 10, 20 or 40.
        learned_degree: mean degree of a learned graph, where a given edge and a node's weight with
            itself are 1; None for 0.5, 1, 2 or 4 beside a given graph, and 7 without one.
        given_decay: how fast a given edge loses weight with the learned distance of its ends. 0
            trusts all given edges alike; None for 0, 0.25, 0.5, 1, 2 or 4.
        num_candidates: nearest rows among which a learned metric may choose.
        metric_weight: γ, mean squared length of what a learned metric adds to a node.
        restart: of the random walk that spreads features, see :func:`jlgcn.graphs.diffuse`; None
            for 0.01, 0.05, 0.2 or 0.8. The larger, the more a node's own features count.
        num_components: principal directions of the features that are spread.
        component_power: see :func:`jlgcn.ops.principal_directions`; below 1, short directions count
            more than their length says.
        tolerance: of the spreading.
        control: what is done to find out what learning is worth. "random metric" replaces every R
            by a random one of the same length, "shuffled graph" gives every learned graph's places
            to other nodes.

    Example:
        >>> ClosedFormOptions(num_neighbors=10).num_neighbors
        10
    """

    num_layers: int = 3
    num_neighbors: int | None = None
    learned_degree: float | None = None
    given_decay: float | None = None
    num_candidates: int = 100
    metric_weight: float = 0.1
    restart: float | None = None
    num_components: int = 256
    component_power: float = 1.0
    tolerance: float = 1e-2
    control: Control = "none"

    def __post_init__(self) -> None:
        if self.control not in get_args(Control):
            choices = ", ".join(get_args(Control))
            raise ValueError(f"control must be one of {choices}, but it is {self.control!r}")
        for name in ("num_layers", "num_neighbors", "num_candidates", "num_components"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, but it is {value}")
        for name in ("learned_degree", "given_decay", "metric_weight"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ValueError(f"{name} must not be negative, but it is {value}")
        if self.restart is not None and not 0 < self.restart <= 1:
            raise ValueError(f"restart must be above 0 and at most 1, but it is {self.restart}")


class ClosedFormLayer(NamedTuple):
    """One learned graph and what was predicted with it.

    Attributes:
        metric: R, (in_channels, num_classes); 0 in the first layer.
        learned: the learned graph, not normalised.
        logits: scores of the classes, (N, num_classes).
        loss: cross-entropy of labels that were not learned from, see :class:`ClosedFormOptions`.
    """

    metric: Tensor
    learned: SparseGraph
    logits: Tensor
    loss: float


@dataclass(frozen=True, eq=False)
class ClosedFormJLGCN:
    """A learned metric, the graph it makes, and a classifier; see :func:`fit_closed_form`.

    Attributes:
        options: how it was learned.
        choice: what the labels chose of it.
        candidates: features, and pairs that a metric may join.
        layers: one for each learned graph.
        graph: the last learned graph, the given one and self-loops, added.
        learned_scale: what learned weights were multiplied by in this sum.
        projection: from features to what is spread, (in_channels, num_components).
        spread: features after spreading over `graph`, (N, num_components).
        weight: of the classifier, (num_components, num_classes).
        bias: of the classifier, (num_classes,).
        train: nodes that were learned from, (M,), int64.
        labels: their classes, (M,), int64.
    """

    options: ClosedFormOptions
    choice: GraphChoice
    candidates: Candidates
    layers: tuple[ClosedFormLayer, ...]
    graph: SparseGraph
    learned_scale: float
    projection: Tensor
    spread: Tensor
    weight: Tensor
    bias: Tensor
    train: Tensor
    labels: Tensor

    @property
    def logits(self) -> Tensor:
        """Scores of the classes of all nodes, (N, num_classes)."""
        return self.layers[-1].logits

    def __repr__(self) -> str:
        nodes, classes = self.logits.shape
        return f"ClosedFormJLGCN({nodes:,} nodes, {classes} classes, {len(self.layers)} layers)"

    @torch.no_grad()
    def predict(
        self,
        x: Features,  # (M, in_channels)
        edges: Tensor | None = None,  # (2, E), int64
    ) -> Tensor:  # (M, num_classes)
        r"""Return the scores of new nodes, each attached to the graph by itself.

        A new node u takes its nearest old ones under the last metric as neighbours, besides those
        that are known, and then the features that the equation of the spreading asks for, with the
        old nodes as they are:

        .. math:: h_u = \alpha x_u + (1 - \alpha) \Big(b_{uu} h_u + \sum_j b_{uj} h_j\Big)

        Args:
            x: features of the new nodes, scaled as the old ones were.
            edges: the number of the new node, from 0, and that of the old one, of each given edge.

        Cost: a search for neighbours, and M·num_neighbors·num_components FLOP; nothing grows with
        M·N.
        """
        metric = self.layers[-1].metric
        row, col, weight = self.candidates.attach(x, metric, self.choice, self.learned_scale, edges)
        degree = weight.new_ones(x.shape[0]).index_add(0, row, weight)
        weight = weight * degree[row].rsqrt() * self.graph.degree()[col].rsqrt()
        # A sparse product, because a row of features for every edge would not fit in memory.
        size = (x.shape[0], self.spread.shape[0])
        pairs = torch.stack([row, col])
        rows = torch.sparse_coo_tensor(pairs, weight, size, check_invariants=False)
        walk = 1 - self.choice.restart
        h = self.choice.restart * (x @ self.projection) + walk * (rows @ self.spread)
        h = h / (1 - walk / degree).unsqueeze(-1)
        return leveled(h, degree) @ self.weight + self.bias

    @torch.no_grad()
    def explain_edge(
        self,
        first: Tensor,  # (in_channels,)
        second: Tensor,  # (in_channels,)
        layer: int = -1,
    ) -> EdgeExplanation:
        r"""Take the learned distance of two nodes apart, by directions and by features.

        .. math:: d^2 = \sum_k \delta_k^2 / u + \sum_c (R^\top \delta)_c^2
            = \sum_k \delta_k \, (\delta / u + R R^\top \delta)_k

        Args:
            first: scaled features of one node.
            second: those of the other.
            layer: of whose metric.

        Returns:
            An explanation whose first direction is the Euclidean distance, and the others those in
            which the classes, one after another, are told apart.

        Cost: 4·in_channels·num_classes FLOP, in float64.
        """
        metric = self.layers[layer].metric
        return take_apart(first, second, metric, 1 / self.candidates.unit)

    @torch.no_grad()
    def explain_node(self, node: int) -> NodeExplanation:
        r"""Take the scores of a node apart: itself, and each neighbour over each kind of edge.

        The spread features of node i satisfy the equation of :meth:`predict`, so that its scores
        are a sum over its neighbours j, with W the classifier:

        .. math:: \Big(\alpha x_i + (1 - \alpha) \sum_{j \ne i}
            \frac{a_{ij}}{\sqrt{d_i d_j}} h_j \Big)
            \frac{W}{\sqrt{d_i} \, (1 - (1 - \alpha) a_{ii} / d_i)} + b

        Args:
            node: which node.

        Returns:
            An exact explanation of the scores that the equation asks for. They are
            :attr:`logits` up to the tolerance of the spreading.

        Cost: the weights of all given edges, and num_components·num_classes FLOP a neighbour.
        """
        neighbors, weight = self.graph.row(node)
        is_self = neighbors == node
        degree, walk = self.graph.degree(), 1 - self.choice.restart
        # All but the node itself, on the right of the equation; what is on its left divides.
        divisor = degree[node].sqrt() * (1 - walk * weight[is_self].sum() / degree[node])
        classifier = (self.weight - self.weight.mean(-1, keepdim=True)) / divisor
        step = walk / (degree[node] * degree[neighbors]).sqrt()
        message = step.unsqueeze(-1) * (self.spread[neighbors] @ classifier)
        by_learned, by_given = torch.zeros_like(message), torch.zeros_like(message)
        ends, weight = self.layers[-1].learned.row(node)
        place = torch.searchsorted(neighbors, ends)
        by_learned[place] = (self.learned_scale * weight).unsqueeze(-1) * message[place]
        given = self.candidates.weighted_given(self.layers[-1].metric, self.choice.given_decay)
        if given is not None:
            ends, weight = given.row(node)
            place = torch.searchsorted(neighbors, ends)
            by_given[place] = weight.unsqueeze(-1) * message[place]
        start = self.choice.restart * (self.candidates.features_of(node) @ self.projection)
        bias, own = self.bias - self.bias.mean(), start @ classifier
        by_learned, by_given = by_learned[~is_self], by_given[~is_self]
        return NodeExplanation(
            scores=bias + own + by_learned.sum(0) + by_given.sum(0),
            bias=bias,
            own=own,
            neighbors=neighbors[~is_self],
            learned=by_learned,
            given=by_given,
        )

    @torch.no_grad()
    def suggest_labels(self, num: int) -> Tensor:  # (num,), int64
        """Return the nodes whose labels would tell most about all others, the best first.

        See :func:`jlgcn.nn.suggest.most_telling_rows`: a label is worth what it takes away from the
        variance of all predictions, so that it is asked for where many nodes are, and where no
        label is yet.

        Args:
            num: how many.

        Cost: num products of (N, num_components) with a square matrix.
        """
        return most_telling_rows(leveled(self.spread, self.graph.degree()), self.train, num)

    @torch.no_grad()
    def feature_importance(self, layer: int = -1) -> Tensor:  # (in_channels,)
        r"""Return what each feature adds to the squared distance of two nodes, on average.

        The mean of :meth:`explain_edge` over all ordered pairs, with Σ the features' covariance:

        .. math:: 2\, \big((I / u + R R^\top) \Sigma\big)_{kk}

        Cost: 4·N·in_channels·num_classes FLOP; no pair is visited.
        """
        metric = self.layers[layer].metric
        return mean_contributions(self.candidates.x, metric, 1 / self.candidates.unit)


def leveled(spread: Tensor, degree: Tensor) -> Tensor:
    """Return spread features without what a normalised graph adds to nodes of high degree.

    Far from their start, all walks tell the same of a node: the square root of its degree.
    """
    return spread / degree.sqrt().unsqueeze(-1)
