"""Any experiment, made so short and small that all of them can be run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from jlgcn.paper import CloudExperiment, run_seed
from jlgcn.paper.recipe import Recipe
from jlgcn.paper.records import record
from tests.training.small import small_clouds, small_data

#: A recipe of each kind of experiment; the others run at night.
EACH_KIND = ("citation/cora", "figures/learned-graph", "clouds/shapes69", "figures/cloud-weights")


def short(experiment: Any, epochs: int = 2) -> tuple[Any, Any]:  # noqa: ANN401
    """Return the experiment with few epochs, and small data to run it on."""
    train = replace(experiment.train, epochs=epochs)
    if isinstance(experiment, CloudExperiment):
        train = replace(train, num_points=24, batch_size=8)
        return replace(experiment, train=train, num_neighbors=5), small_clouds()
    return replace(experiment, protocol="authors", train=train), small_data(60)


def record_short_runs(
    folder: Path, recipes: Iterable[Recipe[Any]], short: Callable[[Any], tuple[Any, Any]]
) -> Path:
    """Record two seeds of every variant, after two epochs on a small graph.

    They are recorded with the configuration of the real ones, or no table would know them.
    """
    runs, found = folder / "runs", folder / "results"
    for recipe in recipes:
        for variant in recipe.variants:
            real = variant.experiment
            experiment, data = short(real)
            for seed in range(2):
                result = run_seed(
                    experiment, seed, recipe=recipe.name, variant=variant.name, out=runs, data=data
                )
                path = next(
                    path
                    for path in runs.rglob(f"seed-{seed}/result.json")
                    if json.loads(path.read_text()) == result
                )
                path.write_text(json.dumps(result | {"configuration": real.configuration()}))
    record(runs, found)
    return found
