"""Learn the graph and the features together.

Names are imported when they are first used, so that the command line answers at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jlgcn import closed_form, distributed, graphs, io, nn, ops, paper, training
    from jlgcn.estimator import JLGCNClassifier
    from jlgcn.estimator.comparison import Comparison, compare
    from jlgcn.graphs import (
        DenseGraph,
        Graph,
        KernelGraph,
        ScaledGraph,
        SparseGraph,
        SumGraph,
        as_graph,
        gaussian_knn_graph,
    )

__version__ = "0.1.0.dev0"

__all__ = [
    "Comparison",
    "DenseGraph",
    "Graph",
    "JLGCNClassifier",
    "KernelGraph",
    "ScaledGraph",
    "SparseGraph",
    "SumGraph",
    "__version__",
    "as_graph",
    "closed_form",
    "compare",
    "distributed",
    "gaussian_knn_graph",
    "graphs",
    "io",
    "nn",
    "ops",
    "paper",
    "training",
]

_HOME = dict.fromkeys(__all__, "jlgcn.graphs") | {
    "Comparison": "jlgcn.estimator.comparison",
    "JLGCNClassifier": "jlgcn.estimator",
    "compare": "jlgcn.estimator.comparison",
}
_SUBPACKAGES = ("closed_form", "distributed", "graphs", "io", "nn", "ops", "paper", "training")


def __getattr__(name: str) -> object:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"jlgcn.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'jlgcn' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
