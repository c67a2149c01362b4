"""Trainable modules: graph learner, layer and networks of JLGCN, and their regularizer."""

from jlgcn.nn.conv import JLGCNConv
from jlgcn.nn.decoupled import DecoupledJLGCN
from jlgcn.nn.graph_models import GraphLevelJLGCN, GraphLevelOutput
from jlgcn.nn.learner import GraphLearner
from jlgcn.nn.losses import laplacian_regularizer
from jlgcn.nn.models import JLGCN, JLGCNOutput
from jlgcn.nn.options import PRESETS, JLGCNOptions

__all__ = [
    "JLGCN",
    "PRESETS",
    "DecoupledJLGCN",
    "GraphLearner",
    "GraphLevelJLGCN",
    "GraphLevelOutput",
    "JLGCNConv",
    "JLGCNOptions",
    "JLGCNOutput",
    "laplacian_regularizer",
]
