"""The closed form: metric, graph and classes in turn, by linear algebra instead of gradients."""

from jlgcn.closed_form.explain import NodeExplanation
from jlgcn.closed_form.fit import fit_closed_form
from jlgcn.closed_form.model import ClosedFormLayer, ClosedFormModel, ClosedFormOptions
from jlgcn.closed_form.scaling import FeatureScaler

__all__ = [
    "ClosedFormLayer",
    "ClosedFormModel",
    "ClosedFormOptions",
    "FeatureScaler",
    "NodeExplanation",
    "fit_closed_form",
]
