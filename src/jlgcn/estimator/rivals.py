"""Simple methods that the estimator is compared with, tuned by cross-validation on the labels."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from jlgcn.graphs import SparseGraph, personalized_pagerank
from jlgcn.graphs.candidates import Features, sum_with_loops
from jlgcn.ops import SparseFeatures, nearest_neighbors
from jlgcn.ops.csr import symmetric_pattern
from jlgcn.ops.svd import principal_directions

Matrix: TypeAlias = Any  # an array or a sparse matrix
Fold: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]

_MAX_FOLDS = 5
_PENALTIES = (0.1, 1.0, 10.0, 100.0, 1000.0)  # C, for rows of mean squared norm 1
_RESTARTS = (0.05, 0.2)
_NEIGHBORS = (10, 20)
_SPREADING_NEIGHBORS = (5, 10, 20)
_SPREADING_RESTARTS = (0.05, 0.2, 0.5)
_MAX_COLUMNS = 400
_SMALLEST = 1e-12


class Prediction(NamedTuple):
    """What a method says of all rows.

    Attributes:
        scores: class scores, (N, C), whose largest is the predicted class.
        probability: class probabilities, (N, C); None for methods without any.
        chosen: settings that cross-validation selected, and what else is worth recording.
    """

    scores: NDArray[np.float64]
    probability: NDArray[np.float64] | None
    chosen: dict[str, Any]


class Problem:
    """Rows as rivals see them: scaled like the estimator scales them, with shared neighbours.

    What does not depend on labels is computed once for all splits.

    Args:
        features: scaled features, (N, F).
        num_classes: number of classes.
        given: given graph; None without one.
    """

    def __init__(
        self, features: Features, num_classes: int, given: SparseGraph | None = None
    ) -> None:
        self.features = features
        self.num_classes = num_classes
        self.given = given
        self._propagated: dict[Any, NDArray[Any]] = {}
        self._graphs: dict[int, SparseGraph] = {}

    @cached_property
    def x(self) -> Matrix:
        """Scaled features, with rows of mean squared norm 1."""
        x: Any = (
            self.features.to_scipy()
            if isinstance(self.features, SparseFeatures)
            else self.features.numpy()
        )
        if not scipy.sparse.issparse(x):
            x = x - x.mean(0)
            return x / np.sqrt(max(float((x**2).sum(1).mean()), _SMALLEST))
        return x / np.sqrt(max(float(x.multiply(x).sum(1).mean()), _SMALLEST))

    @cached_property
    def components(self) -> NDArray[Any]:
        """Principal components of wide features, 400 at most; others as they are."""
        if self.x.shape[1] <= _MAX_COLUMNS:
            return self.dense
        directions = principal_directions(self.features, _MAX_COLUMNS)
        found: NDArray[Any] = unit_scale((self.features @ directions).numpy())
        return found

    @cached_property
    def dense(self) -> NDArray[Any]:
        """The same, dense."""
        found: NDArray[Any] = self.x.toarray() if scipy.sparse.issparse(self.x) else self.x
        return found

    def selection(self, shown: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[Fold]]:
        """Return classes, (N,), and the rows to fit and to score settings on: stratified folds."""
        known = np.flatnonzero(shown >= 0)
        folds = stratified_folds(shown[known])
        return shown, [(known[fitted], known[scored]) for fitted, scored in folds]

    def knn_graph(self, num_neighbors: int) -> SparseGraph:
        """Return the symmetrised kNN graph, unweighted, normalised."""
        if num_neighbors not in self._graphs:
            self._graphs[num_neighbors] = self._find_graph(num_neighbors)
        return self._graphs[num_neighbors]

    def _find_graph(self, num_neighbors: int) -> SparseGraph:
        index = nearest_neighbors(self.features, min(num_neighbors, self.features.shape[0] - 1))
        row = torch.arange(len(index)).repeat_interleave(index.shape[1])
        is_found = index.flatten() >= 0
        pattern = symmetric_pattern(row[is_found], index.flatten()[is_found], len(index))
        ones = torch.ones(pattern.num_edges, dtype=self.features.dtype)
        return _normalized(SparseGraph.from_pattern(pattern, ones))

    @cached_property
    def given_graph(self) -> SparseGraph:
        """The given graph with self-loops, normalised."""
        assert self.given is not None
        weight = self.given.weight.to(self.features.dtype)
        summed = sum_with_loops([(self.given.pattern, weight)], self.given.num_nodes)
        return _normalized(summed)

    def propagated(self, num_neighbors: int | None, restart: float) -> NDArray[Any]:
        """Return personalized PageRank features of unit norm on a kNN graph, or the given one."""
        key = (num_neighbors, restart)
        if key not in self._propagated:
            graph = self.given_graph if num_neighbors is None else self.knn_graph(num_neighbors)
            x = torch.from_numpy(self.components)
            found = personalized_pagerank(graph, x.to(graph.weight.dtype), restart).numpy()
            norm = np.linalg.norm(found, axis=1, keepdims=True)
            self._propagated[key] = unit_scale(found / np.maximum(norm, _SMALLEST))
        return self._propagated[key]


#: Predicts all rows from the labels that it is shown: classes, and -1 elsewhere.
Method = Callable[[Problem, NDArray[np.int64]], Prediction]


def logistic_regression(problem: Problem, shown: NDArray[np.int64]) -> Prediction:
    """Multinomial logistic regression on own features."""
    return tuned_logistic([{}], lambda: problem.x, problem, shown)


def label_spreading(problem: Problem, shown: NDArray[np.int64]) -> Prediction:
    """Label spreading on a kNN graph, with class-mass normalisation where that is better."""
    y, splits = problem.selection(shown)
    best: tuple[float, Any] = (-1.0, (10, 0.2, True))
    target = np.eye(problem.num_classes)
    for number, restart in itertools.product(_SPREADING_NEIGHBORS, _SPREADING_RESTARTS):
        if not splits:
            break
        columns = np.zeros((len(shown), len(splits), problem.num_classes))
        for fold, (fitted, _) in enumerate(splits):
            columns[fitted, fold] = target[y[fitted]]
        wide = spread(problem.knn_graph(number), columns.reshape(len(shown), -1), restart)
        wide = wide.reshape(columns.shape)
        for normalises in (True, False):
            right = 0.0
            for fold, (fitted, scored) in enumerate(splits):
                found = wide[:, fold]
                if normalises:
                    found = _class_mass(found, y[fitted])
                right += float((found[scored].argmax(1) == y[scored]).sum())
            if right > best[0]:
                best = right, (number, restart, normalises)
    number, restart, normalises = best[1]
    known = np.flatnonzero(shown >= 0)
    columns = np.zeros((len(shown), problem.num_classes))
    columns[known] = target[shown[known]]
    found = spread(problem.knn_graph(number), columns, restart)
    if normalises:
        found = _class_mass(found, shown[known])
    chosen = {"n_neighbors": number, "restart": restart, "class mass": normalises}
    return Prediction(found, as_distributions(found), chosen)


def pagerank_features(problem: Problem, shown: NDArray[np.int64]) -> Prediction:
    """Logistic regression on features diffused over a fixed kNN graph."""
    grid = [
        {"n_neighbors": number, "restart": restart}
        for number, restart in itertools.product(_NEIGHBORS, _RESTARTS)
    ]
    return tuned_logistic(
        grid,
        lambda n_neighbors, restart: problem.propagated(n_neighbors, restart),
        problem,
        shown,
    )


def pagerank_given(problem: Problem, shown: NDArray[np.int64]) -> Prediction:
    """Logistic regression on features diffused over the given graph."""
    grid = [{"restart": restart} for restart in _RESTARTS]
    return tuned_logistic(grid, lambda restart: problem.propagated(None, restart), problem, shown)


#: By name, those that need a given graph last.
RIVALS: dict[str, Method] = {
    "logistic regression": logistic_regression,
    "label spreading": label_spreading,
    "PageRank features": pagerank_features,
    "PageRank, given graph": pagerank_given,
}

# Above so many rows, rivals with a kNN graph take longer than the estimator.
_MOST_ROWS_OF_NEIGHBORS = 50_000


def rivals_that_fit(problem: Problem) -> dict[str, Method]:
    """Return the rivals that these rows allow: with a given graph, and of moderate size."""
    unfit = set()
    if problem.given is None:
        unfit.add("PageRank, given graph")
    if problem.features.shape[0] > _MOST_ROWS_OF_NEIGHBORS:
        unfit |= {"label spreading", "PageRank features"}
    return {name: method for name, method in RIVALS.items() if name not in unfit}


def tuned_logistic(
    grid: Sequence[dict[str, Any]],
    features: Callable[..., Any],
    problem: Problem,
    shown: NDArray[np.int64],
) -> Prediction:
    """Select features and penalty by held-out log-loss, and fit to all labels that are shown."""
    known = np.flatnonzero(shown >= 0)
    y, splits = problem.selection(shown)
    best: tuple[float, dict[str, Any], float, Any] | None = None
    for setting in grid:
        x = in_span(features(**setting), known)
        for penalty in _PENALTIES:
            loss = 0.0
            for fitted, scored in splits:
                model = LogisticRegression(C=penalty, max_iter=300, tol=1e-3)
                probability = model.fit(x[fitted], y[fitted]).predict_proba(x[scored])
                place = np.searchsorted(model.classes_, y[scored])
                own = probability[np.arange(len(scored)), place]
                loss -= float(np.log(np.maximum(own, _SMALLEST)).sum())
            if best is None or loss < best[0]:
                best = loss, setting, penalty, x
            if not splits:
                best = loss, setting, 10.0, x
    assert best is not None
    _, setting, penalty, x = best
    model = LogisticRegression(C=penalty, max_iter=1000).fit(x[known], shown[known])
    return prediction_of(model, x, problem, {**setting, "C": penalty})


def prediction_of(
    model: BaseEstimator, x: Matrix, problem: Problem, chosen: dict[str, Any]
) -> Prediction:
    """Return a fitted model's prediction of all rows, with 0 for classes that it did not see."""
    has_probability = hasattr(model, "predict_proba")
    found = model.predict_proba(x) if has_probability else model.decision_function(x)
    if found.ndim == 1:
        found = np.stack([-found, found], 1)
    lowest = 0.0 if has_probability else float(found.min()) - 1
    scores = np.full((x.shape[0], problem.num_classes), lowest)
    scores[:, model.classes_] = found
    plain = {
        name: value.item() if hasattr(value, "item") else value for name, value in chosen.items()
    }
    return Prediction(scores, scores if has_probability else None, plain)


