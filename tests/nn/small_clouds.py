"""A small network for clouds."""

from __future__ import annotations

from jlgcn.nn import JLGCNGraphClassifier


def small_classifier() -> JLGCNGraphClassifier:
    return JLGCNGraphClassifier(3, 3, (8, 16), (8,), rank=4)
