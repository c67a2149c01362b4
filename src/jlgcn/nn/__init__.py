"""Modules that learn: the metric, the layer, the network, and its regularizer."""

from jlgcn.nn.conv import JLGCNConv
from jlgcn.nn.explain import EdgeExplanation, explain_edge, feature_importance
from jlgcn.nn.graph_classifier import (
    GraphOutput,
    JLGCNGraphClassifier,
    LogitsOnly,
    pad_graphs,
)
from jlgcn.nn.learner import GraphLearner
from jlgcn.nn.losses import laplacian_regularizer
from jlgcn.nn.node_classifier import JLGCN, JLGCNOutput
from jlgcn.nn.options import PRESETS, JLGCNOptions
from jlgcn.nn.propagation import Propagation, consistency

__all__ = [
    "JLGCN",
    "PRESETS",
    "EdgeExplanation",
    "GraphLearner",
    "GraphOutput",
    "JLGCNConv",
    "JLGCNGraphClassifier",
    "JLGCNOptions",
    "JLGCNOutput",
    "LogitsOnly",
    "Propagation",
    "consistency",
    "explain_edge",
    "feature_importance",
    "laplacian_regularizer",
    "pad_graphs",
]
