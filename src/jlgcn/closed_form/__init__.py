"""The closed form: metric, graph and classes in turn, by linear algebra instead of gradients."""

from jlgcn.closed_form.explain import NodeExplanation
from jlgcn.closed_form.fit import fit_closed_form
from jlgcn.closed_form.model import ClosedFormJLGCN, ClosedFormLayer, ClosedFormOptions
from jlgcn.closed_form.scaling import FeatureScaler

__all__ = [
    "ClosedFormJLGCN",
    "ClosedFormLayer",
    "ClosedFormOptions",
    "FeatureScaler",
    "NodeExplanation",
    "fit_closed_form",
]
