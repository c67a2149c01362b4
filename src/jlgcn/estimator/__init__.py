"""The scikit-learn face of the closed form, and whether its graph helps."""

from jlgcn.estimator.classifier import JLGCNClassifier
from jlgcn.estimator.comparison import Comparison, compare

__all__ = ["Comparison", "JLGCNClassifier", "compare"]
