"""Modules that learn: the metric, the layer, the network, and its regularizer."""

from jlgcn.nn.closed_form import fit_closed_form
from jlgcn.nn.closed_form_model import ClosedFormJLGCN, ClosedFormLayer, ClosedFormOptions
from jlgcn.nn.conv import JLGCNConv
from jlgcn.nn.explain import EdgeExplanation, NodeExplanation, explain_edge, feature_importance
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

__all__ = [
    "JLGCN",
    "PRESETS",
    "ClosedFormJLGCN",
    "ClosedFormLayer",
    "ClosedFormOptions",
    "EdgeExplanation",
    "GraphLearner",
    "GraphOutput",
    "JLGCNConv",
    "JLGCNGraphClassifier",
    "JLGCNOptions",
    "JLGCNOutput",
    "LogitsOnly",
    "NodeExplanation",
    "explain_edge",
    "feature_importance",
    "fit_closed_form",
    "laplacian_regularizer",
    "pad_graphs",
]
