"""Ablation study of the paper on Cora: learned graphs, and weight of the regularizer."""

from __future__ import annotations

from dataclasses import replace

from jlgcn.paper.node_experiment import NodeExperiment
from jlgcn.paper.recipe import LEFT_OPEN, Recipe, Variant
from jlgcn.paper.robustness import without_edges
from jlgcn.paper.table2 import cora

#: By λ: published accuracies with 0, 50 and 100 % of the edges missing.
_PUBLISHED = {
    0.0: (83.50, 77.68, 59.32),
    1e-4: (83.88, 77.90, 60.52),
    1e-3: (82.76, 76.96, 59.84),
    1e-2: (82.45, 76.46, 59.40),
}
EDGES_MISSING = (0.0, 0.5, 1.0)


def graphs() -> Recipe[NodeExperiment]:
    """Return part (a): given, fixed, one learned graph, one learned graph per layer."""
    table = cora()
    ours = table.variant("jlgcn").experiment
    one_graph = replace(ours, num_learned=1)
    euclidean = replace(
        one_graph,
        rank=None,
        metric_init="identity",
        train_metric=False,
        graph_after_dropout=False,
        backend="dense",
        train=replace(ours.train, glr_weight=0.0),
    )
    return Recipe(
        name="ablation/graphs",
        place="Ablation table (a)",
        summary="a given, a fixed, one learned and many learned graphs on Cora",
        left_open=(
            *LEFT_OPEN,
            '"Euclidean" is exp(-‖f_i - f_j‖²) of the input, without dropout, added to the given '
            "graph in the first layer; both layers convolve with the sum",
            '"single graph" learns that of the first layer, and both layers convolve with it',
        ),
        variants=(
            Variant("gcn", table.variant("gcn").experiment, 81.5),
            Variant("gcn + euclidean", euclidean, 83.1),
            Variant("single graph", one_graph, 83.4),
            Variant("multiple graphs", ours, 83.9),
        ),
    )


def regularizer() -> Recipe[NodeExperiment]:
    """Return part (b): weight of the regularizer, against missing edges."""
    ours = cora().variant("jlgcn").experiment
    return Recipe(
        name="ablation/regularizer",
        place="Ablation table (b)",
        summary="the regularizer's weight on Cora as edges go missing",
        left_open=LEFT_OPEN,
        variants=tuple(
            Variant(
                f"glr {weight:g}, missing {missing:g}",
                without_edges(replace(ours, train=replace(ours.train, glr_weight=weight)), missing),
                published,
            )
            for weight, row in _PUBLISHED.items()
            for missing, published in zip(EDGES_MISSING, row, strict=True)
        ),
    )
