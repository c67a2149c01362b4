"""A small network for clouds."""

from __future__ import annotations

from jlgcn.nn import GraphLevelJLGCN


def small_classifier() -> GraphLevelJLGCN:
    return GraphLevelJLGCN(3, 3, (8, 16), (8,), rank=4)
