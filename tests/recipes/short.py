"""Any experiment, made so short and small that all of them can be run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jlgcn.recipes import ClaimExperiment, CloudExperiment
from tests.train.small import small_clouds, small_data


def short(experiment: Any, epochs: int = 2) -> tuple[Any, Any]:  # noqa: ANN401
    """Return the experiment with few epochs, and small data to run it on."""
    train = replace(experiment.train, epochs=epochs)
    if isinstance(experiment, CloudExperiment):
        train = replace(train, num_points=24, batch_size=8)
        return replace(experiment, train=train, num_neighbors=5), small_clouds()
    if isinstance(experiment, ClaimExperiment):
        return replace(experiment, train=train, num_trials=1), small_data(60)
    return replace(experiment, protocol="authors", train=train), small_data(60)
