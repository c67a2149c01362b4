"""Ablation on the user's own data, beside simple rivals: does a learned graph help, and how far?"""

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
from tqdm import tqdm

from jlgcn._stats import mean_and_interval
from jlgcn.estimator.classifier import JLGCNClassifier
from jlgcn.estimator.encoding import encode
from jlgcn.estimator.labels import read_labels

# Fewest labels of a class: one to train on and one to test on.
_MIN_LABELS = 2
_SMALLEST = 1e-12


@dataclass(frozen=True)
class Comparison:
    """Scores of each variant of the method, and of its rivals, on held-out labels.

    Attributes:
        accuracy: accuracy of each variant, split by split.
        advice: recommendation, in a sentence or two.
        balanced_accuracy: mean recall over classes of each variant, split by split.
        log_loss: mean negative log-probability of the held-out classes, split by split; smaller is
            better.
        right: for each variant, (n_splits, n_labels): 1 where a held-out label was predicted, 0
            where it was not, nan where the label was not held out.
    """

    accuracy: dict[str, tuple[float, ...]]
    advice: str
    balanced_accuracy: dict[str, tuple[float, ...]]
    log_loss: dict[str, tuple[float, ...]]
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
        lines = [f"{'':<{width}}  {'accuracy (95 % interval)':<24}  balanced  log-loss"]
        for name in self.accuracy:
            mean, low, high = (100 * self.interval(name)[part] for part in ("mean", "low", "high"))
            accuracy = f"{mean:.1f} ({low:.1f} to {high:.1f})"
            balanced = 100 * np.mean(self.balanced_accuracy[name])
            loss = np.mean(self.log_loss[name])
            lines.append(f"{name:<{width}}  {accuracy:<24}  {balanced:8.1f}  {loss:8.3f}")
        return "\n".join([*lines, self.advice])

    @property
    def best_rival(self) -> str:
        """The rival of highest mean accuracy."""
        from jlgcn.estimator.rivals import RIVALS

        means = {name: np.mean(self.accuracy[name]) for name in RIVALS if name in self.accuracy}
        return max(means, key=means.__getitem__)


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
    is transductive. Compared are the estimator with the given graph only, the learned graph only,
    both, a kNN graph without a learned metric ("no metric"), and a learned graph with permuted
    nodes ("shuffled graph"), a control whose gain cannot come from the graph. These variants are of
    the closed form. "network" is the paper's network (``solver="gradient"``) with the given graph
    and a learned one.

    Beside them stand rivals, on the same features and with settings selected by cross-validation on
    the same labels: logistic regression; label spreading on a kNN graph; and logistic regression on
    personalized PageRank features of a fixed kNN graph, or of the given one. Above 50,000 rows
    those with a kNN graph are left out.

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

    Cost: three to five closed-form fits a split, and one network; rivals take about as long as one
    fit.

    Example:
        >>> from sklearn.datasets import load_wine
        >>> found = compare(*load_wine(return_X_y=True), n_splits=3, test_size=0.9)
        >>> found.best_rival
        'PageRank features'
    """
    if n_splits < 2:
        raise ValueError(
            f"n_splits must be at least 2, to compute an interval, but it is {n_splits}"
        )
    # Not at the top: `jlgcn predict` waits for the package, and scikit-learn's linear models take
    # a quarter of a second.
    from sklearn.model_selection import StratifiedShuffleSplit

    from jlgcn.estimator.rivals import Problem, rivals_that_fit

    base = clone(JLGCNClassifier() if estimator is None else estimator)
    x, _, scaler = encode(X, base.scaler)  # once for all fits
    base.set_params(scaler=scaler)
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
    codes = np.full(len(labels), -1)
    codes[known] = np.searchsorted(classes, labels[known])
    found = _Scores(n_splits, len(known))
    splits = tqdm(
        splitter.split(known, codes[known]),
        total=n_splits,
        desc="splits",
        disable=None if progress else True,
    )
    problem: Problem | None = None
    for split, (_, hidden) in enumerate(splits):
        hidden = _without_whole_classes(hidden, codes[known])
        asked = known[hidden]
        shown = codes.copy()
        shown[asked] = -1
        with torch.random.fork_rng(devices=[base.device] if "cuda" in base.device else []):
            torch.manual_seed(random_state + split)
            for name, model in _variants(base, x, classes, shown, graph, network):
                probability = np.zeros((len(shown), len(classes)))
                place = np.searchsorted(classes, model.classes_)
                probability[:, place] = model.label_distributions_
                found.add(name, split, hidden, probability[asked], codes[asked])
                splits.set_postfix_str(f"{name} done")
                if problem is None:  # the first variant has all that is given
                    fitted = model.model_
                    problem = Problem(fitted.x.to("cpu"), len(classes), fitted.given)
        assert problem is not None
        for name, rival in rivals_that_fit(problem).items():
            predicted = rival(problem, shown).probability
            assert predicted is not None
            found.add(name, split, hidden, predicted[asked], codes[asked])
            splits.set_postfix_str(f"{name} done")
    comparison = Comparison(
        {name: tuple(np.nanmean(right, axis=1).tolist()) for name, right in found.right.items()},
        "",
        {name: tuple(values) for name, values in found.balanced.items()},
        {name: tuple(values) for name, values in found.loss.items()},
        found.right,
    )
    return replace(comparison, advice=_advice(comparison) + _advice_on_network(comparison))


class _Scores:
    """Scores of held-out labels, by name."""

    def __init__(self, num_splits: int, num_labels: int) -> None:
        self.size = (num_splits, num_labels)
        self.right: dict[str, NDArray[np.float64]] = {}
        self.balanced: dict[str, list[float]] = {}
        self.loss: dict[str, list[float]] = {}

    def add(
        self,
        name: str,
        split: int,
        hidden: NDArray[np.int64],
        probability: NDArray[np.float64],  # (len(hidden), n_classes)
        y: NDArray[np.int64],
    ) -> None:
        is_right = probability.argmax(1) == y
        self.right.setdefault(name, np.full(self.size, np.nan))[split, hidden] = is_right
        recalls = [is_right[y == code].mean() for code in np.unique(y)]
        self.balanced.setdefault(name, []).append(float(np.mean(recalls)))
        own = probability[np.arange(len(y)), y]
        loss = -np.log(np.maximum(own, _SMALLEST)).mean()
        self.loss.setdefault(name, []).append(float(loss))


def _variants(
    base: JLGCNClassifier,
    X: ArrayLike,  # noqa: N803
    classes: NDArray[Any],
    shown: NDArray[np.int64],
    graph: Any,  # noqa: ANN401
    network: bool,
) -> Iterator[tuple[str, JLGCNClassifier]]:
    """Fit every variant to the labels shown and yield it."""
    labels = classes.astype(object)[shown]
    labels[shown < 0] = None
    changes: dict[str, dict[str, Any]] = {"learned graph": {}}
    if graph is not None:
        only = {"n_layers": 1, "n_neighbors": 20, "learned_degree": 0.0}
        changes = {"both graphs": {}, "given graph": only} | changes
    changes |= {"no metric": {"n_layers": 1}, "shuffled graph": {"control": "shuffled graph"}}
    if network:
        changes["network"] = {"solver": "gradient"}
    for name, change in changes.items():
        model = clone(base).set_params(**{"solver": "closed_form"} | change)
        yield name, model.fit(X, labels, None if name == "learned graph" else graph)


def _without_whole_classes(
    hidden: NDArray[np.int64], codes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the labels to hide without one of each class that would have no label left.

    Args:
        hidden: positions of labels to hide.
        codes: classes of all labels, (M,).
    """
    num_hidden = np.bincount(codes[hidden], minlength=int(codes.max()) + 1)
    is_whole = num_hidden == np.bincount(codes)
    _, first = np.unique(codes[hidden], return_index=True)
    return np.delete(hidden, first[is_whole[codes[hidden[first]]]])


def _advice(found: Comparison) -> str:
    """Return the recommendation; a difference counts if its interval excludes 0."""
    default = "both graphs" if "both graphs" in found.accuracy else "learned graph"
    rival = found.best_rival
    over_rival = found.difference(default, rival)
    if over_rival["high"] < 0:
        return f"Use {rival} instead: {default} is {_gain(over_rival)} against it."
    if over_rival["low"] <= 0:
        advice = (
            f"These labels cannot tell whether {default} is better than {rival}, the best rival: "
            f"{_gain(over_rival)}. The simpler one will do until more labels tell."
        )
        if default == "both graphs":
            given = found.difference("given graph", rival)
            if given["low"] > 0:
                advice += f" The given graph alone helps: {_gain(given)}."
        return advice
    advice = f"Use {default}: {_gain(over_rival)} against {rival}, the best rival."
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
