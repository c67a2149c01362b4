# ruff: noqa: D102 (the two classes describe the members of the interface)
"""The two solvers of the estimator behind one interface."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from jlgcn.closed_form import ClosedFormOptions, NodeExplanation, fit_closed_form
from jlgcn.closed_form.options import CHECKS
from jlgcn.estimator.class_weights import class_weights, prior_probabilities
from jlgcn.estimator.network_options import SOLVERS, NetworkOptions
from jlgcn.graphs import EdgeExplanation, SparseGraph
from jlgcn.graphs.candidates import Features


class FittedModel(Protocol):
    """What the estimator and the page need of a fitted model.

    :class:`jlgcn.closed_form.ClosedFormModel` and
    :class:`jlgcn.estimator.network_model.NetworkModel` provide it, and describe its members.
    """

    @property
    def logits(self) -> Tensor: ...
    @property
    def x(self) -> Features: ...
    @property
    def given(self) -> SparseGraph | None: ...
    @property
    def train(self) -> Tensor: ...
    @property
    def labels(self) -> Tensor: ...
    @property
    def learned_scale(self) -> float: ...
    @property
    def num_layers(self) -> int: ...
    @property
    def num_column_layers(self) -> int: ...
    @property
    def history(self) -> list[dict[str, float]]: ...
    @property
    def best_params(self) -> dict[str, Any]: ...
    def predict(self, x: Features, edges: tuple[Tensor, Tensor] | None = None) -> Tensor: ...
    def learned_graph(self, layer: int) -> SparseGraph: ...
    def weighted_given(self) -> SparseGraph | None: ...
    def features_of(self, nodes: Tensor, layer: int) -> Tensor: ...
    def explain_edge(self, first: Tensor, second: Tensor, layer: int) -> EdgeExplanation: ...
    def contributions(self, first: Tensor, second: Tensor) -> Tensor: ...
    def explain_node(self, node: int) -> NodeExplanation: ...
    def suggest_labels(self, num: int) -> Tensor: ...
    def feature_importance(self, layer: int) -> Tensor: ...
    def coordinates(self, x: Features) -> Tensor: ...
    def embedding(self) -> Tensor: ...


def fit_model(
    parameters: dict[str, Any],
    x: Features,  # (N, in_channels)
    y: Tensor,  # (N,), int64
    graph: SparseGraph | None,
    train: Tensor,  # (M,), int64
    *,
    classes: NDArray[Any],
    val: Tensor | None = None,  # (V,), int64
    count: Tensor | None = None,  # (N,)
    progress: bool = False,
) -> FittedModel:
    """Fit to scaled features by the solver and the parameters of an estimator.

    Args:
        parameters: all parameters of a :class:`JLGCNClassifier`, as `get_params` returns them.
        x: scaled features.
        y: classes; only those of `train` are read.
        graph: the given graph, or None.
        train: labelled rows.
        classes: names of the classes, to which weights and priors of the parameters refer.
        val: labelled rows that select instead of being learned from; None for cross-validation.
        count: number of labels that each node's counts as; None for 1.
        progress: show a progress bar of the gradient solver.
    """
    of_train = None if count is None else count[train].cpu().numpy()
    codes = y[train].cpu().numpy()
    weights = class_weights(parameters["class_weight"], classes, codes, of_train)
    weight = None if weights is None else torch.from_numpy(weights).to(train.device)
    match parameters["solver"]:
        case "closed_form":
            options: Any = ClosedFormOptions(**_values(parameters, ClosedFormOptions))
            prior = prior_probabilities(parameters["class_prior"], classes)
            return fit_closed_form(
                x,
                y,
                graph,
                train=train,
                val=val,
                weight=None if weight is None else weight[y[train]],
                count=count,
                class_prior=None if prior is None else torch.from_numpy(prior).to(train.device),
                options=options,
            )
        case "gradient":
            # Here, since the closed form needs no network.
            from jlgcn.estimator.network_fit import NUM_NEIGHBORS, fit_network

            if val is not None:
                raise ValueError(
                    'validation is of the closed form; solver="gradient" draws its validation '
                    "labels itself, see validation_fraction"
                )
            if count is not None:
                raise ValueError(
                    'sample_weight is of solver="closed_form"; leave it out, or pass class_weight'
                )
            if parameters["class_prior"] is not None:
                raise ValueError('class_prior is of solver="closed_form"; leave it out')
            k = parameters["n_neighbors"]
            k = NUM_NEIGHBORS if k is None else CHECKS["n_neighbors"](int(k), "n_neighbors")
            return fit_network(
                x,
                y,
                graph,
                train=train,
                options=NetworkOptions(**_values(parameters, NetworkOptions)),
                num_neighbors=k,
                class_weight=weight,
                progress=progress,
            )
        case other:
            raise ValueError(f"solver must be one of {', '.join(SOLVERS)}, but it is {other!r}")


def resolve_layer(model: FittedModel, layer: int | None) -> int:
    """Return the number of a layer, from 0.

    Args:
        model: a fitted model.
        layer: a layer, from 0, or from -1 backwards; None is the last one whose metric is of the
            table's columns.
    """
    number = model.num_column_layers - 1 if layer is None else layer
    last = model.num_layers - 1
    if not -last - 1 <= number <= last:
        raise ValueError(
            f"layer must be a number from 0 to {last}, or -1 for the last, but it is {layer}"
        )
    return number % (last + 1)


def names_of_features(
    model: FittedModel, layer: int | None, columns: Sequence[str]
) -> Sequence[str]:
    """Return names of the features that the metric of a layer sees: columns, or hidden ones."""
    if resolve_layer(model, layer) < model.num_column_layers:
        return columns
    return [f"hidden{k}" for k in range(model.embedding().shape[1])]


def _values(parameters: dict[str, Any], of: type) -> dict[str, Any]:
    found = {field.name: parameters[field.name] for field in fields(of)}
    # Grid searches set NumPy's scalars, which a saved model cannot hold.
    return {k: v.item() if isinstance(v, np.generic) else v for k, v in found.items()}
