"""A fitted closed-form model: metric, graphs and classifier, predictions and explanations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from jlgcn.closed_form.active import select_queries
from jlgcn.closed_form.explain import NodeExplanation, attribute_scores, edge_weights
from jlgcn.closed_form.inputs import classifier_inputs, length_of, num_blocks, unit_rows
from jlgcn.closed_form.nystroem import Landmarks
from jlgcn.closed_form.options import SelectedOptions, selected
from jlgcn.graphs import SparseGraph
from jlgcn.graphs.candidates import Candidates, Features
from jlgcn.graphs.explanation import EdgeExplanation, decompose_distance, mean_contributions


class ClosedFormLayer(NamedTuple):
    """The metric, graph and predictions of one layer.

    Attributes:
        metric: R, (in_channels, num_classes); 0 in the first layer.
        learned: the learned graph, not normalised.
        logits: class scores, (N, num_classes).
        loss: mean log-loss on validation nodes, or leave-one-out on the training labels.
    """

    metric: Tensor
    learned: SparseGraph
    logits: Tensor
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
        landmarks: Nyström landmarks of the kernel; None for a linear classifier.
        weight: weights of the classifier, a row for each column of :meth:`inputs`.
        bias: bias of the classifier, (num_classes,).
        train: training nodes, (M,), int64.
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
        """Class scores of all nodes, (N, num_classes)."""
        return self.layers[-1].logits

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

    def embedding(self) -> Tensor:  # (N, n_components)
        """Return diffused features, divided by the root of the degree to which walks converge."""
        return self.diffused / self.graph.degree().sqrt().unsqueeze(-1)

    def inputs(self) -> Tensor:
        """Return the inputs of the classifier, of which scores are a linear function.

        Cost: a product of features and `projection` if own features are inputs, a product with the
        given graph if its neighbours' are, and a kernel for each node and landmark, if any.
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
        degree = weight.new_ones(x.shape[0]).index_add(0, row, weight)
        weight = weight * degree[row].rsqrt() * self.graph.degree()[col].rsqrt()
        walk = 1 - self.options.restart
        own = x @ self.projection
        h = self.options.restart * own
        h = h + walk * _sum_neighbors(torch.stack([row, col]), weight, x.shape[0], self.diffused)
        h = h / (1 - walk / degree).unsqueeze(-1)
        neighbors = None
        if num_blocks(self.options.inputs) > 2:
            neighbors = torch.zeros_like(own)
            if edges is not None:
                fitted = self.candidates.x @ self.projection
                neighbors = _sum_neighbors(edges[0], edges[1].to(own.dtype), len(own), fitted)
        inputs = classifier_inputs(self.options.inputs, h, degree, own, neighbors)
        return self._kernel(inputs) @ self.weight + self.bias

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

        Diffused features satisfy the PageRank equation of :meth:`predict`, so the scores of node i
        are a sum over its neighbours j:

        .. math:: \Big(\alpha x_i + (1 - \alpha) \sum_{j \ne i}
            \frac{a_{ij}}{\sqrt{d_i d_j}} h_j \Big)
            \frac{W}{s_i \, (1 - (1 - \alpha) a_{ii} / d_i)} + b

        W and b are the classifier. The normalisation s_i is √d_i for inputs "degree", and ‖h_i‖
        otherwise. Own features as inputs count as the node's own contribution, neighbours' features
        as contributions of the given edges. For a kernel classifier, W is the integrated gradient
        from zero inputs, whose scores are b.

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
        index = torch.tensor([node], device=self.diffused.device)
        features = self.candidates.features_of(index)[0] @ self.projection
        # The self-loop is on both sides of the equation: solved for h_i, it divides the rest.
        loop = 1 - walk * weight[is_self].sum() / degree[node]
        start = self.options.restart / loop * features
        step = walk / loop / (degree[node] * degree[neighbors]).sqrt()
        message = step.unsqueeze(-1) * self.diffused[neighbors]
        length = degree[node].sqrt()
        if self.options.inputs != "degree":
            length = length_of(start + weight.masked_fill(is_self, 0) @ message)
        # The inputs of the node are a sum over itself and each neighbour's two kinds of edges.
        learned, given = self.layers[-1].learned, self.candidates.given
        discounted = self.candidates.weighted_given(
            self.layers[-1].metric, self.options.given_decay
        )
        learned_weight, discounted_weight, given_weight = (
            edge_weights(graph, node, neighbors, like=message)
            for graph in (learned, discounted, given)
        )
        by_learned = self.learned_scale * learned_weight * message / length
        own, by_given = [start / length], [discounted_weight * message / length]
        if num_blocks(self.options.inputs) > 1:
            own.append(unit_rows(features))
            by_given.append(torch.zeros_like(message))
        if num_blocks(self.options.inputs) > 2:
            summed = given_weight * (self.candidates.features_of(neighbors) @ self.projection)
            by_given.append(summed / length_of(summed.sum(0)))
            own.append(by_given[-1][is_self].sum(0))
        return attribute_scores(
            neighbors[~is_self],
            torch.cat(own),
            functional.pad(by_learned, (0, message.shape[1] * (len(own) - 1)))[~is_self],
            torch.cat(by_given, dim=-1)[~is_self],
            weight=self.weight,
            bias=self.bias,
            landmarks=self.landmarks,
        )

    @torch.no_grad()
    def suggest_labels(self, num: int) -> Tensor:  # (num,), int64
        """Return the nodes to label next (active learning), the most informative first.

        Sequential V-optimal design on the classifier's inputs, see
        :func:`jlgcn.closed_form.active.select_queries`: selected labels reduce the variance of all
        predictions most, so they lie in dense regions without labels.

        Args:
            num: number of nodes.

        Cost: num products of (N, num_inputs) with a square matrix.
        """
        return select_queries(self.inputs(), self.train, num)

    @torch.no_grad()
    def feature_importance(self, layer: int = -1) -> Tensor:  # (in_channels,)
        r"""Return each feature's mean contribution to the squared distance of two nodes.

        The mean of :meth:`explain_edge` over all ordered pairs, with Σ the features' covariance:

        .. math:: 2\, \big((I / u + R R^\top) \Sigma\big)_{kk}

        Cost: 4·N·in_channels·num_classes FLOP; no pair is visited.
        """
        metric = self.layers[layer].metric
        return mean_contributions(self.candidates.x, metric, 1 / self.candidates.unit)


def _sum_neighbors(index: Tensor, weight: Tensor, num_rows: int, x: Tensor) -> Tensor:
    """Return weighted sums of rows of x over edges, (num_rows, channels).

    By a sparse product, because a row of features for every edge would not fit in memory.
    """
    size = (num_rows, x.shape[0])
    return torch.sparse_coo_tensor(index, weight, size, check_invariants=False) @ x
