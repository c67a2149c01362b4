"""New labels for a fitted model: classifiers are fitted again, metric and graph are kept."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from jlgcn._threads import threads_for
from jlgcn.closed_form.average import Part, average_parts, local_parts
from jlgcn.closed_form.fit import labelled_problem, with_prior
from jlgcn.closed_form.layer import Diffused, NodesInMemory
from jlgcn.closed_form.model import ClosedFormModel


@torch.no_grad()
def update_labels(
    model: ClosedFormModel,
    train: Tensor,  # (M,), int64
    labels: Tensor,  # (M,), int64
    *,
    weight: Tensor | None = None,  # (M,)
    count: Tensor | None = None,  # (M,)
    class_prior: Tensor | None = None,  # (C,)
) -> ClosedFormModel:
    """Return a model whose classifiers are fitted to other labels, on the kept diffusion.

    Hyperparameters, metric and graph stay. Cross-validation selects the penalties, the weights of
    the averaged classifiers and the temperature again; labels that the metric was learned from are
    not held out of it, so the graph's held-out loss is slightly too low.

    Args:
        model: the fitted model.
        train: labelled nodes, old and new.
        labels: their classes, less than the number of columns of the metric.
        weight: weights of the labels, as in :func:`fit_closed_form`.
        count: number of labels that each counts as; None for 1.
        class_prior: probability of each class among all nodes; None for no shift.

    Cost: three or four logistic regressions on M rows, and the scores of all nodes.
    """
    nodes = NodesInMemory(model.candidates, model.projection, model.features)
    diffused = Diffused(model.layers[-1].learned, model.learned_scale, model.graph, model.diffused)
    num_classes = model.layers[-1].metric.shape[1]
    with threads_for(nodes.features.numel()):
        problem = labelled_problem(nodes, train, labels, weight=weight, count=count)
        problem = replace(problem, num_classes=num_classes)
        head, softmax = problem.classify(diffused, is_final=True)
        part = Part("graph", head.held_out, softmax.bias, graph=softmax.weight)
        counts = problem.held_out.counts(labels)
        parts = [*local_parts(problem, model.options), part]
        classifier, evidence = average_parts(parts, problem, model.options, counts)
        if class_prior is not None:
            classifier = with_prior(classifier, class_prior, problem)
    return replace(
        model,
        classifier=classifier,
        evidence=evidence,
        train=train,
        labels=labels,
        counts=problem.held_out.count.to(model.diffused.dtype),
    )


def with_classes(model: ClosedFormModel, places: Tensor, num_classes: int) -> ClosedFormModel:
    """Return the same metric and graph among more classes.

    Args:
        model: the fitted model.
        places: number of each old class among the new ones, (C_old,), int64.
        num_classes: number of classes; the metric has no direction for new ones.
    """
    layers = []
    for layer in model.layers:
        metric = layer.metric.new_zeros(layer.metric.shape[0], num_classes)
        metric[:, places] = layer.metric
        layers.append(layer._replace(metric=metric))
    return replace(model, layers=tuple(layers))
