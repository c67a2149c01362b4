"""Learn the graph and the features together.

Names are imported on first use, so that the command line starts fast and a user of one part does
not import the others.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jlgcn import closed_form, distributed, errors, graphs, io, nn, ops, paper, report, training
    from jlgcn.estimator import Comparison, JLGCNClassifier, compare
    from jlgcn.graphs import (
        DenseGraph,
        Graph,
        KernelGraph,
        SparseGraph,
        as_graph,
        gaussian_knn_graph,
    )

__version__ = "0.1.0"

_HOME = dict.fromkeys(("Comparison", "JLGCNClassifier", "compare"), "jlgcn.estimator")
_HOME |= dict.fromkeys(
    ("DenseGraph", "Graph", "KernelGraph", "SparseGraph", "as_graph", "gaussian_knn_graph"),
    "jlgcn.graphs",
)

__all__ = [
    "Comparison",
    "DenseGraph",
    "Graph",
    "JLGCNClassifier",
    "KernelGraph",
    "SparseGraph",
    "__version__",
    "as_graph",
    "closed_form",
    "compare",
    "distributed",
    "errors",
    "gaussian_knn_graph",
    "graphs",
    "io",
    "nn",
    "ops",
    "paper",
    "report",
    "training",
]


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in __all__:
        return importlib.import_module(f"jlgcn.{name}")
    raise AttributeError(f"module 'jlgcn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
