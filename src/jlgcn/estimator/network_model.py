"""A trained network and the rows it was fitted to: predictions, edges and their explanations."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import scipy.sparse
import torch
from torch import Tensor

from jlgcn.closed_form.active import select_queries
from jlgcn.closed_form.explain import NodeExplanation
from jlgcn.graphs import SparseGraph, as_graph, gaussian_knn_graph
from jlgcn.graphs.attached import attach
from jlgcn.graphs.candidates import Features
from jlgcn.graphs.explanation import EdgeExplanation, decompose_distance, mean_contributions
from jlgcn.nn import JLGCN, DecoupledJLGCN
from jlgcn.nn.learner import MAX_EXACT_NODES, Backend
from jlgcn.ops import SparseFeatures


@dataclass(frozen=True, eq=False)
class NetworkModel:
    """A trained network and the rows it was fitted to (transductive).

    It is a :class:`jlgcn.nn.JLGCN` or a :class:`jlgcn.nn.DecoupledJLGCN`.

    All tensors are on one device.

    Attributes:
        network: the network, in evaluation mode.
        x: features of all rows, scaled, with a mean squared norm of 1, (N, in_channels).
        unit: norm by which the scaled features were divided.
        given: the given graph, or None.
        logits: class scores of all rows, (N, num_classes).
        hidden: features of all rows before layer 1, 2, …; each (N, hidden_channels).
        train: labelled rows, (M,), int64.
        labels: their classes, (M,), int64.
        validation: rows of `train` whose labels selected the epoch, (V,), int64.
        best_epoch: the selected epoch, from 0.
        curve: training loss, validation accuracy and validation loss of every epoch, (epochs, 3).
    """

    network: JLGCN | DecoupledJLGCN
    x: Features
    unit: float
    given: SparseGraph | None
    logits: Tensor
    hidden: tuple[Tensor, ...]
    train: Tensor
    labels: Tensor
    validation: Tensor
    best_epoch: int
    curve: Tensor

    #: Number of layers whose metric is of the input features; later ones see hidden features.
    num_column_layers = 1
    #: Factor of the learned weights where they are added to given ones.
    learned_scale = 1.0

    @property
    def learned_from(self) -> Tensor:  # (M - V,), int64
        """Labelled rows that trained the network; all if none could be held out."""
        rest = self.train[~torch.isin(self.train, self.validation)]
        return rest if len(rest) else self.train

    @property
    def num_layers(self) -> int:
        """Number of learned graphs."""
        return 1 + len(self.hidden)

    @property
    def history(self) -> list[dict[str, float]]:
        """Losses and validation accuracy, epoch by epoch."""
        names = ("loss", "val_accuracy", "val_loss")
        return [dict(zip(names, row, strict=True)) for row in self.curve.tolist()]

    @property
    def best_params(self) -> dict[str, int]:
        """The hyperparameter that validation selected: the epoch."""
        return {"epoch": self.best_epoch}

    @property
    def backend(self) -> Backend:
        """The backend that "auto" stands for."""
        if isinstance(self.network, DecoupledJLGCN):
            return "knn"
        if self.network.backend != "auto":
            return self.network.backend
        limit = MAX_EXACT_NODES.get(self.logits.device.type, MAX_EXACT_NODES["cpu"])
        return "exact" if self.logits.shape[0] <= limit else "knn"

    def __repr__(self) -> str:
        nodes, classes = self.logits.shape
        return f"NetworkModel({nodes:,} nodes, {classes} classes, epoch {self.best_epoch})"

    @torch.no_grad()
    def predict(
        self,
        x: Features,  # (M, in_channels)
        edges: tuple[Tensor, Tensor] | None = None,  # (2, E), int64, and (E,)
    ) -> Tensor:  # (M, num_classes)
        """Return class scores of new rows (inductive), each attached to the graph by itself.

        New rows stand behind the old ones (:func:`jlgcn.graphs.attach`) and have edges to old rows
        only, learned and given, so their scores do not depend on other new rows.

        Args:
            x: features of the new rows, scaled by the scaler of fit.
            edges: given edges as pairs of a new row and a row of fit, and their weights.

        Cost: a forward pass of all rows, old ones included, in float64, so that rounding does not
        depend on the number of new rows either. Of a decoupled network, a search for the neighbours
        of the new rows; at the first call, also among the rows of fit.
        """
        if isinstance(self.network, DecoupledJLGCN):
            new = as_float64(x, 1 / self.unit)
            new = new.map(Tensor.float) if isinstance(new, SparseFeatures) else new.float()
            return self.network.classify_new(self.x, self.given, self.logits, new, edges)
        num_old, num_new = self.logits.shape[0], x.shape[0]
        index, weight = (None, None) if edges is None else (edges[0], edges[1].double())
        given = as_graph(self.given, num_old, dtype=torch.float64, device=self.logits.device)
        rows = _stacked(as_float64(self.x), as_float64(x, 1 / self.unit))
        new = torch.arange(num_old, num_old + num_new, device=self.logits.device)
        network = copy.deepcopy(self.network).double()
        logits: Tensor = network(rows, attach(given, num_new, index, weight), new).logits
        return logits

    @torch.no_grad()
    def learned_graph(self, layer: int) -> SparseGraph:
        """Return the edges of each row to its nearest rows in the metric of a layer.

        Of an exact graph, these are the edges of largest weight.

        Cost: one search for nearest neighbours.
        """
        if isinstance(self.network, DecoupledJLGCN):
            return self.network.learn(self.x, self.given)[0]
        z = self.network.learners[layer].project(self._seen(layer))
        return gaussian_knn_graph(z, self.network.num_neighbors)

    def weighted_given(self) -> SparseGraph | None:
        """Return the given graph, or None; the network trusts all its edges equally."""
        return self.given

    def features_of(self, nodes: Tensor, layer: int) -> Tensor:  # (K, channels)
        """Return the features of some rows as the metric of a layer sees them."""
        return _dense_rows(self._seen(layer), nodes)

    def explain_edge(self, first: Tensor, second: Tensor, layer: int) -> EdgeExplanation:
        """Decompose the learned squared distance of two rows of :meth:`features_of`, exactly.

        See :meth:`jlgcn.nn.GraphLearner.explain_edge`. The first direction of a decoupled network
        is the Euclidean distance.
        """
        metric, euclidean = self._metric(layer)
        return decompose_distance(first.cpu(), second.cpu(), metric.cpu(), euclidean)

    def contributions(self, first: Tensor, second: Tensor) -> Tensor:  # (P, in_channels)
        """Return contributions of features to the squared distances of pairs in the first layer.

        Args:
            first: numbers of the first rows, (P,).
            second: numbers of the second rows, (P,).
        """
        metric, euclidean = self._metric(0)
        ends = (_dense_rows(self.x, nodes).cpu() for nodes in (first, second))
        explained = [
            decompose_distance(one, other, metric.cpu(), euclidean).features
            for one, other in zip(*ends, strict=True)
        ]
        return torch.stack(explained)

    def explain_node(self, node: int) -> NodeExplanation:
        """Raise: the scores of a network are no sum over edges."""
        raise ValueError(
            "the class scores of a network are not a sum over a row's edges, so a prediction has "
            "no exact explanation; explain an edge instead: explain_edge(i, j), or "
            '"jlgcn explain MODEL I J"; or fit with solver="closed_form"'
        )

    @torch.no_grad()
    def suggest_labels(self, num: int) -> Tensor:  # (num,), int64
        """Return the rows to label next (active learning), the most informative first.

        Sequential V-optimal design on the input of the last layer, as if labels changed that
        layer's weights only, see :func:`jlgcn.closed_form.active.select_queries`.

        Args:
            num: number of rows.
        """
        return select_queries(self.embedding(), self.train, num)

    def feature_importance(self, layer: int) -> Tensor:  # (channels,)
        """Return each feature's mean contribution to the squared distance of two rows.

        See :meth:`jlgcn.nn.GraphLearner.feature_importance`.
        """
        metric, euclidean = self._metric(layer)
        return mean_contributions(self._seen(layer), metric, euclidean or 0.0)

    def coordinates(self, x: Features) -> Tensor:  # (M, rank)
        """Return coordinates under the metric of the first layer: Rᵀx of scaled features."""
        seen = as_float64(x, 1 / self.unit)
        return seen @ self._metric(0)[0].double()

    def embedding(self) -> Tensor:  # (N, channels)
        """Return the features before the last layer; of a single layer, the class scores."""
        return self.hidden[-1] if self.hidden else self.logits

    def _metric(self, layer: int) -> tuple[Tensor, float | None]:  # (channels, rank), …
        """Return R, and the factor of the Euclidean part of a squared distance, if any."""
        if isinstance(self.network, DecoupledJLGCN):
            unit = self.network.distance_unit(self.x, self.given)
            return self.network.metric.weight.detach().mT, 1 / unit
        return self.network.learners[layer].metric.weight.detach().mT, None

    def _seen(self, layer: int) -> Features:
        seen: tuple[Features, ...] = (self.x, *self.hidden)
        return seen[layer]


def as_float64(x: Features, factor: float = 1.0) -> Features:
    """Return features in float64, times a factor."""
    if isinstance(x, SparseFeatures):
        return x.map(lambda value: value.double() * factor)
    return x.double() * factor


def _stacked(first: Features, second: Features) -> Features:
    if isinstance(first, Tensor):
        assert isinstance(second, Tensor)
        return torch.cat([first, second])
    assert isinstance(second, SparseFeatures)
    together = scipy.sparse.vstack([first.to_scipy(), second.to_scipy()])
    return SparseFeatures.from_scipy(together).to(first.device)


def _dense_rows(x: Features, nodes: Tensor) -> Tensor:
    if isinstance(x, Tensor):
        return x[nodes]
    rows = x.to_scipy()[nodes.cpu().numpy()].toarray()
    return torch.from_numpy(rows).to(x.device)
