"""Graphs as linear operators: one interface, and a class for each representation."""

from jlgcn.graphs.attached import attach
from jlgcn.graphs.convert import as_graph
from jlgcn.graphs.dense import DenseGraph
from jlgcn.graphs.diffusion import personalized_pagerank
from jlgcn.graphs.edge_list import EdgeList, top_edges
from jlgcn.graphs.explanation import EdgeExplanation
from jlgcn.graphs.graph import Graph
from jlgcn.graphs.kernel import KernelGraph
from jlgcn.graphs.sparse import SparseGraph, gaussian_knn_graph

__all__ = [
    "DenseGraph",
    "EdgeExplanation",
    "EdgeList",
    "Graph",
    "KernelGraph",
    "SparseGraph",
    "as_graph",
    "attach",
    "gaussian_knn_graph",
    "personalized_pagerank",
    "top_edges",
]
