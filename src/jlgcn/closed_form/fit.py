"""The closed form: metric, graph and classifier learned in turn, each by linear algebra."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Generic, NamedTuple

import torch
from torch import Tensor

from jlgcn._memory import check_memory
from jlgcn._threads import threads_for
from jlgcn._validation import check_finite, check_labels, check_real, check_shape
from jlgcn.closed_form.classifier import Classifier, Evidence
from jlgcn.closed_form.combine import gain, inverse_temperature, part_weights
from jlgcn.closed_form.held_out import HeldOut
from jlgcn.closed_form.layer import D, Diffused, J, Nodes, NodesInMemory, Problem, Scale
from jlgcn.closed_form.logistic import cross_entropy
from jlgcn.closed_form.model import ClosedFormLayer, ClosedFormModel
from jlgcn.closed_form.nystroem import MAX_LANDMARKS, Landmarks
from jlgcn.closed_form.options import ClosedFormOptions, SelectedOptions, check_options
from jlgcn.closed_form.selection import select_graph, select_metric_weight
from jlgcn.graphs import SparseGraph
from jlgcn.graphs.candidates import Candidates, Features, JoinedGraph
from jlgcn.ops import SparseFeatures
from jlgcn.ops.svd import principal_directions

# The linear classifier reads all features of the labelled nodes up to so many numbers, else their
# principal components.
_MAX_ROW_ENTRIES = 2**24


@torch.no_grad()
def fit_closed_form(
    x: Features,  # (N, in_channels)
    y: Tensor,  # (N,), int64
    graph: SparseGraph | None = None,
    *,
    train: Tensor,  # (M,), int64
    val: Tensor | None = None,  # (V,), int64
    weight: Tensor | None = None,  # (M,)
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
        weight: weights of the training labels in the classifiers; None for 1.
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
        return _fit(x, y, graph, train, val, weight, class_prior, options)


def _fit(
    x: Features,
    y: Tensor,
    graph: SparseGraph | None,
    train: Tensor,
    val: Tensor | None,
    weight: Tensor | None,
    class_prior: Tensor | None,
    options: ClosedFormOptions,
) -> ClosedFormModel:
    problem = _problem(x, y, graph, train, val, weight, options)
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
    parts = [_Part("graph", held_out, classifier.bias, graph=classifier.weight)]
    parts = [*_local_parts(problem, selected), *parts]
    average, evidence = _average(parts, problem, selected, counts)
    if class_prior is not None:
        average = replace(average, bias=average.bias + _shift(class_prior, problem))
    return Fitted(selected, tuple(layers), diffused, average, evidence)


@dataclass(frozen=True, eq=False)
class _Part:
    """A classifier of the average: its name, held-out logits, bias and the weights it has."""

    name: str
    held_out: Tensor  # (M, C)
    bias: Tensor  # (C,)
    graph: Tensor | None = None  # (D, C)
    blocks: Tensor | None = None  # (num_blocks, F, C)
    kernel: Tensor | None = None  # (L, C)
    landmarks: Landmarks | None = None


def _problem(
    x: Features,
    y: Tensor,
    graph: SparseGraph | None,
    train: Tensor,
    val: Tensor | None,
    weight: Tensor | None,
    options: ClosedFormOptions,
) -> Problem[JoinedGraph, Diffused]:
    """Search neighbours, project, and decide which labels are held out."""
    candidates = Candidates.find(x, options.n_candidates, graph)
    projection = principal_directions(x, options.n_components)
    nodes = NodesInMemory(candidates, projection, x @ projection)
    labeled = train if val is None else torch.cat([train, val])
    return labelled_problem(
        nodes, labeled, y[labeled], num_val=None if val is None else len(val), weight=weight
    )


def labelled_problem(
    nodes: Nodes[J, D],
    labeled: Tensor,  # (M,), int64
    y: Tensor,  # (M,), int64
    *,
    num_val: int | None = None,
    weight: Tensor | None = None,  # (M - num_val,)
) -> Problem[J, D]:
    """Decide which labels are held out of which fit.

    Args:
        nodes: all nodes.
        labeled: labelled nodes, validation nodes last.
        y: their classes.
        num_val: number of validation nodes; None for cross-validation.
        weight: weights of the training labels in the classifiers; None for 1.
    """
    weights = torch.ones(len(labeled), dtype=torch.float64, device=labeled.device)
    if weight is not None:
        weights[: len(weight)] = weight / weight.double().mean().clamp(min=1e-30)
    held_out = (
        HeldOut.folds(y, weights)
        if num_val is None
        else HeldOut.validation(weights, num_val=num_val)
    )
    return Problem(nodes, labeled, y, held_out, num_classes=int(y.max()) + 1)


def _local_parts(problem: Problem[J, D], options: SelectedOptions) -> list[_Part]:
    """Fit the classifiers that see no learned graph."""
    parts = []
    names = options.parts.split("+")
    if "linear" in names:
        parts.append(_linear(problem, "linear"))
        if problem.nodes.has_given:
            parts.append(_linear(problem, "neighbours"))
    if "kernel" in names:
        parts.append(_kernel(problem))
    return parts


def _linear(problem: Problem[J, D], name: str) -> _Part:
    """Fit a linear classifier to own features, or to all blocks of :class:`Hops`."""
    nodes, index = problem.nodes, problem.sampled
    has_neighbors = name == "neighbours"
    num_blocks = 3 if has_neighbors else 1
    is_large = len(index) * nodes.projection.shape[0] * num_blocks > _MAX_ROW_ENTRIES
    blocks = nodes.blocks(index, has_neighbors=has_neighbors, of_components=is_large)
    num_labels = len(problem.y)
    scales = [Scale.of(block[num_labels:]) for block in blocks]
    scaled = [scale(block[:num_labels]) for scale, block in zip(scales, blocks, strict=True)]
    share = num_blocks**-0.5  # all blocks together have a mean squared norm of 1
    head = problem.fit_head(share * torch.cat(scaled, -1))
    bias, weights = head.bias, []
    for scale, weight in zip(scales, head.weight.chunk(num_blocks), strict=True):
        weights.append(share * scale.factor * weight)
        bias = bias - scale.center @ weights[-1]
    stacked = torch.stack(weights)
    return _Part(
        name, head.held_out, bias, blocks=nodes.projection @ stacked if is_large else stacked
    )


def _kernel(problem: Problem[J, D]) -> _Part:
    """Fit a classifier to a Nyström RBF kernel of own features."""
    features = problem.nodes.components(problem.sampled)
    landmarks = Landmarks.place(features[: len(problem.y)], problem.nodes.variance())
    whitening = landmarks.whitening().to(features.dtype)
    rows = landmarks.scores(features, whitening)
    scale = Scale.of(rows[len(problem.y) :])
    head = problem.fit_head(scale(rows[: len(problem.y)]))
    weight, bias = scale.undo(head.weight, head.bias)
    return _Part("kernel", head.held_out, bias, kernel=whitening @ weight, landmarks=landmarks)


def _average(
    parts: list[_Part], problem: Problem[J, D], options: SelectedOptions, counts: Tensor
) -> tuple[Classifier, Evidence]:
    """Weight the parts by their held-out losses, and calibrate the average."""
    names = options.parts.split("+")
    used = [part for part in parts if part.name in (*names, "neighbours")]
    logits = torch.stack([part.held_out.log_softmax(-1) for part in used])  # (P, M, C)
    y = problem.y
    losses = cross_entropy(logits, y)[:, counts]
    weights = part_weights(losses)
    average = (weights.view(-1, 1, 1) * logits).sum(0)
    factor = inverse_temperature(average[counts], y[counts])
    calibrated = factor * average
    classifier = _sum(used, [factor * float(weight) for weight in weights], problem)
    simple = [place for place, part in enumerate(used) if part.name in ("linear", "kernel")]
    average_losses = cross_entropy(calibrated, y)[counts]
    alone: tuple[float, float, float] | None = None
    if simple and len(simple) < len(used) and int(counts.sum()) > 1:
        shares = part_weights(losses[simple])
        own = (shares.view(-1, 1, 1) * logits[simple]).sum(0)
        own = inverse_temperature(own[counts], y[counts]) * own
        own_losses = cross_entropy(own, y)[counts]
        alone = (float(own_losses.mean()), *gain(average_losses, own_losses))
    return classifier, Evidence(
        weights={part.name: float(w) for part, w in zip(used, weights, strict=True)},
        losses={
            part.name: float(loss.mean()) if len(loss) else 0.0
            for part, loss in zip(used, losses, strict=True)
        },
        without_graph=alone,
        held_out=calibrated.to(problem.nodes.projection.dtype),
        is_held_out=counts,
    )


def _sum(parts: list[_Part], factors: list[float], problem: Problem[J, D]) -> Classifier:
    """Return one classifier whose scores are a sum of those of the parts."""
    like, num_classes = problem.nodes.projection, problem.num_classes
    found = [part.blocks for part in parts if part.blocks is not None]
    num_blocks = max((len(blocks) for blocks in found), default=0)
    graph = like.new_zeros(like.shape[1], num_classes)
    blocks = like.new_zeros(num_blocks, like.shape[0], num_classes)
    bias, kernel = like.new_zeros(num_classes), like.new_zeros(0, num_classes)
    landmarks = Landmarks(like.new_zeros(0, like.shape[1]), 0.0)
    for factor, part in zip(factors, parts, strict=True):
        bias += factor * part.bias
        if part.graph is not None:
            graph += factor * part.graph
        if part.blocks is not None:
            blocks[: len(part.blocks)] += factor * part.blocks
        if part.kernel is not None and part.landmarks is not None:
            landmarks, kernel = part.landmarks, factor * part.kernel
    return Classifier(graph, blocks, landmarks, kernel, bias)


def _shift(prior: Tensor, problem: Problem[J, D]) -> Tensor:  # (C,)
    """Return the logarithm of each class's prior over its share of the labels' weight."""
    weight = problem.held_out.final
    share = torch.bincount(problem.y, weight, minlength=problem.num_classes) / weight.sum()
    return (prior.double() / share.clamp(min=1e-12)).log().to(problem.nodes.projection.dtype)


def _mean_loss(logits: Tensor, problem: Problem[J, D], counts: Tensor | None = None) -> float:
    counts = problem.held_out.counts(problem.y) if counts is None else counts
    losses = cross_entropy(logits, problem.y)[counts]
    return float(losses.mean()) if len(losses) else 0.0


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
    num_components = min(options.n_components, num_nodes, num_features)
    num_numbers = 8 * num_components + 2 * MAX_LANDMARKS
    per_node = 12 * 2 * options.n_candidates + num_numbers * x.dtype.itemsize
    # What `principal_directions` takes at its peak: with few rows, its answer and the features in
    # float64; else its basis, with copies of it in float64 (26 bytes were measured).
    is_few_rows = num_nodes < min(options.n_components, num_features)
    per_entry = x.dtype.itemsize + 8 if is_few_rows else 26
    needed = num_nodes * per_node + num_features * num_components * per_entry
    check_memory(
        needed, x.device, f"{num_nodes:,} nodes of {num_features:,} features", "n_components=64"
    )
