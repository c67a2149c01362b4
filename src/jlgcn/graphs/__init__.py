"""Graphs as operators: one interface, and a class for each way to hold a graph."""

from jlgcn.graphs.attached import AttachedGraph, KernelRows, SparseRows, attach
from jlgcn.graphs.convert import as_graph
from jlgcn.graphs.dense import DenseGraph
from jlgcn.graphs.diffusion import chebyshev_steps, personalized_pagerank
from jlgcn.graphs.edge_list import EdgeList, top_edges
from jlgcn.graphs.explanation import EdgeExplanation
from jlgcn.graphs.graph import Graph, ScaledGraph, SumGraph
from jlgcn.graphs.kernel import KernelGraph
from jlgcn.graphs.sparse import SparseGraph, gaussian_knn_graph

__all__ = [
    "AttachedGraph",
    "DenseGraph",
    "EdgeExplanation",
    "EdgeList",
    "Graph",
    "KernelGraph",
    "KernelRows",
    "ScaledGraph",
    "SparseGraph",
    "SparseRows",
    "SumGraph",
    "as_graph",
    "attach",
    "chebyshev_steps",
    "gaussian_knn_graph",
    "personalized_pagerank",
    "top_edges",
]
