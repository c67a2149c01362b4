"""Hyperparameters of the closed form, declared once for the solver and the estimator."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Generic, Literal, Never, get_args

import numpy as np
from typing_extensions import TypeVar

from jlgcn._schema import Check, real, whole, word

#: Classifiers that are averaged, see :class:`ClosedFormOptions`.
Parts = Literal[
    "linear+kernel+graph",
    "linear+graph",
    "kernel+graph",
    "linear+kernel",
    "linear",
    "kernel",
    "graph",
]
Control = Literal["none", "random metric", "shuffled graph"]

#: Hyperparameters that cross-validation selects where they are None.
SELECTED = (
    "n_neighbors",
    "learned_degree",
    "given_decay",
    "restart",
    "metric_weight",
)

# The type of a hyperparameter that is left open: None before selection, Never after it.
Open = TypeVar("Open", default=None)
_OPEN: Any = None


@dataclass(kw_only=True)
class ClosedFormOptions(Generic[Open]):
    """Hyperparameters of :func:`fit_closed_form`.

    Those left at None are selected by log-loss on the validation nodes, or by cross-validated
    log-loss on the training labels. The search is greedy, one hyperparameter after another, in the
    first layer, whose graph does not depend on labels; without validation nodes, a candidate
    replaces the default only if it is better by more than one standard error.

    Attributes:
        n_layers (int ≥ 1, default 3): number of graphs, each learned with the metric of the layer
            before. 1 keeps the Euclidean metric, so only the kernel graph is learned.
        n_neighbors (int ≥ 1 or None, default None): neighbours of a row in the learned kNN graph.
            None selects from {10, 20, 40}.
        learned_degree (float ≥ 0 or None, default None): mean weighted degree of the learned graph;
            a given edge and a self-loop have weight 1. 0 ignores the learned graph. None selects
            from {0.5, 1, 2, 4} with a given graph, and is 7 without one.
        given_decay (float ≥ 0 or None, default None): ρ in the weight exp(-ρ·d²) of a given edge
            with learned squared distance d². 0 trusts all given edges equally. None selects from
            {0, 0.25, 0.5, 1, 2, 4}.
        n_candidates (int ≥ 1, default 100): Euclidean nearest neighbours of a row among which the
            learned metric ranks.
        metric_weight (float ≥ 0 or None, default None): γ, variance of the features under the
            learned metric R, in units of the Euclidean distance to a near neighbour. 0 keeps the
            Euclidean metric; None selects from {0.1, 1}, of which 0.1 is the default for words and
            1 for dense features.
        restart (float in (0, 1] or None, default None): restart probability of the personalized
            PageRank diffusion. 1 disables diffusion; None selects from {0.02, 0.05, 0.2, 0.8}.
        parts (str, default "linear+kernel+graph"): classifiers whose scores are averaged, weighted
            by their held-out log-losses (:func:`jlgcn.closed_form.combine.part_weights`). "linear"
            is multinomial logistic regression on own features and, with a given graph, on means
            over neighbours and over their neighbours; "kernel" the same on a Nyström RBF kernel of
            own features; "graph" the same on the diffused features.
        n_components (int ≥ 1, default 256): principal components that are diffused.
        tolerance (float in (0, 1), default 0.01): relative error of the diffusion.
        control (str, default "none"): ablation. "random metric" replaces R by a random matrix that
            gives the features the same variance; "shuffled graph" permutes the nodes of every
            learned graph.

    Example:
        >>> ClosedFormOptions(n_neighbors=10).n_neighbors
        10
    """

    n_layers: int = 3
    n_neighbors: int | Open = _OPEN
    learned_degree: float | Open = _OPEN
    given_decay: float | Open = _OPEN
    n_candidates: int = 100
    metric_weight: float | Open = _OPEN
    restart: float | Open = _OPEN
    parts: Parts = "linear+kernel+graph"
    n_components: int = 256
    tolerance: float = 1e-2
    control: Control = "none"


#: Options without any None, as selection returns them.
SelectedOptions = ClosedFormOptions[Never]


def selected(options: ClosedFormOptions[Any]) -> dict[str, Any]:
    """Return the hyperparameters that selection may set, by name."""
    return {name: getattr(options, name) for name in SELECTED}


_COUNT = whole(1, 10**9)
_AMOUNT = real(0, 1e300)

#: Type and range of every hyperparameter, also in saved models.
CHECKS: dict[str, Check] = {
    "n_layers": whole(1, 1000),
    "n_neighbors": _COUNT,
    "learned_degree": _AMOUNT,
    "given_decay": _AMOUNT,
    "n_candidates": _COUNT,
    "metric_weight": _AMOUNT,
    "restart": real(0, 1, above=True),
    "parts": word(*get_args(Parts)),
    "n_components": _COUNT,
    "tolerance": real(0, 1, above=True),
    "control": word(*get_args(Control)),
}


def check_options(options: ClosedFormOptions) -> None:
    """Raise a ValueError that names the first hyperparameter out of its range."""
    for name, value in asdict(options).items():
        if value is not None or name not in SELECTED:
            CHECKS[name](value.item() if isinstance(value, np.generic) else value, name)
    if options.n_neighbors is not None and options.n_neighbors > options.n_candidates:
        raise ValueError(
            f"n_neighbors must be at most n_candidates, {options.n_candidates}, but it is "
            f"{options.n_neighbors}; set n_candidates={options.n_neighbors}, too"
        )
