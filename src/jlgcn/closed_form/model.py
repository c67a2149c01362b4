"""What the closed form has learned: a metric, graphs, a classifier; for old nodes and new ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn import functional

from jlgcn.closed_form.active import select_queries
from jlgcn.closed_form.candidates import Candidates, Features, GraphChoice
from jlgcn.closed_form.explain import NodeExplanation
from jlgcn.closed_form.inputs import (
    Inputs,
    check_inputs,
    inputs_of,
    length_of,
    num_blocks,
    unit_rows,
)
from jlgcn.closed_form.nystroem import Landmarks
from jlgcn.graphs import SparseGraph
from jlgcn.graphs.explanation import EdgeExplanation, decompose_distance, mean_contributions

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
        restart: of the random walk that spreads features, see
            :func:`jlgcn.graphs.personalized_pagerank`; None for 0.01, 0.05,
            0.2 or 0.8. The larger, the more a node's own features count.
        inputs: what the classifier sees. "leveled" divides spread features by the root of a node's
            degree, which is what a walk far from its start adds; "unit" gives them length 1, so
            that a node counts by the direction of its features alone; "unit with own" puts beside
            these the features before they are spread, of length 1 too, for graphs whose neighbours
            are unlike; "unit with own and neighbors" also those of the ends of given edges, added
            up, which asks for a given graph. None for the one that labels prefer.
        kernel_decay: how fast the classifier's Gaussian kernel falls with the squared distance of
            inputs, of which 1 is the mean of labelled nodes; 0 for a linear classifier. None for
            0, 0.25, 1 or 4.
        num_components: principal directions of the features that are spread.
        component_power: see :func:`jlgcn.ops.principal_directions`; below 1, short directions count
            more than their length says.
        tolerance: of the spreading.
        control: what is done to find out what learning is worth. "random metric" replaces every R
            by a random one under which features vary as much, "shuffled graph" gives every learned
            graph's places to other nodes.

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
    inputs: Inputs | None = None
    kernel_decay: float | None = None
    num_components: int = 1024
    component_power: float = 1.0
    tolerance: float = 1e-2
    control: Control = "none"

    def __post_init__(self) -> None:
        if self.control not in get_args(Control):
            choices = ", ".join(get_args(Control))
            raise ValueError(f"control must be one of {choices}, but it is {self.control!r}")
        if self.inputs is not None:
            check_inputs(self.inputs)
        for name in ("num_layers", "num_neighbors", "num_candidates", "num_components"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, but it is {value}")
        for name in ("learned_degree", "given_decay", "metric_weight", "kernel_decay"):
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
class ClosedFormModel:
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
        landmarks: what the inputs are compared with by a kernel; None for a linear classifier.
        weight: of the classifier, a row for each column of :meth:`inputs`.
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
    landmarks: Landmarks | None
    weight: Tensor
    bias: Tensor
    train: Tensor
    labels: Tensor

    @property
    def logits(self) -> Tensor:
        """Scores of the classes of all nodes, (N, num_classes)."""
        return self.layers[-1].logits

    def inputs(self) -> Tensor:
        """Return what the scores of nodes are linear in, a column for each row of `weight`.

        Cost: the product of features and `projection` where own ones are seen, that of the given
        graph with it where neighbours' are, and a kernel for each node and landmark, if any.
        """
        kind, given = self.choice.inputs, self.candidates.given
        own = neighbors = None
        if num_blocks(kind) > 1:
            own = self.candidates.x @ self.projection
            if num_blocks(kind) > 2 and given is not None:
                neighbors = given.matmul(own)
        return self._kernel(inputs_of(kind, self.spread, self.graph.degree(), own, neighbors))

    def _kernel(self, inputs: Tensor) -> Tensor:
        return inputs if self.landmarks is None else self.landmarks(inputs)

    def __repr__(self) -> str:
        nodes, classes = self.logits.shape
        return f"ClosedFormModel({nodes:,} nodes, {classes} classes, {len(self.layers)} layers)"

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
        own = x @ self.projection
        h = self.choice.restart * own + walk * (rows @ self.spread)
        h = h / (1 - walk / degree).unsqueeze(-1)
        nearby = self._known_neighbors(x.shape[0], edges)
        inputs = inputs_of(self.choice.inputs, h, degree, own, nearby)
        return self._kernel(inputs) @ self.weight + self.bias

    def _known_neighbors(self, num_new: int, edges: Tensor | None) -> Tensor | None:
        """Return the features that new nodes' given edges lead to, added up, where they count."""
        if num_blocks(self.choice.inputs) < 3:
            return None
        if edges is None:
            return self.spread.new_zeros(num_new, self.spread.shape[1])
        ones = self.spread.new_ones(edges.shape[1])
        size = (num_new, self.spread.shape[0])
        rows = torch.sparse_coo_tensor(edges, ones, size, check_invariants=False)
        return rows @ (self.candidates.x @ self.projection)

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
        return decompose_distance(first, second, metric, 1 / self.candidates.unit)

    @torch.no_grad()
    def explain_node(self, node: int) -> NodeExplanation:
        r"""Take the scores of a node apart: itself, and each neighbour over each kind of edge.

        The spread features of node i satisfy the equation of :meth:`predict`, so that its scores
        are a sum over its neighbours j, with W the classifier:

        .. math:: \Big(\alpha x_i + (1 - \alpha) \sum_{j \ne i}
            \frac{a_{ij}}{\sqrt{d_i d_j}} h_j \Big)
            \frac{W}{s_i \, (1 - (1 - \alpha) a_{ii} / d_i)} + b

        s_i is the root of d_i, or, with inputs of length 1, the length of h_i. What a classifier
        makes of own features beside them is added to the node's own part, and what it makes of the
        neighbours' to their given edges. Of a kernel's classifier, W is the mean gradient on the
        way from no features at all, whose scores are b, to those of the node.

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
        features = self.candidates.features_of(torch.tensor([node]))[0] @ self.projection
        # All but the node itself, on the right of the equation; what is on its left divides.
        loop = 1 - walk * weight[is_self].sum() / degree[node]
        start = self.choice.restart / loop * features
        step = walk / loop / (degree[node] * degree[neighbors]).sqrt()
        message = step.unsqueeze(-1) * self.spread[neighbors]
        length = degree[node].sqrt()
        if self.choice.inputs != "leveled":
            length = length_of(start + weight.masked_fill(is_self, 0) @ message)
        # The node's inputs are a sum: of itself, and of each neighbour over each kind of edge.
        learned, given = self.layers[-1].learned, self.candidates.given
        trusted = self.candidates.weighted_given(self.layers[-1].metric, self.choice.given_decay)
        by_learned = self.learned_scale * _weights(learned, node, neighbors) * message / length
        own, by_given = [start / length], [_weights(trusted, node, neighbors) * message / length]
        if num_blocks(self.choice.inputs) > 1:
            own.append(unit_rows(features))
            by_given.append(torch.zeros_like(message))
        if num_blocks(self.choice.inputs) > 2:
            nearby = self.candidates.features_of(neighbors) @ self.projection
            nearby = _weights(given, node, neighbors) * nearby
            by_given.append(nearby / length_of(nearby.sum(0)))
            own.append(by_given[-1][is_self].sum(0))
        return self._scored(
            neighbors[~is_self],
            torch.cat(own),
            functional.pad(by_learned, (0, message.shape[1] * (len(own) - 1)))[~is_self],
            torch.cat(by_given, dim=-1)[~is_self],
        )

    def _scored(
        self, neighbors: Tensor, own: Tensor, learned: Tensor, given: Tensor
    ) -> NodeExplanation:
        """Return what the classifier makes of each of the parts that a node's inputs sum up."""
        weight, bias = self.weight, self.bias
        if self.landmarks is not None:
            bias = bias + (self.landmarks(torch.zeros_like(own).unsqueeze(0)) @ weight)[0]
            weight = self.landmarks.mean_gradient(own + learned.sum(0) + given.sum(0), weight)
        weight, bias = weight - weight.mean(-1, keepdim=True), bias - bias.mean()
        own, learned, given = own @ weight, learned @ weight, given @ weight
        return NodeExplanation(
            scores=bias + own + learned.sum(0) + given.sum(0),
            bias=bias,
            own=own,
            neighbors=neighbors,
            learned=learned,
            given=given,
        )

    @torch.no_grad()
    def suggest_labels(self, num: int) -> Tensor:  # (num,), int64
        """Return the nodes whose labels would tell most about all others, the best first.

        See :func:`jlgcn.closed_form.active.select_queries`: a label is worth what it takes away
        from the variance of all predictions, so that it is asked for where many nodes are, and
        where no label is yet.

        Args:
            num: how many.

        Cost: num products of (N, num_components) with a square matrix.
        """
        return select_queries(self.inputs(), self.train, num)

    @torch.no_grad()
    def feature_importance(self, layer: int = -1) -> Tensor:  # (in_channels,)
        r"""Return what each feature adds to the squared distance of two nodes, on average.

        The mean of :meth:`explain_edge` over all ordered pairs, with Σ the features' covariance:

        .. math:: 2\, \big((I / u + R R^\top) \Sigma\big)_{kk}

        Cost: 4·N·in_channels·num_classes FLOP; no pair is visited.
        """
        metric = self.layers[layer].metric
        return mean_contributions(self.candidates.x, metric, 1 / self.candidates.unit)


def _weights(graph: SparseGraph | None, node: int, neighbors: Tensor) -> Tensor:  # (K, 1)
    """Return the weights of a node's edges to some in order, 0 where there is no edge."""
    found = torch.zeros(len(neighbors))
    if graph is not None:
        ends, weight = graph.row(node)
        found = found.to(weight.dtype)
        found[torch.searchsorted(neighbors, ends)] = weight
    return found.unsqueeze(-1)
