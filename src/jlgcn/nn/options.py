"""Options where the text of the paper and the code of its authors differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jlgcn._schema import Check, flag, real, record, word

MetricInit = Literal["median", "random", "identity", "euclidean"]
METRIC_INITS: tuple[MetricInit, ...] = ("median", "random", "identity", "euclidean")


@dataclass(frozen=True)
class JLGCNOptions:
    """Options of JLGCN that change its results, where text and code of the paper differ.

    The defaults are the authors' code.

    Attributes:
        normalize_learned (bool, default True): normalise the learned graph before it is added and
            the sum is normalised again (code), or normalise the sum only (text: False).
        min_degree (float ≥ 0, default 1): lower bound of degrees in the normalisation; 0 in the
            text. Degrees of a kernel are at least 1, those of sums of normalised graphs are not.
        graph_after_dropout (bool, default True): learn the graph from the layer's input after
            dropout (code), or before (text: False).
        bias (bool, default True): add a bias to the convolution (code), or none (text: False).
        metric_init ("median", "random", "identity" or "euclidean", default "random"):
            initialisation of the metric R, see :class:`jlgcn.nn.GraphLearner`. Text and code use
            "random", but the text gives no scale, and with the scale of the code the text's
            normalisation lets a complete learned graph outweigh the given one: two of three seeds
            hardly learn on Cora.
        median_distance (float > 0, default 1): median squared distance after calibration with
            "median" or "euclidean"; less for a denser graph. In neither text nor code.
        glr_normalized (bool, default True): Laplacian of the regularizer: I - A of each layer's
            normalised graph (code), or D - A* of each layer's learned kernel (text: False).
        glr_on ("input" or "layer", default "input"): features that the regularizer smooths: the
            input of the network in every layer (code), or the input of each layer (text).

    Differences without an effect on results are no options: W is applied before or after the graph,
    whichever is cheaper, and A_0 is the given graph, not normalised. One departure from the code is
    deliberate: edges are dropped in both directions, where the authors drop matrix entries and so
    break symmetry.

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


#: Types and ranges of the options in a saved network.
OPTIONS_CHECK: Check = record(
    {
        "normalize_learned": flag,
        "min_degree": real(0, 1e300),
        "graph_after_dropout": flag,
        "bias": flag,
        "metric_init": word(*METRIC_INITS),
        "median_distance": real(0, 1e300, above=True),
        "glr_normalized": flag,
        "glr_on": word("input", "layer"),
    }
)

Preset = Literal["paper", "authors"]

#: "paper": the text of the paper. "authors": the code of its authors.
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
    """Return `options`, or the preset of this name.

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
