"""The scikit-learn face of both solvers, and whether their graph helps."""

from jlgcn.estimator.classifier import JLGCNClassifier
from jlgcn.estimator.comparison import Comparison, compare

__all__ = ["Comparison", "JLGCNClassifier", "compare"]
