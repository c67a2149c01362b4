"""Reproduction of the paper: recipes of its tables and figures, data sets, baselines, records."""

from jlgcn.paper.citation import load_planetoid
from jlgcn.paper.cloud_experiment import CloudExperiment
from jlgcn.paper.experiment import run_seed
from jlgcn.paper.node_data import NodeData
from jlgcn.paper.node_experiment import NodeExperiment
from jlgcn.paper.page import write_report
from jlgcn.paper.point_clouds import load_clouds
from jlgcn.paper.recipes import get_recipe

__all__ = [
    "CloudExperiment",
    "NodeData",
    "NodeExperiment",
    "get_recipe",
    "load_clouds",
    "load_planetoid",
    "run_seed",
    "write_report",
]
