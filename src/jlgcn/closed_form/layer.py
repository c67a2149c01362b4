"""One layer of the closed form: diffuse features over a graph, classify them, learn the metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from jlgcn.closed_form.held_out import HeldOut
from jlgcn.closed_form.local import Hops
from jlgcn.closed_form.logistic import Logistic, fit_logistic, refit_logistic
from jlgcn.closed_form.options import SelectedOptions
from jlgcn.graphs import SparseGraph, personalized_pagerank
from jlgcn.graphs.candidates import Candidates, JoinedGraph
from jlgcn.graphs.diffusion import pagerank_rows
from jlgcn.ops import SparseFeatures
from jlgcn.ops.metric import regress_metric, variance_scale

# Columns that are diffused at a time. So few columns of all nodes stay in the processor's cache:
# all at once take more than twice as long, and three times the memory.
DIFFUSED_COLUMNS = 64

# Lower bound of a norm, so that rows of zeros stay zero.
_SHORTEST = 1e-30

# Nodes that stand for all when classifier inputs are centred and scaled, besides the labelled ones.
_NUM_SAMPLED = 500


class Diffused(NamedTuple):
    """The graph under a metric, and features diffused over it.

    Attributes:
        learned: the learned graph, not scaled.
        scale: factor of its weights in the sum.
        total: the scaled learned graph, the given one and self-loops.
        features: diffused features, (N, n_components).
    """

    learned: SparseGraph
    scale: float
    total: SparseGraph
    features: Tensor


class Scale(NamedTuple):
    """Shift and factor that centre classifier inputs and give them a mean squared norm of 1."""

    center: Tensor
    factor: float

    @classmethod
    def of(cls, rows: Tensor) -> Scale:
        """Return the statistics of a sample of rows, (K, D)."""
        center = rows.mean(0)
        variance = float((rows - center).square().sum(-1).mean())
        return cls(center, 1 / max(variance, _SHORTEST) ** 0.5)

    def __call__(self, rows: Tensor) -> Tensor:
        """Return scaled rows."""
        return (rows - self.center) * self.factor

    def undo(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:  # (D, C), (C,)
        """Return weight and bias of the same classifier of rows that are not scaled."""
        weight = self.factor * weight
        return weight, bias - self.center @ weight

    def redo(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:  # (D, C), (C,)
        """Return weight and bias for scaled rows, the inverse of :meth:`undo`."""
        return weight / self.factor, bias + self.center @ weight


class Softmax(NamedTuple):
    """Class probabilities of classifier inputs: the softmax of a linear function.

    Attributes:
        weight: (D, C).
        bias: (C,).
        scale: what inputs are scaled by before; None for nothing.
    """

    weight: Tensor
    bias: Tensor
    scale: Scale | None = None

    def __call__(self, inputs: Tensor) -> Tensor:  # (N, D) to (N, C)
        """Return class probabilities of unit rows."""
        scaled = inputs if self.scale is None else self.scale(inputs)
        return (scaled @ self.weight + self.bias).softmax(-1)


class HasLearned(Protocol):
    """Anything diffused, which remembers the learned graph that it was diffused over."""

    @property
    def learned(self) -> Any: ...  # noqa: ANN401, D102


# Graphs, and features diffused over them, of those who hold the nodes: tensors, or names of files.
J = TypeVar("J")
D = TypeVar("D", bound=HasLearned)


class Nodes(Protocol[J, D]):
    """What is done with all N nodes, by whoever holds them: in memory, or in shards.

    Everything else of a fit concerns labelled nodes and sums over nodes alone, and is written once,
    in :class:`Problem` and the files beside it.
    """

    @property
    def num_nodes(self) -> int:
        """Number of nodes, N."""

    @property
    def is_sparse(self) -> bool:
        """Whether features are sparse: words."""

    @property
    def has_given(self) -> bool:
        """Whether there is a given graph."""

    @property
    def projection(self) -> Tensor:
        """Principal directions, (in_channels, n_components)."""

    def join(self, metric: Tensor, options: SelectedOptions) -> J:
        """Return the learned graph under a metric, and its sum with the given one."""

    def diffuse(self, joined: J, options: SelectedOptions) -> D:
        """Return the principal components diffused over a graph."""

    def rows(self, diffused: D, index: Tensor) -> Tensor:  # (K, n_components)
        """Return some rows of diffused features."""

    def diffuse_rows(
        self,
        joined: J,
        restarts: Sequence[float],
        index: Tensor,
        tolerance: float,
        num_components: int | None,
    ) -> Tensor:  # (R, K, D)
        """Return some rows of features diffused with several restart probabilities."""

    def learn_metric(
        self,
        diffused: D,
        classifier: Softmax,
        known: Tensor,  # (K,), int64
        labels: Tensor,  # (K,), int64
        options: SelectedOptions,
    ) -> Tensor:  # (in_channels, C)
        """Return R: the ridge regression of class probabilities on the features of all nodes."""

    def components(self, index: Tensor) -> Tensor:  # (K, n_components)
        """Return principal components of some nodes."""

    def variance(self) -> float:
        """Return the total variance of the principal components of all nodes."""

    def blocks(
        self, index: Tensor, *, has_neighbors: bool, of_components: bool
    ) -> list[Tensor]:  # (K, F)
        """Return some rows of the blocks of :class:`Hops`, of features or of components."""


@dataclass(frozen=True, eq=False)
class NodesInMemory:
    """:class:`Nodes` whose features and graphs are tensors.

    Attributes:
        candidates: features and candidate edges.
        projection: principal directions, (in_channels, n_components).
        features: principal components, which are diffused, (N, n_components).
    """

    candidates: Candidates
    projection: Tensor
    features: Tensor

    @property
    def num_nodes(self) -> int:
        """Number of nodes, N."""
        return len(self.features)

    @property
    def is_sparse(self) -> bool:
        """Whether features are sparse: words."""
        return isinstance(self.candidates.x, SparseFeatures)

    @property
    def has_given(self) -> bool:
        """Whether there is a given graph."""
        return self.candidates.given is not None

    def join(self, metric: Tensor, options: SelectedOptions) -> JoinedGraph:
        """Return the learned graph under a metric, and its sum with the given one."""
        order = None
        if options.control == "shuffled graph":
            order = torch.randperm(self.features.shape[0], device=self.features.device)
        return self.candidates.join(
            metric,
            num_neighbors=options.n_neighbors,
            learned_degree=options.learned_degree,
            given_decay=options.given_decay,
            order=order,
        )

    def diffuse(self, joined: JoinedGraph, options: SelectedOptions) -> Diffused:
        """Return the features diffused over a graph."""
        graph = joined.total.normalized()
        diffused = [
            personalized_pagerank(
                graph, columns.contiguous(), options.restart, tolerance=options.tolerance
            )
            for columns in self.features.split(DIFFUSED_COLUMNS, dim=-1)
        ]
        return Diffused(*joined, torch.cat(diffused, -1))

    def rows(self, diffused: Diffused, index: Tensor) -> Tensor:  # (K, n_components)
        """Return some rows of diffused features."""
        return diffused.features[index]

    def diffuse_rows(
        self,
        joined: JoinedGraph,
        restarts: Sequence[float],
        index: Tensor,
        tolerance: float,
        num_components: int | None,
    ) -> Tensor:  # (R, K, D)
        """Return some rows of features diffused with several restart probabilities."""
        graph = joined.total.normalized()
        features = self.features[:, :num_components]
        parts = [
            pagerank_rows(graph, columns.contiguous(), restarts, index, tolerance=tolerance)
            for columns in features.split(DIFFUSED_COLUMNS, dim=-1)
        ]
        return torch.cat(parts, -1)

    def learn_metric(
        self,
        diffused: Diffused,
        classifier: Softmax,
        known: Tensor,
        labels: Tensor,
        options: SelectedOptions,
    ) -> Tensor:  # (in_channels, C)
        """Return R, or the random one of a control."""
        num_classes = len(classifier.bias)
        if options.control == "random metric":
            metric = torch.randn(
                self.projection.shape[0],
                num_classes,
                dtype=self.projection.dtype,
                device=self.projection.device,
            )
            # Matched by variance: a learned metric lies along the directions in which features
            # vary most, so a random one of the same norm would add a fraction of its variance.
            z = (self.candidates.x @ metric).double()
            return metric * variance_scale(z, options.metric_weight).to(metric.dtype)
        probability = classifier(unit_rows(diffused.features))
        probability[known] = functional.one_hot(labels, num_classes).to(probability.dtype)
        return self.projection @ regress_metric(
            self.features, probability, options.metric_weight
        ).to(self.projection.dtype)

    def components(self, index: Tensor) -> Tensor:  # (K, n_components)
        """Return principal components of some nodes."""
        return self.features[index]

    def variance(self) -> float:
        """Return the total variance of the principal components."""
        return float(self.features.var(0, correction=0).sum())

    def blocks(
        self, index: Tensor, *, has_neighbors: bool, of_components: bool
    ) -> list[Tensor]:  # (K, F)
        """Return some rows of the blocks of :class:`Hops`, of features or of components."""
        x = self.features if of_components else self.candidates.x
        return Hops(x, self.candidates.given if has_neighbors else None).rows(index)


@dataclass(frozen=True, eq=False)
class Problem(Generic[J, D]):
    """What all layers share.

    Attributes:
        nodes: all nodes.
        labeled: labelled nodes, validation nodes last, (M,).
        y: their classes, (M,).
        held_out: which of them are held out of which fit.
        num_classes: number of classes.
    """

    nodes: Nodes[J, D]
    labeled: Tensor
    y: Tensor
    held_out: HeldOut
    num_classes: int

    @property
    def sampled(self) -> Tensor:  # (M + S,), int64
        """The labelled nodes, and some of all nodes, evenly spaced."""
        num_nodes = self.nodes.num_nodes
        count = min(num_nodes, _NUM_SAMPLED)
        others = torch.arange(count, device=self.labeled.device) * num_nodes // count
        return torch.cat([self.labeled, others])

    def no_metric(self) -> Tensor:  # (in_channels, num_classes)
        """Return R = 0, the metric of the first layer: the Euclidean distance alone."""
        projection = self.nodes.projection
        return projection.new_zeros(projection.shape[0], self.num_classes)

    def diffuse_rows(
        self,
        joined: J,
        restarts: Sequence[float],
        tolerance: float,
        num_components: int | None = None,
    ) -> Tensor:  # (R, M, D)
        """Return scaled classifier inputs of the labelled nodes for several restarts at once.

        Args:
            joined: the graph.
            restarts: restart probabilities.
            tolerance: error of the diffusion.
            num_components: use so many principal components only; None for all.
        """
        rows = self.nodes.diffuse_rows(joined, restarts, self.sampled, tolerance, num_components)
        rows = unit_rows(rows)
        return torch.stack([Scale.of(each[len(self.y) :])(each[: len(self.y)]) for each in rows])

    def classify(self, diffused: D, *, is_final: bool) -> tuple[Logistic, Softmax]:
        """Return a logistic regression on diffused features, and its probabilities.

        Args:
            diffused: diffused features, not scaled.
            is_final: solve finely, for the model's own classifier.
        """
        rows, scale = self._scaled(diffused)
        head = fit_logistic(rows, self.y, self.held_out, self.num_classes, is_final=is_final)
        return head, Softmax(*scale.undo(head.weight, head.bias))

    def reclassify(self, diffused: D, penalty: float, start: Softmax, *, is_final: bool) -> Softmax:
        """Return the probabilities of :meth:`classify` for a given penalty, from a start."""
        rows, scale = self._scaled(diffused)
        first = scale.redo(start.weight, start.bias)
        head = refit_logistic(rows, self.y, self.held_out, penalty, first, is_final=is_final)
        return Softmax(*scale.undo(*head))

    def scale(self, diffused: D) -> Scale:
        """Return the statistics of unit rows of diffused features."""
        return self._scaled(diffused)[1]

    def _scaled(self, diffused: D) -> tuple[Tensor, Scale]:  # (M, D)
        rows = unit_rows(self.nodes.rows(diffused, self.sampled))
        scale = Scale.of(rows[len(self.y) :])
        return scale(rows[: len(self.y)]), scale

    def fit_head(self, rows: Tensor) -> Logistic:
        """Return a logistic regression on scaled inputs of the labelled nodes, (M, D)."""
        return fit_logistic(rows, self.y, self.held_out, self.num_classes)

    def learn_metric(
        self, diffused: D, classifier: Softmax, known: Tensor, options: SelectedOptions
    ) -> Tensor:  # (in_channels, num_classes)
        """Return R: the ridge regression of class probabilities on the features of all nodes.

        Self-training: unlabelled nodes count with their predicted probabilities, labelled ones
        with their class.

        Args:
            diffused: diffused features, whose unit rows are classified.
            classifier: their class probabilities.
            known: which labels may be seen, (M,), bool.
            options: weight of the metric, and the control.
        """
        return self.nodes.learn_metric(
            diffused, classifier, self.labeled[known], self.y[known], options
        )


def unit_rows(x: Tensor) -> Tensor:
    """Return rows of unit norm; rows of zeros stay zero.

    Long walks converge to the stationary distribution, proportional to √degree. Unit norm divides
    it out.
    """
    norm: Tensor = x.norm(dim=-1, keepdim=True)
    return x / norm.clamp(min=_SHORTEST)
