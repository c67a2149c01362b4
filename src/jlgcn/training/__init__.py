"""Training by gradient descent: epochs, model selection on validation data, checkpoints."""

from jlgcn.training.graphs import GraphTrainConfig, fit_graphs
from jlgcn.training.loop import FitResult, RunOptions
from jlgcn.training.nodes import TrainConfig, fit_nodes

__all__ = [
    "FitResult",
    "GraphTrainConfig",
    "RunOptions",
    "TrainConfig",
    "fit_graphs",
    "fit_nodes",
]