def stratified_folds(y: NDArray[np.int64]) -> list[Fold]:
    """Return stratified folds whose training part has every class; none if one has one label."""
    smallest = int(np.bincount(y)[np.unique(y)].min())
    if smallest < 2:
        return []
    folds = StratifiedKFold(min(_MAX_FOLDS, smallest), shuffle=True, random_state=0)
    return list(folds.split(y[:, None], y))


def in_span(x: Matrix, known: NDArray[np.int64]) -> Matrix:
    """Return all rows in the span of the labelled ones; features as they are, if they are fewer.

    The weights of a linear classifier with an L2 penalty lie in this span.
    """
    if x.shape[1] <= len(known):
        return x
    rows = x[known].toarray() if scipy.sparse.issparse(x) else x[known]
    rows = rows.astype(np.float64)
    values, vectors = np.linalg.eigh(rows @ rows.T)
    is_kept = values > 1e-9 * values[-1]
    basis = rows.T @ (vectors[:, is_kept] / np.sqrt(values[is_kept]))
    return x @ basis


def unit_scale(x: Matrix) -> Matrix:
    """Return features whose rows have a mean squared norm of 1."""
    if scipy.sparse.issparse(x):
        return x / np.sqrt(max(float(x.multiply(x).sum(1).mean()), _SMALLEST))
    x = x - x.mean(0)
    return x / np.sqrt(max(float((x**2).sum(1).mean()), _SMALLEST))


