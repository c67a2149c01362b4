"""Figures of learned graphs: the paper's on Cora, and one on point clouds."""

from __future__ import annotations

from dataclasses import replace

from jlgcn.paper.cloud_experiment import CloudExperiment
from jlgcn.paper.clouds import modelnet10
from jlgcn.paper.node_experiment import NodeExperiment
from jlgcn.paper.recipe import LEFT_OPEN, Recipe, Variant
from jlgcn.paper.table2 import cora


def cloud_weights() -> Recipe[CloudExperiment]:
    """Return clouds with the edge weights of one point in every layer, and its neighbours."""
    experiment = modelnet10().variant("jlgcn").experiment
    return Recipe(
        name="figures/cloud-weights",
        place="Learned-graph figure, for clouds (the paper has none)",
        summary="whom one point of a cloud listens to in each layer",
        left_open=(
            "which clouds and points: three test clouds at equal steps, the highest point of each",
        ),
        variants=(Variant("jlgcn", replace(experiment, keep_clouds=3)),),
    )


def learned_graph() -> Recipe[NodeExperiment]:
    """Return the given graph and the graph of each layer, on the first 50 nodes of Cora."""
    return Recipe(
        name="figures/learned-graph",
        place="Learned-graph figure",
        summary="weights among the first 50 nodes of Cora, given and in both layers",
        left_open=(
            *LEFT_OPEN,
            "which run is shown: here seed 0",
            "which graph of a layer: here the one it convolves with, normalised",
        ),
        variants=(Variant("jlgcn", replace(cora().variant("jlgcn").experiment, keep_graphs=50)),),
    )
