"""Training by gradient descent: epochs, model selection on validation data, checkpoints."""

from jlgcn.training.config import TrainConfig
from jlgcn.training.decoupled import DecoupledConfig
from jlgcn.training.graphs import GraphTrainConfig, fit_graphs
from jlgcn.training.loop import FitResult, RunOptions
from jlgcn.training.nodes import fit_nodes

__all__ = [
    "DecoupledConfig",
    "FitResult",
    "GraphTrainConfig",
    "RunOptions",
    "TrainConfig",
    "fit_graphs",
    "fit_nodes",
]
