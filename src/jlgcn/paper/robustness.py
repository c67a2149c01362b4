"""Robustness figure of the paper: Cora with missing edges or missing labels."""

from __future__ import annotations

from dataclasses import replace

from jlgcn.paper.node_experiment import NodeExperiment
from jlgcn.paper.recipe import LEFT_OPEN, Recipe, Variant
from jlgcn.paper.table2 import cora

EDGES_MISSING = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
LABELS_MISSING = (0.0, 0.25, 0.5, 0.75, 0.9)

_MODELS = ("jlgcn", "gcn", "gat")

#: Published accuracies by fraction of missing edges, from the text and the ablation table.
_PUBLISHED = {0.0: 83.9, 0.5: 77.9, 1.0: 60.52}


def edges() -> Recipe[NodeExperiment]:
    """Return part (a): accuracy against missing edges."""
    return Recipe(
        name="robustness/edges",
        place="Robustness figure (a)",
        summary="JLGCN, GCN and GAT on Cora as edges go missing",
        left_open=(
            *LEFT_OPEN,
            "how edges are drawn: here by the seed, both directions at once; the authors' code "
            "drops entries of the matrix, which leaves it asymmetric",
            "the heights of the curves: numbers are given for 0, 0.5 and 1 in the ablation alone",
        ),
        variants=tuple(
            Variant(
                f"{model} {missing:g}",
                without_edges(cora().variant(model).experiment, missing),
                _PUBLISHED.get(missing) if model == "jlgcn" else None,
            )
            for model in _MODELS
            for missing in EDGES_MISSING
        ),
    )


def labels() -> Recipe[NodeExperiment]:
    """Return part (b): accuracy against missing training labels."""
    return Recipe(
        name="robustness/labels",
        place="Robustness figure (b)",
        summary="JLGCN, GCN and GAT on Cora as training labels go missing",
        left_open=(
            *LEFT_OPEN,
            "which labels are kept: here drawn by the seed, the same share of each class; the "
            "authors' code keeps the first ones",
            "the heights of the curves: no numbers are given",
        ),
        variants=tuple(
            Variant(
                f"{model} {missing:g}",
                replace(cora().variant(model).experiment, labels_missing=missing),
                _PUBLISHED[0.0] if model == "jlgcn" and missing == 0 else None,
            )
            for model in _MODELS
            for missing in LABELS_MISSING
        ),
    )


def without_edges(experiment: NodeExperiment, missing: float) -> NodeExperiment:
    """Remove edges of an experiment; without any edge, metrics are initialised as the identity."""
    experiment = replace(experiment, edges_missing=missing)
    if missing == 1 and experiment.model == "jlgcn":
        # At rank 1,433 distances dominate the cost, so they are computed once and stored.
        experiment = replace(experiment, rank=None, metric_init="identity", backend="dense")
    return experiment
