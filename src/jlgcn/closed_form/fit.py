"""The closed form: metric, graph and classifier learned in turn, each by linear algebra."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Generic, NamedTuple

import torch
from torch import Tensor

from jlgcn._memory import check_memory
from jlgcn._threads import threads_for
from jlgcn._validation import check_finite, check_labels, check_real, check_shape
from jlgcn.closed_form.average import Part, average_parts, local_parts
from jlgcn.closed_form.classifier import Classifier, Evidence
from jlgcn.closed_form.held_out import HeldOut, mean_loss
from jlgcn.closed_form.layer import D, Diffused, J, Nodes, NodesInMemory, Problem
from jlgcn.closed_form.logistic import cross_entropy
from jlgcn.closed_form.model import ClosedFormLayer, ClosedFormModel
from jlgcn.closed_form.nystroem import MAX_LANDMARKS
from jlgcn.closed_form.options import ClosedFormOptions, SelectedOptions, check_options
from jlgcn.closed_form.selection import select_graph, select_metric_weight
from jlgcn.graphs import SparseGraph
from jlgcn.graphs.candidates import Candidates, Features, JoinedGraph
from jlgcn.ops import SparseFeatures
from jlgcn.ops.svd import principal_directions


@torch.no_grad()
def fit_closed_form(
    x: Features,  # (N, in_channels)
    y: Tensor,  # (N,), int64
    graph: SparseGraph | None = None,
    *,
    train: Tensor,  # (M,), int64
    val: Tensor | None = None,  # (V,), int64
    weight: Tensor | None = None,  # (M,)
    count: Tensor | None = None,  # (N,)
    class_prior: Tensor | None = None,  # (C,)
    options: ClosedFormOptions | None = None,
) -> ClosedFormModel:
    r"""Learn a metric, a graph and a node classifier by alternating closed-form steps.

    A solver of the same idea as the network of `Tang et al. <https://arxiv.org/abs/1909.04931>`_,
    without its weights W_l, non-linearity, Laplacian regularizer and joint loss. Every layer builds
    a kNN graph with the paper's Gaussian kernel under a low-rank Mahalanobis metric plus a
    Euclidean one,

    .. math:: a_{ij} = \exp(-\|f_i - f_j\|^2 / u - \|R^\top (f_i - f_j)\|^2)

    adds it to the given graph, and diffuses features over the normalised sum by personalized
    PageRank (:func:`jlgcn.graphs.personalized_pagerank`). Then

    1. *head*: multinomial logistic regression classifies the diffused features;
    2. *metric*: R of the next layer is the ridge regression of the predicted class probabilities on
       the features of all nodes (self-training). R is 0 in the first layer.

    The scores are averaged with those of classifiers that see no learned graph (`options.parts`):
    logistic regression on own features, on own features and means over given neighbours, and on a
    Nyström RBF kernel. Held-out log-losses weight the average and calibrate it by temperature
    scaling. They are cross-validated on `train`, or those of `val`; a metric is learned again
    without the labels that a split holds out.

    Deterministic, except for the controls.

    Args:
        x: features, scaled (:class:`jlgcn.closed_form.FeatureScaler`). Everything is computed on
            their device, where the other arguments must be, too.
        y: classes; only those of `train` and `val` are read.
        graph: the given graph, or None.
        train: labelled nodes.
        val: validation nodes, which select hyperparameters, weights and temperature; None for
            cross-validation on `train`.
        weight: weights of the training labels in the classifiers, whose mean is set to 1; None for
            equal ones.
        count: number of labels, above 0, that the label of each node counts as, in the classifiers
            and in held-out losses; only those of `train` and `val` are read. None for 1.
        class_prior: probability of each class among all nodes, where it differs from that among the
            labels: scores are shifted by the logarithm of their ratio. None for no shift.
        options: hyperparameters; None for the defaults.

    Cost: one search for `n_candidates` neighbours; a diffusion of 64 columns over about
    2·N·n_neighbors edges for each of three graphs (about a dozen with a given graph); one of
    `n_components` columns for each layer, and for each split and weight of the metric.
    Memory N·(2·n_candidates + 8·n_components + 1024).

    Example:
        >>> x = torch.cat([torch.linspace(0, 1, 30), torch.linspace(5, 6, 30)]).unsqueeze(-1)
        >>> y = torch.tensor([0] * 30 + [1] * 30)
        >>> model = fit_closed_form(x, y, train=torch.tensor([3, 33]))
        >>> bool((model.logits.argmax(-1) == y).all())
        True
    """
    options = ClosedFormOptions() if options is None else options
    check_options(options)
    _check(x, y, train, val, options)
    with threads_for(x.shape[0] * min(x.shape[1], options.n_components)):
        return _fit(x, y, graph, train, val, weight, count, class_prior, options)


def _fit(
    x: Features,
    y: Tensor,
    graph: SparseGraph | None,
    train: Tensor,
    val: Tensor | None,
    weight: Tensor | None,
    count: Tensor | None,
    class_prior: Tensor | None,
    options: ClosedFormOptions,
) -> ClosedFormModel:
    problem = _problem(x, y, graph, train, val, weight, count, options)
    fitted = fit_layers(problem, options, class_prior)
    diffused, nodes = fitted.diffused, problem.nodes
    assert isinstance(nodes, NodesInMemory)
    return ClosedFormModel(
        options=fitted.options,
        candidates=nodes.candidates,
        layers=fitted.layers,
        graph=diffused.total,
        learned_scale=diffused.scale,
        projection=nodes.projection,
        diffused=diffused.features,
        classifier=fitted.classifier,
        evidence=fitted.evidence,
        train=train,
        labels=y[train],
        counts=problem.held_out.count[: len(train)].to(diffused.features.dtype),
    )


class Fitted(NamedTuple, Generic[D]):
    """What :func:`fit_layers` returns.

    Attributes:
        options: hyperparameters, with the selected values.
        layers: metric, learned graph and loss of each layer.
        diffused: what the last layer diffused.
        classifier: the averaged classifiers, as one.
        evidence: held-out losses and predictions, and the weights that follow from them.
    """

    options: SelectedOptions
    layers: tuple[ClosedFormLayer, ...]
    diffused: D
    classifier: Classifier
    evidence: Evidence


@torch.no_grad()
def fit_layers(
    problem: Problem[J, D], options: ClosedFormOptions, class_prior: Tensor | None = None
) -> Fitted[D]:
    """Run the steps of :func:`fit_closed_form`, wherever the nodes are.

    Args:
        problem: the nodes, the labels, and which are held out.
        options: hyperparameters.
        class_prior: probability of each class among all nodes, (C,); None for no shift.
    """
    nodes = problem.nodes
    selected = select_graph(problem, options)
    metric = problem.no_metric()
    diffused = nodes.diffuse(nodes.join(metric, selected), selected)
    head, classifier = problem.classify(diffused, is_final=selected.n_layers == 1)
    selected, held_out, counts = select_metric_weight(problem, options, selected, diffused, head)
    losses = [_mean_loss(head.held_out, problem), _mean_loss(held_out, problem, counts)]
    layers = [ClosedFormLayer(metric, diffused.learned, losses[0])]
    everything = problem.held_out.final > 0
    for number in range(1, selected.n_layers):
        metric = problem.learn_metric(diffused, classifier, everything, selected)
        diffused = nodes.diffuse(nodes.join(metric, selected), selected)
        is_last = number == selected.n_layers - 1
        classifier = problem.reclassify(diffused, head.penalty, classifier, is_final=is_last)
        layers.append(ClosedFormLayer(metric, diffused.learned, losses[1]))
    parts = [Part("graph", held_out, classifier.bias, graph=classifier.weight)]
    parts = [*local_parts(problem, selected), *parts]
    average, evidence = average_parts(parts, problem, selected, counts)
    if class_prior is not None:
        average = with_prior(average, class_prior, problem)
    return Fitted(selected, tuple(layers), diffused, average, evidence)


@torch.no_grad()
def refit_heads(problem: Problem[J, D], options: SelectedOptions, metric: Tensor) -> Fitted[D]:
    """Fit the classifiers alone: nodes, edges or labels are new, metric and options stay.

    Held-out predictions of the graph part are optimistic, as the metric has seen the labels of the
    first fit.

    Args:
        problem: the nodes, the labels, and which are held out.
        options: hyperparameters of the fit.
        metric: R of its last layer, (in_channels, C').

    Cost: one diffusion, from the old solution where the nodes have one.
    """
    nodes = problem.nodes
    diffused = nodes.diffuse(nodes.join(metric, options), options)
    head, classifier = problem.classify(diffused, is_final=True)
    parts = [Part("graph", head.held_out, classifier.bias, graph=classifier.weight)]
    parts = [*local_parts(problem, options), *parts]
    average, evidence = average_parts(parts, problem, options, problem.held_out.counts(problem.y))
    layer = ClosedFormLayer(metric, diffused.learned, _mean_loss(head.held_out, problem))
    return Fitted(options, (layer,), diffused, average, evidence)


def _problem(
    x: Features,
    y: Tensor,
    graph: SparseGraph | None,
    train: Tensor,
    val: Tensor | None,
    weight: Tensor | None,
    count: Tensor | None,
    options: ClosedFormOptions,
) -> Problem[JoinedGraph, Diffused]:
    """Search neighbours, project, and decide which labels are held out."""
    candidates = Candidates.find(x, options.n_candidates, graph)
    projection = principal_directions(x, options.n_components)
    nodes = NodesInMemory(candidates, projection, x @ projection)
    labeled = train if val is None else torch.cat([train, val])
    return labelled_problem(
        nodes,
        labeled,
        y[labeled],
        num_val=None if val is None else len(val),
        weight=weight,
        count=None if count is None else count[labeled],
    )


def labelled_problem(
    nodes: Nodes[J, D],
    labeled: Tensor,  # (M,), int64
    y: Tensor,  # (M,), int64
    *,
    num_val: int | None = None,
    weight: Tensor | None = None,  # (M - num_val,)
    count: Tensor | None = None,  # (M,)
) -> Problem[J, D]:
    """Decide which labels are held out of which fit.

    Args:
        nodes: all nodes.
        labeled: labelled nodes, validation nodes last.
        y: their classes.
        num_val: number of validation nodes; None for cross-validation.
        weight: weights of the training labels in the classifiers, whose mean is set to 1; None for
            equal ones.
        count: number of labels that each counts as; None for 1.
    """
    ones = torch.ones(len(labeled), dtype=torch.float64, device=labeled.device)
    count = ones if count is None else count.double()
    weights = count.clone()
    if weight is not None:
        mean = mean_loss(weight.double(), count[: len(weight)])
        weights[: len(weight)] *= weight / mean.clamp(min=1e-30)
    held_out = (
        HeldOut.folds(y, weights, count)
        if num_val is None
        else HeldOut.validation(weights, num_val, count)
    )
    return Problem(nodes, labeled, y, held_out, num_classes=int(y.max()) + 1)


def with_prior(classifier: Classifier, prior: Tensor, problem: Problem[J, D]) -> Classifier:
    """Return a classifier whose bias is shifted to prior probabilities of the classes, (C,).

    By the logarithm of each class's prior over its share of the labels' weight. A class that no
    training label has was not learned, and keeps its bias.
    """
    weight = problem.held_out.final
    share = torch.bincount(problem.y, weight, minlength=problem.num_classes) / weight.sum()
    shift = torch.where(share > 0, prior.double() / share, 1).log()
    return replace(classifier, bias=classifier.bias + shift.to(classifier.bias.dtype))


def _mean_loss(logits: Tensor, problem: Problem[J, D], counts: Tensor | None = None) -> float:
    counts = problem.held_out.counts(problem.y) if counts is None else counts
    losses = cross_entropy(logits, problem.y)[counts]
    return float(mean_loss(losses, problem.held_out.count[counts])) if len(losses) else 0.0


def _check(
    x: Features, y: Tensor, train: Tensor, val: Tensor | None, options: ClosedFormOptions
) -> None:
    check_shape(x.shape, "x")
    check_real(x.dtype, "x")
    check_finite(x.value if isinstance(x, SparseFeatures) else x)
    num_nodes, num_features = x.shape
    check_labels(y, train, num_nodes)
    if val is not None:
        check_labels(y, val, num_nodes, name="val")
    needed = bytes_of_fit(num_nodes, num_features, options, x.dtype.itemsize)
    check_memory(
        needed, x.device, f"{num_nodes:,} nodes of {num_features:,} features", "n_components=64"
    )


def bytes_of_fit(
    num_nodes: int, num_features: int, options: ClosedFormOptions[Any], itemsize: int = 4
) -> int:
    """Return the memory that :func:`fit_closed_form` takes, besides the features."""
    num_components = min(options.n_components, num_nodes, num_features)
    num_numbers = 8 * num_components + 2 * MAX_LANDMARKS
    per_node = 12 * 2 * options.n_candidates + num_numbers * itemsize
    # What `principal_directions` takes at its peak: with few rows, its answer and the features in
    # float64; else its basis, with copies of it in float64 (26 bytes were measured).
    is_few_rows = num_nodes < min(options.n_components, num_features)
    per_entry = itemsize + 8 if is_few_rows else 26
    return num_nodes * per_node + num_features * num_components * per_entry
