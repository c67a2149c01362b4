"""Ablation on the user's own data: does a learned graph help, and which part of it?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.stats
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedShuffleSplit
from tqdm import tqdm

from jlgcn._stats import mean_and_interval
from jlgcn.estimator.classifier import JLGCNClassifier
from jlgcn.estimator.validation import read_labels
from jlgcn.ops import SparseFeatures

#: Fewest labels of a class: one to train on and one to test on.
_MIN_LABELS = 2


@dataclass(frozen=True)
class Comparison:
    """Accuracy of each variant of the method on held-out labels.

    Attributes:
        accuracy: accuracy of each variant, split by split.
        advice: recommendation, in a sentence or two.
        right: for each variant, (n_splits, n_labels): 1 where a held-out label was predicted, 0
            where it was not, nan where the label was not held out.
    """

    accuracy: dict[str, tuple[float, ...]]
    advice: str
    right: dict[str, NDArray[np.float64]] = field(repr=False, compare=False)

    @property
    def protocol(self) -> str:
        """The evaluation protocol, in sentences."""
        was_hidden = ~np.isnan(next(iter(self.right.values())))  # (splits, rows)
        num_splits, num_labels = was_hidden.shape
        return (
            f"In each of {num_splits} random splits, stratified by class, "
            f"{int(was_hidden[0].sum()):,} of the {num_labels:,} labels were hidden. All 95 % "
            "intervals, those of the advice included, add the half-widths over splits (Student-t) "
            "and over labels (normal) in quadrature."
        )

    def interval(self, name: str) -> dict[str, Any]:
        """Return mean and 95 % interval of a variant's accuracy, computed as for differences."""
        found = _interval(self.right[name])
        return found | {"low": max(0.0, found["low"]), "high": min(1.0, found["high"])}

    def difference(self, first: str, second: str) -> dict[str, Any]:
        """Return mean and 95 % interval of a difference of accuracies, paired by split and row."""
        return _interval(self.right[first] - self.right[second])

    def __str__(self) -> str:
        width = max(len(name) for name in self.accuracy)
        lines = []
        for name in self.accuracy:
            mean, low, high = (100 * self.interval(name)[part] for part in ("mean", "low", "high"))
            lines.append(f"{name:<{width}}  {mean:.1f} ({low:.1f} to {high:.1f})")
        return "\n".join([*lines, self.advice])


def _interval(values: NDArray[np.float64]) -> dict[str, Any]:  # (splits, rows)
    """Return mean and 95 % interval over splits and held-out rows.

    Splits overlap, so the standard error over splits underestimates uncertainty; we add the
    half-width over rows in quadrature.
    """
    found = mean_and_interval(np.nanmean(values, axis=1).tolist())
    was_hidden = ~np.isnan(values).all(axis=0)
    by_row = np.nanmean(values[:, was_hidden], axis=0)
    half = math.hypot(found["high"] - found["mean"], 1.96 * float(scipy.stats.sem(by_row)))
    return found | {"low": found["mean"] - half, "high": found["mean"] + half}


def compare(
    X: ArrayLike,  # noqa: N803
    y: ArrayLike,
    graph: Any = None,  # noqa: ANN401
    *,
    estimator: JLGCNClassifier | None = None,
    n_splits: int = 10,
    test_size: float = 0.2,
    random_state: int = 0,
    network: bool = False,
    progress: bool = False,
) -> Comparison:
    """Measure by cross-validation whether a learned graph helps on some data (ablation study).

    In each stratified random split a share of the labels is held out; all rows stay, as the method
    is transductive. Compared are logistic regression on the features, and the estimator with the
    given graph only, the learned graph only, both, a kNN graph without a learned metric ("no
    metric"), and a learned graph with permuted nodes ("shuffled graph"), a control whose gain
    cannot come from the graph. These variants are of the closed form. "network" is the paper's
    network (``solver="gradient"``) with the given graph and a learned one.

    Args:
        X: features, as in :meth:`JLGCNClassifier.fit`.
        y: classes, as in :meth:`JLGCNClassifier.fit`; unlabelled rows take part as rows.
        graph: known edges, or None.
        estimator: estimator with the hyperparameters to compare, of both solvers; None for the
            defaults.
        n_splits (int ≥ 2, default 10): number of splits.
        test_size (float in (0, 1), default 0.2): share of the labels that is held out.
        random_state (int, default 0): seed of the splits and permutations.
        network (bool, default False): compare the network, too. It trains the estimator's
            `max_iter` epochs (200 by default) in every split, which takes longer than all other
            variants.
        progress (bool, default False): show a progress bar.

    Cost: three to five closed-form fits a split, and one network.

    Example:
        >>> from sklearn.datasets import load_wine
        >>> found = compare(*load_wine(return_X_y=True), n_splits=3, test_size=0.9)
        >>> list(found.accuracy)
        ['learned graph', 'no metric', 'shuffled graph', 'logistic regression']
    """
    if n_splits < 2:
        raise ValueError(
            f"n_splits must be at least 2, to compute an interval, but it is {n_splits}"
        )
    base = JLGCNClassifier() if estimator is None else estimator
    labels, is_known = read_labels(y)
    known = np.flatnonzero(is_known)
    classes, counts = np.unique(labels[known], return_counts=True)
    if len(classes) < 2 or counts.min() < _MIN_LABELS:
        raise ValueError(
            f"comparing needs two classes and {_MIN_LABELS} labels of each, but labels are "
            f"{dict(zip(classes.tolist(), counts.tolist(), strict=True))}; label more rows, or "
            "leave out classes with a single label"
        )
    splitter = StratifiedShuffleSplit(n_splits, test_size=test_size, random_state=random_state)
    right: dict[str, NDArray[np.float64]] = {}
    splits = tqdm(
        splitter.split(known, labels[known]),
        total=n_splits,
        desc="splits",
        disable=None if progress else True,
    )
    for split, (_, hidden) in enumerate(splits):
        asked = known[hidden]
        is_shown = is_known.copy()
        is_shown[asked] = False
        with torch.random.fork_rng(devices=[base.device] if "cuda" in base.device else []):
            torch.manual_seed(random_state + split)
            variants = _predictions(base, X, labels, is_shown, graph, network)
            for name, predicted in variants:
                splits.set_postfix_str(f"{name} done")
                found = right.setdefault(name, np.full((n_splits, len(known)), np.nan))
                found[split, hidden] = (predicted == labels)[asked]
    accuracy = {name: tuple(np.nanmean(values, axis=1).tolist()) for name, values in right.items()}
    comparison = Comparison(accuracy, "", right)
    return replace(comparison, advice=_advice(comparison) + _advice_on_network(comparison))


