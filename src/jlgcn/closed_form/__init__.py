"""The closed form: metric, graph and classifier in turn, by linear algebra, not gradients."""

from jlgcn.closed_form.explain import NodeExplanation
from jlgcn.closed_form.fit import fit_closed_form
from jlgcn.closed_form.model import ClosedFormModel
from jlgcn.closed_form.options import ClosedFormOptions
from jlgcn.closed_form.scaling import FeatureScaler
from jlgcn.closed_form.transform import LearnGraph

__all__ = [
    "ClosedFormModel",
    "ClosedFormOptions",
    "FeatureScaler",
    "LearnGraph",
    "NodeExplanation",
    "fit_closed_form",
]
