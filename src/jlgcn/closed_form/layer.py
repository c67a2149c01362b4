"""One layer of the closed form: diffuse features over a graph, classify them, learn the metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from jlgcn.closed_form.held_out import HeldOut
from jlgcn.closed_form.logistic import Logistic, fit_logistic, refit_logistic
from jlgcn.closed_form.options import SelectedOptions
from jlgcn.graphs import SparseGraph, personalized_pagerank
from jlgcn.graphs.candidates import Candidates, JoinedGraph
from jlgcn.graphs.diffusion import pagerank_rows
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


@dataclass(frozen=True, eq=False)
class Problem:
    """What all layers share.

    Attributes:
        candidates: candidate edges.
        projection: principal directions, (in_channels, n_components).
        features: principal components, which are diffused, (N, n_components).
        labeled: labelled nodes, validation nodes last, (M,).
        y: their classes, (M,).
        held_out: which of them are held out of which fit.
        num_classes: number of classes.
    """

    candidates: Candidates
    projection: Tensor
    features: Tensor
    labeled: Tensor
    y: Tensor
    held_out: HeldOut
    num_classes: int

    @property
    def sampled(self) -> Tensor:  # (M + S,), int64
        """The labelled nodes, and some of all nodes, evenly spaced."""
        num_nodes = len(self.features)
        count = min(num_nodes, _NUM_SAMPLED)
        others = torch.arange(count, device=self.labeled.device) * num_nodes // count
        return torch.cat([self.labeled, others])

    def no_metric(self) -> Tensor:  # (in_channels, num_classes)
        """Return R = 0, the metric of the first layer: the Euclidean distance alone."""
        return self.projection.new_zeros(self.projection.shape[0], self.num_classes)

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

    def diffuse_rows(
        self,
        joined: JoinedGraph,
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
        graph, index = joined.total.normalized(), self.sampled
        features = self.features[:, :num_components]
        parts = [
            pagerank_rows(graph, columns.contiguous(), restarts, index, tolerance=tolerance)
            for columns in features.split(DIFFUSED_COLUMNS, dim=-1)
        ]
        rows = unit_rows(torch.cat(parts, -1))
        return torch.stack([Scale.of(each[len(self.y) :])(each[: len(self.y)]) for each in rows])

    def classify(self, inputs: Tensor, *, is_final: bool) -> tuple[Logistic, Tensor, Tensor]:
        """Return a logistic regression on inputs of all nodes, and its weight and bias for them.

        Args:
            inputs: classifier inputs, (N, D), not scaled.
            is_final: solve finely, for the model's own classifier.
        """
        rows, scale = self._scaled(inputs)
        head = fit_logistic(rows, self.y, self.held_out, self.num_classes, is_final=is_final)
        return head, *scale.undo(head.weight, head.bias)

    def reclassify(
        self, inputs: Tensor, penalty: float, start: tuple[Tensor, Tensor], *, is_final: bool
    ) -> tuple[Tensor, Tensor]:
        """Return weight and bias as :meth:`classify` does, for a given penalty, from a start."""
        rows, scale = self._scaled(inputs)
        start = scale.redo(*start)
        head = refit_logistic(rows, self.y, self.held_out, penalty, start, is_final=is_final)
        return scale.undo(*head)

    def _scaled(self, inputs: Tensor) -> tuple[Tensor, Scale]:  # (M, D)
        rows = inputs[self.sampled]
        scale = Scale.of(rows[len(self.y) :])
        return scale(rows[: len(self.y)]), scale

    def fit_head(self, rows: Tensor) -> Logistic:
        """Return a logistic regression on scaled inputs of the labelled nodes, (M, D)."""
        return fit_logistic(rows, self.y, self.held_out, self.num_classes)

    def learn_metric(
        self, probability: Tensor, known: Tensor, options: SelectedOptions
    ) -> Tensor:  # (in_channels, num_classes)
        """Return R: the ridge regression of class probabilities on the features of all nodes.

        Self-training: unlabelled nodes count with their predicted probabilities, labelled ones
        with their class.

        Args:
            probability: predicted class probabilities of all nodes, (N, C); overwritten.
            known: which labels may be seen, (M,), bool.
            options: weight of the metric, and the control.
        """
        if options.control == "random metric":
            metric = torch.randn_like(self.no_metric())
            # Matched by variance: a learned metric lies along the directions in which features
            # vary most, so a random one of the same norm would add a fraction of its variance.
            z = (self.candidates.x @ metric).double()
            return metric * variance_scale(z, options.metric_weight).to(metric.dtype)
        labels = functional.one_hot(self.y[known], self.num_classes)
        probability[self.labeled[known]] = labels.to(probability.dtype)
        return self.projection @ regress_metric(
            self.features, probability, options.metric_weight
        ).to(self.projection.dtype)


def unit_rows(x: Tensor) -> Tensor:
    """Return rows of unit norm; rows of zeros stay zero.

    Long walks converge to the stationary distribution, proportional to √degree. Unit norm divides
    it out.
    """
    norm: Tensor = x.norm(dim=-1, keepdim=True)
    return x / norm.clamp(min=_SHORTEST)