def _predictions(
    base: JLGCNClassifier,
    X: ArrayLike,  # noqa: N803
    labels: NDArray[Any],
    is_shown: NDArray[np.bool_],
    graph: Any,  # noqa: ANN401
    network: bool,
) -> Iterator[tuple[str, NDArray[Any]]]:
    """Fit every variant to the training labels and yield its predictions of all rows."""
    closed_form = clone(base).set_params(solver="closed_form")
    shown = labels.astype(object)
    shown[~is_shown] = None

    def predicted(model: JLGCNClassifier, given: Any = graph) -> NDArray[Any]:  # noqa: ANN401
        transduction: NDArray[Any] = model.fit(X, shown, given).transduction_
        return transduction

    if graph is not None:
        only = clone(closed_form).set_params(n_layers=1, n_neighbors=20, learned_degree=0.0)
        yield "both graphs", predicted(clone(closed_form))
        yield "given graph", predicted(only)
    learned = clone(closed_form)
    yield "learned graph", predicted(learned, None)
    yield "no metric", predicted(clone(closed_form).set_params(n_layers=1))
    yield "shuffled graph", predicted(clone(closed_form).set_params(control="shuffled graph"))
    if network:
        yield "network", predicted(clone(base).set_params(solver="gradient"))
    scaled = learned.model_.candidates.x
    x = scaled.to_scipy() if isinstance(scaled, SparseFeatures) else scaled.cpu().numpy()
    regression = LogisticRegression(max_iter=2000).fit(x[is_shown], labels[is_shown])
    yield "logistic regression", regression.predict(x)


def _advice(found: Comparison) -> str:
    """Return the recommendation; a difference counts if its interval excludes 0."""
    default = "both graphs" if "both graphs" in found.accuracy else "learned graph"
    over_none = found.difference(default, "logistic regression")
    if over_none["low"] <= 0:
        if over_none["mean"] > 0:
            advice = (
                "These labels cannot tell whether a learned graph helps: "
                f"{_gain(over_none)} against logistic regression on the features alone, which is "
                "the simpler choice until more labels tell."
            )
        else:
            advice = (
                f"Do not use a learned graph here: {_gain(over_none)} against logistic regression "
                "on the features alone."
            )
        if default == "both graphs":
            given = found.difference("given graph", "logistic regression")
            if given["low"] > 0:
                advice += f" The given graph alone helps: {_gain(given)}."
        return advice
    advice = f"Use {default}: {_gain(over_none)} against logistic regression."
    if default == "both graphs":
        over_given = found.difference(default, "given graph")
        if over_given["low"] <= 0:
            return (
                f"Use the given graph alone (learned_degree=0, n_layers=1): a learned one adds "
                f"nothing that can be told from chance, {_gain(over_given)}."
            )
        advice += f" The learned graph is worth {_gain(over_given)} of that."
    over_fixed = found.difference(default, "no metric")
    if over_fixed["low"] <= 0:
        advice += (
            f" Its metric adds nothing that can be told from chance, {_gain(over_fixed)}: "
            "n_layers=1 does as well."
        )
    return advice


def _advice_on_network(found: Comparison) -> str:
    """Return a sentence if the network is better than every other variant by more than chance."""
    if "network" not in found.accuracy:
        return ""
    others = {name: found.interval(name)["mean"] for name in found.accuracy if name != "network"}
    best = max(others, key=others.__getitem__)
    over_best = found.difference("network", best)
    if over_best["low"] <= 0:
        return ""
    return f' The network (solver="gradient") is better than {best}: {_gain(over_best)}.'


def _gain(row: dict[str, Any]) -> str:
    low, high = 100 * row["low"], 100 * row["high"]
    return f"{100 * row['mean']:+.1f} points ({low:+.1f} to {high:+.1f})"
