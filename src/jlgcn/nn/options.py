"""Where the paper's text and its authors' code differ, as options with names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MetricInit = Literal["median", "random", "identity"]
METRIC_INITS: tuple[MetricInit, ...] = ("median", "random", "identity")


@dataclass(frozen=True)
class JLGCNOptions:
    """The choices that change a result of JLGCN, where text and code of the paper differ.

    Attributes:
        normalize_learned: normalise the learned graph by itself before it is added and the sum is
            normalised again (authors' code), or normalise the sum alone (text).
        min_degree: degrees below it count as this when a graph is normalised; 1 in the authors'
            code, 0 in the text. Kernels have degrees of at least 1 by themselves, sums of
            normalised graphs do not.
        graph_after_dropout: learn the graph from the layer's input after dropout (authors' code)
            or before it (text).
        bias: whether the convolution adds a bias (authors' code) or not (text).
        metric_init: how the metric R begins, see :class:`jlgcn.nn.GraphLearner`. Text and code are
            "random", but the text gives no scale, and with the code's its own normalisation drowns
            the given graph in a complete one: two of three seeds hardly learn on Cora.
        median_distance: median squared distance with which "median" begins; 1, or less for a wider
            graph. Neither text nor code has it.
        glr_normalized: the regularizer's Laplacian is I - A of each layer's normalised graph
            (authors' code), or D - A* of each layer's learned kernel (text).
        glr_on: it smooths the network's "input" in every layer (authors' code) or each "layer"'s
            own input (text).

    What differs without changing a result is no option: W is applied before or after the graph,
    whichever is cheaper, and A_0 is the given graph as it is. Nor is what breaks symmetry: edges
    are dropped in both directions, where the authors drop entries of the matrix.

    Example:
        >>> PRESETS["paper"].bias, PRESETS["authors"].bias
        (False, True)
    """

    normalize_learned: bool = True
    min_degree: float = 1.0
    graph_after_dropout: bool = True
    bias: bool = True
    metric_init: MetricInit = "random"
    median_distance: float = 1.0
    glr_normalized: bool = True
    glr_on: Literal["input", "layer"] = "input"


Preset = Literal["paper", "authors"]

#: The paper's text, and the code of its authors.
PRESETS: dict[Preset, JLGCNOptions] = {
    "paper": JLGCNOptions(
        normalize_learned=False,
        min_degree=0.0,
        graph_after_dropout=False,
        bias=False,
        metric_init="random",
        glr_normalized=False,
        glr_on="layer",
    ),
    "authors": JLGCNOptions(),
}


def resolve_options(options: JLGCNOptions | Preset) -> JLGCNOptions:
    """Return the options, or those of the preset of this name.

    Example:
        >>> resolve_options("authors").min_degree
        1.0
    """
    if isinstance(options, JLGCNOptions):
        return options
    if options not in PRESETS:
        raise ValueError(
            f"options must be JLGCNOptions or one of {', '.join(PRESETS)}, but it is {options!r}"
        )
    return PRESETS[options]
