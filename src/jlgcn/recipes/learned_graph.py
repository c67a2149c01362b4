"""The paper's picture of the graphs that are learned."""

from __future__ import annotations

from dataclasses import replace

from jlgcn.recipes.node_experiment import NodeExperiment
from jlgcn.recipes.recipe import LEFT_OPEN, Recipe, Variant
from jlgcn.recipes.table2 import cora


def learned_graph() -> Recipe[NodeExperiment]:
    """Return the given graph and that of each layer, on the first 50 nodes of Cora."""
    return Recipe(
        name="figures/learned-graph",
        place="Learned-graph figure",
        summary="weights among the first 50 nodes of Cora, given and in both layers",
        left_open=(
            *LEFT_OPEN,
            "which run is shown: here seed 0",
            "which graph of a layer: here the one it convolves with, normalised",
        ),
        variants=(
            Variant("jlgcn", replace(cora().variant("jlgcn").experiment, keep_graphs=50), seeds=1),
        ),
    )
