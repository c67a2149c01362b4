"""Gradient descent: epochs, selection by validation, checkpoints; nothing here prints."""

from jlgcn.training.checkpoint import load_checkpoint, save_checkpoint
from jlgcn.training.cloud_data import (
    CloudData,
    augment,
    choose_points,
    drop_points,
    unit_sphere,
)
from jlgcn.training.graphs import CloudTrainConfig, fit_graphs
from jlgcn.training.loop import FitResult, RunOptions
from jlgcn.training.node_data import NodeData
from jlgcn.training.nodes import TrainConfig, fit_nodes

__all__ = [
    "CloudData",
    "CloudTrainConfig",
    "FitResult",
    "NodeData",
    "RunOptions",
    "TrainConfig",
    "augment",
    "choose_points",
    "drop_points",
    "fit_graphs",
    "fit_nodes",
    "load_checkpoint",
    "save_checkpoint",
    "unit_sphere",
]
