"""The first part of a model's page: data, hyperparameters, and how the losses went."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from jlgcn.closed_form import ClosedFormModel
from jlgcn.closed_form.classifier import Evidence
from jlgcn.estimator import JLGCNClassifier
from jlgcn.graphs import SparseGraph
from jlgcn.nn import DecoupledJLGCN

Fact: TypeAlias = tuple[str, str, str]  # what, how much, and a note below it

_POINTS = 200  # of a curve
_SCALED = {
    "words": "tf-idf (words)",
    "table": "standardised (table)",
    "embeddings": "not scaled (embeddings)",
    "none": "not scaled",
}
_BACKENDS = {
    "exact": "all pairs of rows",
    "dense": "all pairs of rows, stored",
    "knn": "nearest neighbours",
}


def settings(model: JLGCNClassifier) -> list[Fact]:
    """Return sizes and hyperparameters of a fitted model."""
    fitted = model.model_
    given = fitted.given
    facts = [
        ("rows", f"{len(model.transduction_):,}", ""),
        ("features", f"{fitted.x.shape[1]:,}", _SCALED[model.scaler_.kind]),
        ("classes", f"{len(model.classes_):,}", ""),
        ("labels", f"{len(fitted.train):,}", _held_out(fitted)),
        ("learned edges", f"{_num_edges(model.learned_graph()):,}", _kept(model)),
        ("given edges", "none" if given is None else f"{_num_edges(given):,}", ""),
    ]
    own = _of_closed_form if isinstance(fitted, ClosedFormModel) else _of_network
    return facts + own(model)


def _of_closed_form(model: JLGCNClassifier) -> list[Fact]:
    fitted = model.model_
    chosen = fitted.options
    facts = [
        ("solver", "closed form", "linear algebra"),
        ("n_neighbors", f"{chosen.n_neighbors}", _origin(model.n_neighbors)),
        ("restart probability", f"{chosen.restart:g}", _origin(model.restart)),
        ("weight of the metric", f"{chosen.metric_weight:g}", _origin(model.metric_weight)),
        ("average of", *_shares(fitted.evidence)),
    ]
    if fitted.given is not None:  # both have no effect without given edges
        degree, decay = f"{chosen.learned_degree:g}", f"{chosen.given_decay:g}"
        facts.append(("learned_degree", degree, _origin(model.learned_degree)))
        facts.append(("given_decay", decay, _origin(model.given_decay)))
    return facts


def _shares(evidence: Evidence) -> tuple[str, str]:
    """Return the averaged classifiers with their weights, and what the graph is worth."""
    shares = ", ".join(f"{name} {weight:.0%}" for name, weight in evidence.weights.items())
    return shares, str(evidence)


def _of_network(model: JLGCNClassifier) -> list[Fact]:
    fitted, network = model.model_, model.model_.network
    seed = "drawn" if model.random_state is None else f"{model.random_state}"
    is_decoupled = isinstance(network, DecoupledJLGCN)
    kind = "MLP, then PageRank" if is_decoupled else "the network of Tang et al. (2019)"
    layers = f"{2 if is_decoupled else network.num_layers}"
    rate = "default" if model.learning_rate is None else f"{model.learning_rate:g}"
    facts = [
        ("solver", "gradient", kind),
        ("preset", f"{model.preset}", ""),
        ("layers", layers, f"{network.hidden_channels} hidden channels"),
        ("epochs", f"{len(fitted.curve):,}", f"epoch {fitted.best_epoch + 1:,} selected"),
        ("learning rate", rate, f"dropout {network.dropout:g}"),
        ("graphs", fitted.backend, _BACKENDS[fitted.backend]),
        ("random_state", seed, ""),
    ]
    if fitted.backend == "knn":
        facts.append(("n_neighbors", f"{network.num_neighbors}", ""))
    return facts


def _held_out(fitted: Any) -> str:  # noqa: ANN401
    if isinstance(fitted, ClosedFormModel):
        return ""
    number = len(fitted.train) - len(fitted.learned_from)
    return f"{number:,} of them for validation" if number else "none for validation"


def _kept(model: JLGCNClassifier) -> str:
    fitted = model.model_
    if isinstance(fitted, ClosedFormModel):
        return ""
    return f"to {fitted.network.num_neighbors} neighbours of a row, first layer"


def loss_curve(model: JLGCNClassifier) -> dict[str, Any] | None:
    """Return training and validation loss by epoch, within 0 and 1; None for the closed form.

    Losses far above the first ones are cut off.
    """
    fitted = model.model_
    if isinstance(fitted, ClosedFormModel):
        return None
    curve = fitted.curve.cpu().numpy()
    num_epochs = len(curve)
    shown = np.unique(np.linspace(0, num_epochs - 1, _POINTS).round().astype(int))
    best = fitted.best_epoch
    top = 1.2 * max(curve[0, 0], curve[0, 2], curve[best, 2], 1e-30)
    place = shown / max(1, num_epochs - 1)
    lines = {
        name: list(
            zip(place.tolist(), np.clip(curve[shown, column] / top, 0, 1).tolist(), strict=True)
        )
        for name, column in (("training", 0), ("validation", 2))
    }
    return {
        "lines": lines,
        "best": best / max(1, num_epochs - 1),
        "best_epoch": best + 1,
        "num_epochs": num_epochs,
        "top": float(top),
        "val_accuracy": f"{100 * curve[best, 1]:.1f} %",
        "val_loss": f"{curve[best, 2]:.3f}",
        "loss": f"{curve[best, 0]:.3f}",
    }


def _num_edges(graph: SparseGraph) -> int:
    row, col = graph.edge_index
    return int((row < col).sum())


def _origin(setting: float | str | None) -> str:
    return "selected by cross-validation" if setting is None else "set by the user"