def _normalized(graph: SparseGraph) -> SparseGraph:
    """Return Λ^-½ A Λ^-½ as one sparse graph."""
    factor = graph.degree().clamp(min=_SMALLEST).rsqrt()
    pattern = graph.pattern
    weight = graph.weight * factor[pattern.row] * factor[pattern.col]
    return SparseGraph.from_pattern(pattern, weight)


def spread(graph: SparseGraph, columns: NDArray[np.float64], restart: float) -> NDArray[np.float64]:
    """Return columns diffused by personalized PageRank."""
    x = torch.from_numpy(columns).to(graph.weight.dtype)
    found: NDArray[np.float64] = personalized_pagerank(graph, x, restart).double().numpy()
    return found


def _class_mass(scores: NDArray[np.float64], y: NDArray[np.int64]) -> NDArray[np.float64]:
    """Class-mass normalisation (Zhu et al., 2003): masses of classes as among the labels."""
    prior = np.bincount(y, minlength=scores.shape[1]) / len(y)
    positive = np.maximum(scores, 0)
    found: NDArray[np.float64] = positive * prior / np.maximum(positive.sum(0), _SMALLEST)
    return found


def as_distributions(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return scores divided by the sum of their row; negative ones count as 0."""
    positive = np.maximum(scores, _SMALLEST)
    found: NDArray[np.float64] = positive / positive.sum(1, keepdims=True)
    return found
