"""The publication as a product: its tables and figures, its data, its rivals, its records."""

from jlgcn.paper.baselines import GAT, GCN
from jlgcn.paper.citation import load_planetoid, normalize_rows, subsample
from jlgcn.paper.cloud_experiment import CloudExperiment
from jlgcn.paper.corrupt import corrupt, drop_edges, drop_labels
from jlgcn.paper.experiment import Experiment, run_seed, with_settings
from jlgcn.paper.node_experiment import NodeExperiment
from jlgcn.paper.page import write_report
from jlgcn.paper.point_clouds import load_clouds, sample_mesh
from jlgcn.paper.recipe import Recipe, Variant
from jlgcn.paper.recipes import RECIPES, experiment_key, get_recipe
from jlgcn.paper.summary import summarize
from jlgcn.paper.tables import rows_as_csv, summary_table

__all__ = [
    "GAT",
    "GCN",
    "RECIPES",
    "CloudExperiment",
    "Experiment",
    "NodeExperiment",
    "Recipe",
    "Variant",
    "corrupt",
    "drop_edges",
    "drop_labels",
    "experiment_key",
    "get_recipe",
    "load_clouds",
    "load_planetoid",
    "normalize_rows",
    "rows_as_csv",
    "run_seed",
    "sample_mesh",
    "subsample",
    "summarize",
    "summary_table",
    "with_settings",
    "write_report",
]
