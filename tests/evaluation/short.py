"""Any claim, made so short and small that all of them can be run."""

from __future__ import annotations

from dataclasses import replace

from evaluation.claim_experiment import ClaimExperiment
from jlgcn.paper.node_data import NodeData
from tests.training.small import small_data


def short(experiment: ClaimExperiment) -> tuple[ClaimExperiment, NodeData]:
    """Return the experiment with two epochs and one trial, and small data to run it on."""
    train = replace(experiment.train, epochs=2)
    return replace(experiment, train=train, num_trials=1), small_data(60)
