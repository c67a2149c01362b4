"""Selection of hyperparameters by validation or leave-one-out log-loss."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from jlgcn.closed_form.heads import is_better
from jlgcn.closed_form.layer import Problem
from jlgcn.closed_form.options import ClosedFormOptions, SelectedOptions

# Candidates, the default first; the others are tried in this order.
_RESTARTS = (0.01, 0.05, 0.2, 0.8)
_NEIGHBORS = (20, 5, 10, 40)
_GIVEN_DECAYS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
_LEARNED_DEGREES = (1.0, 0.5, 2.0, 4.0)
_LEARNED_DEGREE_ALONE = 7.0
_INPUTS = ("degree", "unit", "unit+own", "unit+own+neighbors")
_KERNEL_GAMMAS = (0.0, 0.25, 1.0, 4.0)

# Graphs are compared on so many components: they rank graphs as all components do, in a fraction
# of the time.
_COMPONENTS_OF_GRAPHS = 256


def select_options(problem: Problem, options: ClosedFormOptions) -> SelectedOptions:
    """Return the options with every None replaced by the value that held-out labels select.

    Coordinate-wise greedy search in the first layer: hyperparameters of the graph on the first
    principal components, then the classifier's on all of them.
    """
    is_alone = problem.candidates.given is None
    graph_grid: dict[str, tuple[Any, ...]] = {
        "restart": _RESTARTS,
        "n_neighbors": _NEIGHBORS,
        "given_decay": (0.0,) if is_alone else _GIVEN_DECAYS,
        "learned_degree": (_LEARNED_DEGREE_ALONE,) if is_alone else _LEARNED_DEGREES,
    }
    head_grid: dict[str, tuple[Any, ...]] = {
        "inputs": _INPUTS[:3] if is_alone else _INPUTS,
        "kernel_gamma": _KERNEL_GAMMAS,
    }
    for grid in (graph_grid, head_grid):
        for name in grid:
            if getattr(options, name) is not None:
                grid[name] = (getattr(options, name),)
    defaults = {name: values[0] for name, values in (graph_grid | head_grid).items()}
    start: SelectedOptions = ClosedFormOptions(**(asdict(options) | defaults))
    graphs = [{name: value} for name, values in graph_grid.items() for value in values[1:]]
    heads = [
        {"inputs": inputs, "kernel_gamma": gamma}
        for inputs in head_grid["inputs"]
        for gamma in head_grid["kernel_gamma"]
    ]
    few = replace(
        problem,
        projection=problem.projection[:, :_COMPONENTS_OF_GRAPHS],
        features=problem.features[:, :_COMPONENTS_OF_GRAPHS],
    )
    return _greedy(problem, _greedy(few, start, graphs), heads[1:])


def _greedy(
    problem: Problem, options: SelectedOptions, changes: list[dict[str, Any]]
) -> SelectedOptions:
    """Return the options after every change, in order, that lowers the held-out log-loss."""
    if not changes:
        return options
    metric = problem.no_metric()
    left_out = problem.y[problem.train] if problem.val is None else None
    diffused = problem.diffuse(metric, options)
    best = problem.classify(diffused, options).losses
    for change in changes:
        tried = replace(options, **change)
        new = diffused if "inputs" in change else problem.diffuse(metric, tried)
        losses = problem.classify(new, tried).losses
        if is_better(losses, best, left_out):
            best, options, diffused = losses, tried, new
    return options
