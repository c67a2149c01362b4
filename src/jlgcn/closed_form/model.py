"""A fitted closed-form model: metric, graphs and classifier, predictions and explanations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from jlgcn.closed_form.active import select_queries
from jlgcn.closed_form.classifier import Classifier, Evidence
from jlgcn.closed_form.explain import NodeExplanation, edge_weights
from jlgcn.closed_form.layer import unit_rows
from jlgcn.closed_form.local import Hops
from jlgcn.closed_form.novelty import novelty
from jlgcn.closed_form.options import SelectedOptions, selected
from jlgcn.graphs import SparseGraph
from jlgcn.graphs.candidates import Candidates, Features
from jlgcn.graphs.explanation import EdgeExplanation, decompose_distance, mean_contributions


class ClosedFormLayer(NamedTuple):
    """The metric and graph of one layer.

    Attributes:
        metric: R, (in_channels, num_classes); 0 in the first layer.
        learned: the learned graph, not normalised.
        loss: mean held-out log-loss of the classifier of diffused features; of the first layer, and
            of the second for all others.
    """

    metric: Tensor
    learned: SparseGraph
    loss: float


@dataclass(frozen=True, eq=False)
class ClosedFormModel:
    """A metric, a graph and a node classifier; :func:`fit_closed_form` returns it.

    All tensors are on the device of the features that it was fitted to.

    Attributes:
        options: hyperparameters, with the selected values.
        candidates: features and candidate edges.
        layers: metric, learned graph and predictions of each layer.
        graph: sum of the last learned graph, the given graph and self-loops.
        learned_scale: factor of the learned weights in this sum.
        projection: principal directions, (in_channels, n_components).
        diffused: principal components diffused over `graph`, (N, n_components).
        classifier: the averaged classifiers, as one.
        evidence: held-out losses and predictions, and the weights that follow from them.
        train: training nodes, (M,), int64.
        labels: their classes, (M,), int64.
        counts: number of labels that each counts as, (M,).
    """

    options: SelectedOptions
    candidates: Candidates
    layers: tuple[ClosedFormLayer, ...]
    graph: SparseGraph
    learned_scale: float
    projection: Tensor
    diffused: Tensor
    classifier: Classifier
    evidence: Evidence
    train: Tensor
    labels: Tensor
    counts: Tensor

    @cached_property
    def logits(self) -> Tensor:
        """Class scores of all nodes, (N, num_classes), calibrated: softmax gives probabilities."""
        found = unit_rows(self.diffused) @ self.classifier.graph + self.classifier.bias
        found = found + self.classifier.own_scores(self.features)
        blocks = self.classifier.blocks
        return found + self.hops.scores(blocks) if len(blocks) else found

    @cached_property
    def novelty(self) -> Tensor:  # (N,), float64
        """How far each node is from labels, see :func:`jlgcn.closed_form.novelty.novelty`."""
        with torch.no_grad():
            return novelty(self.graph, self.logits.softmax(-1), self.train, self.labels)

    @cached_property
    def features(self) -> Tensor:
        """Principal components of all nodes, (N, n_components)."""
        return self.candidates.x @ self.projection

    @cached_property
    def hops(self) -> Hops:
        """Own features and means over given neighbours, as far as the classifier sees them."""
        is_alone = len(self.classifier.blocks) < 2
        return Hops(self.candidates.x, None if is_alone else self.candidates.given)

    @cached_property
    def block_scores(self) -> list[Tensor]:
        """Scores of the linear blocks, see :meth:`Hops.block_scores`."""
        return self.hops.block_scores(self.classifier.blocks)

    @property
    def num_layers(self) -> int:
        """Number of learned graphs."""
        return len(self.layers)

    @property
    def num_column_layers(self) -> int:
        """Number of layers whose metric is of the input features: all."""
        return len(self.layers)

    @property
    def x(self) -> Features:
        """Features of all nodes, scaled, (N, in_channels)."""
        return self.candidates.x

    @property
    def given(self) -> SparseGraph | None:
        """The given graph, or None."""
        return self.candidates.given

    @property
    def history(self) -> list[dict[str, float]]:
        """The loss of each layer."""
        return [{"loss": layer.loss} for layer in self.layers]

    @property
    def best_params(self) -> dict[str, Any]:
        """The hyperparameters that selection may set, by name."""
        return selected(self.options)

    def learned_graph(self, layer: int) -> SparseGraph:
        """Return the learned graph of a layer."""
        return self.layers[layer].learned

    def weighted_given(self) -> SparseGraph | None:
        """Return the given graph with weights discounted by the last metric, or None."""
        return self.candidates.weighted_given(self.layers[-1].metric, self.options.given_decay)

    def features_of(self, nodes: Tensor, layer: int) -> Tensor:  # (K, in_channels)
        """Return the features of some nodes as the metric of a layer sees them."""
        return self.candidates.features_of(nodes)

    def coordinates(self, x: Features) -> Tensor:  # (M, n_components + num_classes)
        r"""Return coordinates whose Euclidean distance is the learned one.

        .. math:: z = [\,P^\top f / \sqrt u, \; R^\top f\,]

        P are the principal directions and R is the last metric, so distances are those of
        :meth:`explain_edge` if all directions are kept (in_channels ≤ n_components), else
        approximately.

        Args:
            x: scaled features of any rows, (M, in_channels).
        """
        euclidean = (x @ self.projection) / self.candidates.unit**0.5
        return torch.cat([euclidean, x @ self.layers[-1].metric], -1)

    def embedding(self) -> Tensor:  # (N, n_components)
        """Return the diffused features, of unit norm."""
        return unit_rows(self.diffused)

    def __repr__(self) -> str:
        nodes, classes = self.logits.shape
        return f"ClosedFormModel({nodes:,} nodes, {classes} classes, {len(self.layers)} layers)"

    @torch.no_grad()
    def predict(
        self,
        x: Features,  # (M, in_channels)
        edges: tuple[Tensor, Tensor] | None = None,  # (2, E), int64, and (E,)
    ) -> Tensor:  # (M, num_classes)
        r"""Return class scores of new nodes (inductive), each attached to the graph by itself.

        The neighbours of a new node u are its nearest fitted nodes under the last metric, and its
        given ones. Its diffused features h_u solve the PageRank equation of u; the h_j of fitted
        nodes are fixed, and b are normalised weights:

        .. math:: h_u = \alpha x_u + (1 - \alpha) \Big(b_{uu} h_u + \sum_j b_{uj} h_j\Big)

        Args:
            x: features of the new nodes, scaled by the scaler of fit.
            edges: given edges as pairs of a new node and a fitted node, and their weights.

        Cost: a search for neighbours, and M·n_neighbors·n_components FLOP; nothing grows with
        M·N.
        """
        metric = self.layers[-1].metric
        row, col, weight = self.candidates.attach(
            x,
            metric,
            self.learned_scale,
            edges,
            num_neighbors=self.options.n_neighbors,
            given_decay=self.options.given_decay,
        )
        own = x @ self.projection
        near = AttachedRows(row, col, weight, self.diffused, self.graph.degree())
        classifier = self.classifier
        scores = near.scores(own, classifier, self.options.restart)
        if len(classifier.blocks):
            scores = scores + x @ classifier.blocks[0]
        if len(classifier.blocks) > 1 and edges is not None:
            index, given = edges[0], edges[1].to(own.dtype)
            total = given.new_zeros(len(own)).index_add(0, index[0], given)
            mean = given / total.clamp(min=1e-30)[index[0]]
            _, first, second = self.block_scores
            scores = scores + _sum_neighbors(index, mean, len(own), first + second)
        return scores

    @torch.no_grad()
    def explain_edge(
        self,
        first: Tensor,  # (in_channels,)
        second: Tensor,  # (in_channels,)
        layer: int = -1,
    ) -> EdgeExplanation:
        r"""Decompose the learned squared distance of two nodes by direction and by feature.

        .. math:: d^2 = \sum_k \delta_k^2 / u + \sum_c (R^\top \delta)_c^2
            = \sum_k \delta_k \, (\delta / u + R R^\top \delta)_k

        Args:
            first: scaled features of one node.
            second: scaled features of the other node.
            layer (int, default -1): layer whose metric is used.

        Returns:
            Tensors on the CPU. The first direction is the Euclidean distance; then comes the
            direction of each class.

        Cost: 4·in_channels·num_classes FLOP, in float64.
        """
        first, second, metric = (t.cpu() for t in (first, second, self.layers[layer].metric))
        return decompose_distance(first, second, metric, 1 / self.candidates.unit)

    @torch.no_grad()
    def contributions(self, first: Tensor, second: Tensor) -> Tensor:  # (P, in_channels)
        """Return :meth:`explain_edge` of many pairs: contributions of features, in float64.

        Args:
            first: numbers of the first nodes, (P,).
            second: numbers of the second nodes, (P,).
        """
        metric = self.layers[-1].metric.double()
        ends = (self.candidates.features_of(nodes).double() for nodes in (first, second))
        delta = next(ends) - next(ends)
        return delta * (delta / self.candidates.unit + (delta @ metric) @ metric.mT)

    @torch.no_grad()
    def explain_node(self, node: int) -> NodeExplanation:
        r"""Attribute the class scores of a node to its own features and to each of its edges.

        Diffused features satisfy the PageRank equation of :meth:`predict`, so their part of the
        scores of node i is a sum over its neighbours j, with W their weights:

        .. math:: \Big(\alpha x_i + (1 - \alpha) \sum_{j \ne i}
            \frac{a_{ij}}{\sqrt{d_i d_j}} h_j \Big)
            \frac{W}{\|h_i\| \, (1 - (1 - \alpha) a_{ii} / d_i)}

        The classifiers on own features and their kernel are contributions of the node itself; the
        one on means over given neighbours is a sum over given edges.

        Args:
            node: number of the node.

        Returns:
            An exact attribution of the solution of the PageRank equation, whose scores equal
            :attr:`logits` up to the tolerance of the diffusion.

        Cost: the weights of all given edges, and n_components·num_classes FLOP a neighbour.
        """
        neighbors, weight = self.graph.row(node)
        is_self = neighbors == node
        degree, walk = self.graph.degree(), 1 - self.options.restart
        classifier, own_features = self.classifier, self.features[node]
        # The self-loop is on both sides of the equation: solved for h_i, it divides the rest.
        loop = 1 - walk * weight[is_self].sum() / degree[node]
        start = self.options.restart / loop * own_features
        step = walk / loop / (degree[node] * degree[neighbors]).sqrt()
        message = step.unsqueeze(-1) * self.diffused[neighbors]
        length = (start + weight.masked_fill(is_self, 0) @ message).norm().clamp(min=1e-30)
        message, start = message @ classifier.graph / length, start @ classifier.graph / length
        discounted = self.candidates.weighted_given(
            self.layers[-1].metric, self.options.given_decay
        )
        learned_weight, discounted_weight = (
            edge_weights(graph, node, neighbors, like=message)
            for graph in (self.layers[-1].learned, discounted)
        )
        by_learned = self.learned_scale * learned_weight * message
        # The self-loop is in the equation already; of the means over neighbours it is an edge.
        by_given = (discounted_weight * message).masked_fill(is_self.unsqueeze(-1), 0)
        own = start + classifier.own_scores(own_features.unsqueeze(0))
        if len(classifier.blocks):
            own = own + self.block_scores[0][node]
        if len(classifier.blocks) > 1:
            mean = edge_weights(self.hops.mean, node, neighbors, like=message)
            by_given = by_given + mean * (self.block_scores[1] + self.block_scores[2])[neighbors]
            own = own + by_given[is_self].sum(0)
        return NodeExplanation.of(
            neighbors[~is_self],
            own=own.reshape(-1),
            learned=by_learned[~is_self],
            given=by_given[~is_self],
            bias=classifier.bias,
        )

    @torch.no_grad()
    def suggest_labels(self, num: int) -> Tensor:  # (num,), int64
        """Return the nodes to label next (active learning), the most informative first.

        Sequential V-optimal design on the diffused features, see
        :func:`jlgcn.closed_form.active.select_queries`: selected labels reduce the variance of all
        predictions most, so they lie in dense regions without labels.

        Args:
            num: number of nodes.

        Cost: three products of (N, n_components) with a square matrix, whatever `num`.
        """
        return select_queries(self.embedding(), self.train, num)

    @torch.no_grad()
    def feature_importance(self, layer: int = -1) -> Tensor:  # (in_channels,)
        r"""Return each feature's mean contribution to the learned part of the squared distance.

        The mean over all ordered pairs of what the metric adds to :meth:`explain_edge`, with Σ the
        features' covariance:

        .. math:: 2\, (R R^\top \Sigma)_{kk}

        The Euclidean part is left out, as it says nothing of the classes; of a layer whose metric
        is 0, it is returned, :math:`2\, \Sigma_{kk} / u`.

        Cost: 4·N·in_channels·num_classes FLOP; no pair is visited.
        """
        metric = self.layers[layer].metric
        euclidean = 0.0 if bool(metric.any()) else 1 / self.candidates.unit
        return mean_contributions(self.candidates.x, metric, euclidean)


class AttachedRows(NamedTuple):
    """New nodes with their edges to fitted nodes, see :meth:`ClosedFormModel.predict`.

    Attributes:
        row: new node of each edge, (E,).
        col: fitted node of each edge, (E,).
        weight: weights, not normalised, (E,).
        diffused: diffused features of fitted nodes, (K, n_components).
        degree: degrees of fitted nodes, (K,).
    """

    row: Tensor
    col: Tensor
    weight: Tensor
    diffused: Tensor
    degree: Tensor

    def scores(self, own: Tensor, classifier: Classifier, restart: float) -> Tensor:  # (M, C)
        """Return scores by diffused features and the kernel.

        Args:
            own: principal components of the new nodes, (M, n_components).
            classifier: the fitted classifier.
            restart: restart probability of the diffusion.
        """
        row, col = self.row, self.col
        degree = self.weight.new_ones(len(own)).index_add(0, row, self.weight)
        weight = self.weight * degree[row].rsqrt() * self.degree[col].rsqrt()
        walk = 1 - restart
        h = restart * own
        h = h + walk * _sum_neighbors(torch.stack([row, col]), weight, len(own), self.diffused)
        h = h / (1 - walk / degree).unsqueeze(-1)
        scores = unit_rows(h) @ classifier.graph + classifier.bias
        return scores + classifier.own_scores(own)


def _sum_neighbors(index: Tensor, weight: Tensor, num_rows: int, x: Tensor) -> Tensor:
    """Return weighted sums of rows of x over edges, (num_rows, channels).

    By a sparse product, because a row of features for every edge would not fit in memory.
    """
    size = (num_rows, x.shape[0])
    return torch.sparse_coo_tensor(index, weight, size, check_invariants=False) @ x
