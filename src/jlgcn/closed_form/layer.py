"""One layer of the closed form: diffuse features over a graph, fit the head, learn the metric."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from jlgcn.closed_form.heads import fit_ridge
from jlgcn.closed_form.inputs import classifier_inputs
from jlgcn.closed_form.nystroem import Landmarks
from jlgcn.closed_form.options import SelectedOptions
from jlgcn.graphs import SparseGraph, personalized_pagerank
from jlgcn.graphs.candidates import Candidates
from jlgcn.ops.metric import regress_metric, variance_scale

# Columns that are diffused at a time. So few columns of all nodes stay in the processor's cache:
# all at once take more than twice as long, and three times the memory.
_DIFFUSED_COLUMNS = 64


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


class Head(NamedTuple):
    """A classifier of diffused features, its scores of all nodes and its held-out losses."""

    landmarks: Landmarks | None
    weight: Tensor
    bias: Tensor
    logits: Tensor
    losses: Tensor


@dataclass(frozen=True, eq=False)
class Problem:
    """What all layers share; attributes as the arguments of :func:`fit_closed_form`.

    Attributes:
        candidates: candidate edges.
        projection: principal directions, (in_channels, n_components).
        features: principal components, which are diffused, (N, n_components).
        y: classes.
        train: labelled nodes.
        val: validation nodes; None for leave-one-out.
        num_classes: number of classes.
    """

    candidates: Candidates
    projection: Tensor
    features: Tensor
    y: Tensor
    train: Tensor
    val: Tensor | None
    num_classes: int

    def no_metric(self) -> Tensor:  # (in_channels, num_classes)
        """Return R = 0, the metric of the first layer: the Euclidean distance alone."""
        return self.projection.new_zeros(self.projection.shape[0], self.num_classes)

    def diffuse(self, metric: Tensor, options: SelectedOptions) -> Diffused:
        """Return the graph under a metric, and the features diffused over it."""
        order = None
        if options.control == "shuffled graph":
            order = torch.randperm(self.features.shape[0], device=self.features.device)
        joined = self.candidates.join(
            metric,
            num_neighbors=options.n_neighbors,
            learned_degree=options.learned_degree,
            given_decay=options.given_decay,
            order=order,
        )
        graph = joined.total.normalized()
        diffused = [
            personalized_pagerank(
                graph, columns.contiguous(), options.restart, tolerance=options.tolerance
            )
            for columns in self.features.split(_DIFFUSED_COLUMNS, dim=-1)
        ]
        return Diffused(*joined, torch.cat(diffused, -1))

    def classify(self, diffused: Diffused, options: SelectedOptions) -> Head:
        """Return a ridge classifier of diffused features, linear or on a Nyström kernel."""
        inputs = classifier_inputs(
            options.inputs,
            diffused.features,
            diffused.total.degree(),
            self.features,
            self.neighbors,
        )
        landmarks = None
        if options.kernel_gamma > 0:
            landmarks = Landmarks.place(inputs, self.train, options.kernel_gamma)
            inputs = landmarks(inputs)
        weight, bias, losses = fit_ridge(inputs, self.y, self.train, self.val, self.num_classes)
        return Head(landmarks, weight, bias, inputs @ weight + bias, losses)

    @cached_property
    def neighbors(self) -> Tensor | None:
        """Sums of features over given neighbours, (N, n_components)."""
        given = self.candidates.given
        return None if given is None else given.matmul(self.features)

    def learn_metric(
        self, logits: Tensor, options: SelectedOptions
    ) -> Tensor:  # (in_channels, num_classes)
        """Return R: the ridge regression of class probabilities on the features of all nodes.

        Self-training: unlabelled nodes count with their predicted probabilities, labelled ones
        with their class.
        """
        if options.control == "random metric":
            metric = torch.randn_like(self.no_metric())
            # Matched by variance: a learned metric lies along the directions in which features
            # vary most, so a random one of the same norm would add a fraction of its variance.
            z = (self.candidates.x @ metric).double()
            return metric * variance_scale(z, options.metric_weight).to(metric.dtype)
        probability = logits.softmax(-1)
        labels = functional.one_hot(self.y[self.train], self.num_classes)
        probability[self.train] = labels.to(probability.dtype)
        return self.projection @ regress_metric(
            self.features, probability, options.metric_weight
        ).to(self.projection.dtype)
