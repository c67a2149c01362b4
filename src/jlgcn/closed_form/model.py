"""What the closed form has learned: a metric, graphs, a classifier; for old nodes and new ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from jlgcn.closed_form.active import select_queries
from jlgcn.closed_form.candidates import Candidates, Features
from jlgcn.closed_form.explain import NodeExplanation
from jlgcn.closed_form.inputs import classifier_inputs, length_of, num_blocks, unit_rows
from jlgcn.closed_form.nystroem import Landmarks
from jlgcn.closed_form.options import SelectedOptions
from jlgcn.graphs import SparseGraph
from jlgcn.graphs.explanation import EdgeExplanation, decompose_distance, mean_contributions


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
        options: hyperparameters, with the selected values.
        candidates: features, and pairs that a metric may join.
        layers: one for each learned graph.
        graph: the last learned graph, the given one and self-loops, added.
        learned_scale: what learned weights were multiplied by in this sum.
        projection: from features to what is spread, (in_channels, n_components).
        diffused: features diffused over `graph`, (N, n_components).
        landmarks: what the inputs are compared with by a kernel; None for a linear classifier.
        weight: of the classifier, a row for each column of :meth:`inputs`.
        bias: of the classifier, (num_classes,).
        train: nodes that were learned from, (M,), int64.
        labels: their classes, (M,), int64.
    """

    options: SelectedOptions
    candidates: Candidates
    layers: tuple[ClosedFormLayer, ...]
    graph: SparseGraph
    learned_scale: float
    projection: Tensor
    diffused: Tensor
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
        kind, given = self.options.inputs, self.candidates.given
        own = neighbors = None
        if num_blocks(kind) > 1:
            own = self.candidates.x @ self.projection
            if num_blocks(kind) > 2 and given is not None:
                neighbors = given.matmul(own)
        return self._kernel(
            classifier_inputs(kind, self.diffused, self.graph.degree(), own, neighbors)
        )

    def _kernel(self, inputs: Tensor) -> Tensor:
        return inputs if self.landmarks is None else self.landmarks(inputs)

    def __repr__(self) -> str:
        nodes, classes = self.logits.shape
        return f"ClosedFormModel({nodes:,} nodes, {classes} classes, {len(self.layers)} layers)"

    @torch.no_grad()
    def predict(
        self,
        x: Features,  # (M, in_channels)
        edges: tuple[Tensor, Tensor] | None = None,  # (2, E), int64, and (E,)
    ) -> Tensor:  # (M, num_classes)
        r"""Return the scores of new nodes, each attached to the graph by itself.

        A new node u takes its nearest old ones under the last metric as neighbours, besides those
        that are known, and then the features that the equation of the spreading asks for, with the
        old nodes as they are:

        .. math:: h_u = \alpha x_u + (1 - \alpha) \Big(b_{uu} h_u + \sum_j b_{uj} h_j\Big)

        Args:
            x: features of the new nodes, scaled as the old ones were.
            edges: given edges, as new and old node, counted from 0, and their weights.

        Cost: a search for neighbours, and M·n_neighbors·n_components FLOP; nothing grows with
        M·N.
        """
        metric = self.layers[-1].metric
        row, col, weight = self.candidates.attach(
            x, metric, self.options, self.learned_scale, edges
        )
        degree = weight.new_ones(x.shape[0]).index_add(0, row, weight)
        weight = weight * degree[row].rsqrt() * self.graph.degree()[col].rsqrt()
        # A sparse product, because a row of features for every edge would not fit in memory.
        size = (x.shape[0], self.diffused.shape[0])
        pairs = torch.stack([row, col])
        rows = torch.sparse_coo_tensor(pairs, weight, size, check_invariants=False)
        walk = 1 - self.options.restart
        own = x @ self.projection
        h = self.options.restart * own + walk * (rows @ self.diffused)
        h = h / (1 - walk / degree).unsqueeze(-1)
        nearby = self._known_neighbors(x.shape[0], edges)
        inputs = classifier_inputs(self.options.inputs, h, degree, own, nearby)
        return self._kernel(inputs) @ self.weight + self.bias

    def _known_neighbors(self, num_new: int, edges: tuple[Tensor, Tensor] | None) -> Tensor | None:
        """Return the features that new nodes' given edges lead to, added up, where they count."""
        if num_blocks(self.options.inputs) < 3:
            return None
        if edges is None:
            return self.diffused.new_zeros(num_new, self.diffused.shape[1])
        index, weight = edges[0], edges[1].to(self.diffused.dtype)
        size = (num_new, self.diffused.shape[0])
        rows = torch.sparse_coo_tensor(index, weight, size, check_invariants=False)
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

        Cost: the weights of all given edges, and n_components·num_classes FLOP a neighbour.
        """
        neighbors, weight = self.graph.row(node)
        is_self = neighbors == node
        degree, walk = self.graph.degree(), 1 - self.options.restart
        features = self.candidates.features_of(torch.tensor([node]))[0] @ self.projection
        # All but the node itself, on the right of the equation; what is on its left divides.
        loop = 1 - walk * weight[is_self].sum() / degree[node]
        start = self.options.restart / loop * features
        step = walk / loop / (degree[node] * degree[neighbors]).sqrt()
        message = step.unsqueeze(-1) * self.diffused[neighbors]
        length = degree[node].sqrt()
        if self.options.inputs != "degree":
            length = length_of(start + weight.masked_fill(is_self, 0) @ message)
        # The node's inputs are a sum: of itself, and of each neighbour over each kind of edge.
        learned, given = self.layers[-1].learned, self.candidates.given
        trusted = self.candidates.weighted_given(self.layers[-1].metric, self.options.given_decay)
        by_learned = self.learned_scale * _weights(learned, node, neighbors) * message / length
        own, by_given = [start / length], [_weights(trusted, node, neighbors) * message / length]
        if num_blocks(self.options.inputs) > 1:
            own.append(unit_rows(features))
            by_given.append(torch.zeros_like(message))
        if num_blocks(self.options.inputs) > 2:
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

        Cost: num products of (N, n_components) with a square matrix.
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
