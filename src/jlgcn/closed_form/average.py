"""The averaged classifiers of the closed form: their fits, weights and calibration."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from jlgcn.closed_form.classifier import Classifier, Evidence
from jlgcn.closed_form.combine import gain, inverse_temperature, part_weights
from jlgcn.closed_form.held_out import mean_loss
from jlgcn.closed_form.layer import D, J, Problem, Scale
from jlgcn.closed_form.logistic import cross_entropy
from jlgcn.closed_form.nystroem import Landmarks
from jlgcn.closed_form.options import SelectedOptions

# The linear classifier reads all features of the labelled nodes up to so many numbers, else their
# principal components.
_MAX_ROW_ENTRIES = 2**24


@dataclass(frozen=True, eq=False)
class Part:
    """A classifier of the average: its name, held-out logits, bias and the weights it has."""

    name: str
    held_out: Tensor  # (M, C)
    bias: Tensor  # (C,)
    graph: Tensor | None = None  # (D, C)
    blocks: Tensor | None = None  # (num_blocks, F, C)
    kernel: Tensor | None = None  # (L, C)
    landmarks: Landmarks | None = None


def local_parts(problem: Problem[J, D], options: SelectedOptions) -> list[Part]:
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


def _linear(problem: Problem[J, D], name: str) -> Part:
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
    return Part(
        name, head.held_out, bias, blocks=nodes.projection @ stacked if is_large else stacked
    )


def _kernel(problem: Problem[J, D]) -> Part:
    """Fit a classifier to a Nyström RBF kernel of own features."""
    features = problem.nodes.components(problem.sampled)
    landmarks = Landmarks.place(features[: len(problem.y)], problem.nodes.variance())
    whitening = landmarks.whitening().to(features.dtype)
    rows = landmarks.scores(features, whitening)
    scale = Scale.of(rows[len(problem.y) :])
    head = problem.fit_head(scale(rows[: len(problem.y)]))
    weight, bias = scale.undo(head.weight, head.bias)
    return Part("kernel", head.held_out, bias, kernel=whitening @ weight, landmarks=landmarks)


def average_parts(
    parts: list[Part], problem: Problem[J, D], options: SelectedOptions, counts: Tensor
) -> tuple[Classifier, Evidence]:
    """Weight the parts by their held-out losses, and calibrate the average."""
    names = options.parts.split("+")
    used = [part for part in parts if part.name in (*names, "neighbours")]
    logits = torch.stack([part.held_out.log_softmax(-1) for part in used])  # (P, M, C)
    y = problem.y
    count = problem.held_out.count[counts]
    losses = cross_entropy(logits, y)[:, counts]
    weights = part_weights(losses, count)
    average = (weights.view(-1, 1, 1) * logits).sum(0)
    factor = inverse_temperature(average[counts], y[counts], count)
    calibrated = factor * average
    classifier = _sum(used, [factor * float(weight) for weight in weights], problem)
    simple = [place for place, part in enumerate(used) if part.name in ("linear", "kernel")]
    average_losses = cross_entropy(calibrated, y)[counts]
    alone: tuple[float, float, float] | None = None
    if simple and len(simple) < len(used) and int(counts.sum()) > 1:
        shares = part_weights(losses[simple], count)
        own = (shares.view(-1, 1, 1) * logits[simple]).sum(0)
        own = inverse_temperature(own[counts], y[counts], count) * own
        own_losses = cross_entropy(own, y)[counts]
        alone = (float(mean_loss(own_losses, count)), *gain(average_losses, own_losses, count))
    return classifier, Evidence(
        weights={part.name: float(w) for part, w in zip(used, weights, strict=True)},
        losses={
            part.name: float(mean_loss(loss, count)) if len(loss) else 0.0
            for part, loss in zip(used, losses, strict=True)
        },
        without_graph=alone,
        held_out=calibrated.to(problem.nodes.projection.dtype),
        is_held_out=counts,
    )


def _sum(parts: list[Part], factors: list[float], problem: Problem[J, D]) -> Classifier:
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
