"""Selection of hyperparameters by held-out log-loss, and held-out predictions of the graph part."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from jlgcn.closed_form.held_out import mean_loss, standard_error
from jlgcn.closed_form.layer import D, J, Problem, Softmax
from jlgcn.closed_form.logistic import Coordinates, Logistic, cross_entropy, solve
from jlgcn.closed_form.options import ClosedFormOptions, SelectedOptions

# Candidates, the default first.
_RESTARTS = (0.05, 0.02, 0.2, 0.8)
_NEIGHBORS = (20, 10, 40)
_GIVEN_DECAYS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
_LEARNED_DEGREES = (1.0, 0.5, 2.0, 4.0)
_LEARNED_DEGREE_ALONE = 7.0
# Words: rare ones make distances, and few of them a metric. Dense features take a stronger one.
_METRIC_WEIGHTS_OF_WORDS = (0.1, 1.0)
_METRIC_WEIGHTS = (1.0, 0.1)

# Graphs are compared on so many components, at this penalty: they rank graphs as all components
# and penalties do, in a fraction of the time.
_COMPONENTS_OF_GRAPHS = 64
_PENALTY = 0.1
_TOLERANCE = 0.05  # of the diffusion, while models are compared

# The metric is learned again without the labels of a split, for at least two splits and for as
# many as keep this number of rows within bounds.
_ROWS_OF_SPLITS = 6_000

# Fewer held-out labels than these cannot tell weights of the metric apart.
_LABELS_FOR_METRIC = 64


def select_graph(problem: Problem[J, D], options: ClosedFormOptions) -> SelectedOptions:
    """Return the options with values for every None that held-out labels select.

    Coordinate-wise greedy search in the first layer, whose graph does not depend on labels; every
    graph is tried with all restart probabilities. The weight of the metric stays at its default
    (:func:`select_metric_weight`).
    """
    is_alone = not problem.nodes.has_given
    is_words = problem.nodes.is_sparse
    grid: dict[str, tuple[Any, ...]] = {
        "restart": _RESTARTS,
        "n_neighbors": _NEIGHBORS,
        "given_decay": (0.0,) if is_alone else _GIVEN_DECAYS,
        "learned_degree": (_LEARNED_DEGREE_ALONE,) if is_alone else _LEARNED_DEGREES,
        "metric_weight": _METRIC_WEIGHTS_OF_WORDS if is_words else _METRIC_WEIGHTS,
    }
    for name in grid:
        if getattr(options, name) is not None:
            grid[name] = (getattr(options, name),)
    defaults = {name: values[0] for name, values in grid.items()}
    best: SelectedOptions = ClosedFormOptions(**(asdict(options) | defaults))
    restarts = grid["restart"]
    changes: list[dict[str, Any]] = [{}]
    for name in ("n_neighbors", "given_decay", "learned_degree"):
        changes += [{name: value} for value in grid[name][1:]]
    counts = problem.held_out.counts(problem.y)
    if len(changes) * len(restarts) == 1 or int(counts.sum()) < 2:
        return best
    count = problem.held_out.count[counts]
    losses: Tensor | None = None
    tolerance = max(options.tolerance, _TOLERANCE)
    for change in changes:
        tried = replace(best, **change)
        joined = problem.nodes.join(problem.no_metric(), tried)
        rows = problem.diffuse_rows(joined, restarts, tolerance, _COMPONENTS_OF_GRAPHS)
        found = _losses(problem, rows)[:, counts]
        if losses is None:
            losses = found[0]
        place = int(mean_loss(found, count).argmin())
        if is_better(found[place], losses, count, by_mean=problem.held_out.is_validation):
            losses, best = found[place], replace(tried, restart=restarts[place])
    return best


def select_metric_weight(
    problem: Problem[J, D],
    options: ClosedFormOptions,
    selected: SelectedOptions,
    first: D,
    head: Logistic,
) -> tuple[SelectedOptions, Tensor, Tensor]:
    """Return options, held-out logits of the graph part, (M, C), and which labels they are of.

    The metric of the second layer is learned again for every split, without the labels that it
    holds out, so these logits have never seen the label. With one layer, they are the first's.

    Args:
        problem: what all layers share.
        options: the options as the user gave them.
        selected: the options as :func:`select_graph` returned them.
        first: features diffused over the first graph.
        head: the classifier of the first layer.
    """
    counts = problem.held_out.counts(problem.y)
    if selected.n_layers == 1 or int(counts.sum()) < 2:
        return selected, head.held_out, counts
    num_splits = min(
        problem.held_out.num_splits, max(2, _ROWS_OF_SPLITS // problem.nodes.num_nodes)
    )
    counts &= problem.held_out.fold < num_splits
    weights: tuple[float, ...] = (selected.metric_weight,)
    if options.metric_weight is None and int(counts.sum()) >= _LABELS_FOR_METRIC:
        is_words = problem.nodes.is_sparse
        weights = _METRIC_WEIGHTS_OF_WORDS if is_words else _METRIC_WEIGHTS
    best: tuple[SelectedOptions, Tensor, Tensor] | None = None
    for weight in weights:
        tried = replace(selected, metric_weight=weight)
        logits = _second_layer(problem, tried, first, head, num_splits)
        losses = cross_entropy(logits, problem.y)[counts]
        count, by_mean = problem.held_out.count[counts], problem.held_out.is_validation
        if best is None or is_better(losses, best[2], count, by_mean=by_mean):
            best = tried, logits, losses
    assert best is not None
    return best[0], best[1], counts


def is_better(new: Tensor, old: Tensor, count: Tensor, *, by_mean: bool) -> bool:
    """Return whether held-out log-losses, (V,), favour a candidate over the current value.

    Args:
        new: losses of the candidate.
        old: losses of the current value.
        count: number of labels that each counts as, (V,).
        by_mean: compare means, which validation labels are many enough for; else the candidate
            must be better by more than one standard error.
    """
    gain = old - new
    mean = float(mean_loss(gain, count))
    if by_mean:
        return mean > 0
    return len(gain) > 1 and mean > float(standard_error(gain, count))


def _losses(problem: Problem[J, D], rows: Tensor) -> Tensor:  # (R, M, D) to (R, M)
    """Return held-out losses of classifiers on several inputs of the labelled nodes at once."""
    split = problem.held_out
    found = [Coordinates.of(each, split.count).x for each in rows]
    rank = max(x.shape[1] for x in found)
    x = torch.stack([functional.pad(each, (rank - each.shape[1], 0)) for each in found])
    weight = split.weight.repeat(len(rows), 1)
    each = x.repeat_interleave(split.num_splits, 0)
    penalty = x.new_tensor(_PENALTY)
    w = solve(each, problem.y, weight, penalty, problem.num_classes, count=split.count).double()
    logits = x.unsqueeze(1) @ w.unflatten(0, (len(rows), split.num_splits))
    return cross_entropy(split.pick(logits), problem.y)


def _second_layer(
    problem: Problem[J, D], options: SelectedOptions, first: D, head: Logistic, num_splits: int
) -> Tensor:  # (M, C)
    """Return held-out logits of a second layer, learned for each split without its labels."""
    scale = problem.scale(first)
    found = head.held_out.clone()
    for split in range(num_splits):
        weight, bias = (parameter[split] for parameter in head.splits)
        shown = problem.held_out.weight[split]
        metric = problem.learn_metric(first, Softmax(weight, bias, scale), shown > 0, options)
        joined = problem.nodes.join(metric, options)
        tolerance = max(options.tolerance, _TOLERANCE)
        rows = problem.diffuse_rows(joined, [options.restart], tolerance)[0]
        space = Coordinates.of(rows, problem.held_out.count)
        w = solve(
            space.x,
            problem.y,
            shown.unsqueeze(0),
            space.x.new_tensor(head.penalty),
            problem.num_classes,
            space.of_features(weight, bias).unsqueeze(0),
            count=problem.held_out.count,
        )
        is_held_out = problem.held_out.fold == split
        found[is_held_out] = (space.x @ w[0].double())[is_held_out]
    return found
