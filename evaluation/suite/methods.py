"""The estimator and its rivals, whose settings are selected by cross-validation on the labels."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.svm import SVC

from evaluation.suite.data import Data, Matrix
from jlgcn import JLGCNClassifier, SparseGraph
from jlgcn._optional import require
from jlgcn.closed_form import FeatureScaler
from jlgcn.graphs import personalized_pagerank
from jlgcn.ops import SparseFeatures, nearest_neighbors
from jlgcn.ops.csr import symmetric_pattern
from jlgcn.ops.svd import principal_directions

_MAX_FOLDS = 5
_PENALTIES = (0.1, 1.0, 10.0, 100.0, 1000.0)  # C, for rows of mean squared norm 1
_RESTARTS = (0.05, 0.2)
_NEIGHBORS = (10, 20)
_SPREADING_NEIGHBORS = (5, 10, 20)
_SPREADING_RESTARTS = (0.05, 0.2, 0.5)
_TREES = 200
_GAMMAS = (0.25, 1.0, 4.0)  # in units of the inverse variance
_COSTS = (1.0, 10.0, 100.0)
_MAX_COLUMNS = 400
_THRESHOLD = 0.9
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
    """A data set as rivals see it: scaled like the estimator scales it, with shared neighbours.

    What does not depend on labels is computed once for all draws.
    """

    def __init__(self, data: Data) -> None:
        self.data = data
        x = data.x
        sparse = scipy.sparse.issparse(x)
        tensor = (
            SparseFeatures.from_scipy(x) if sparse else torch.from_numpy(np.ascontiguousarray(x))
        )
        self.features = FeatureScaler.fit(tensor)(tensor)
        self.num_classes = int(data.y.max()) + 1
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
        found: NDArray[Any] = _unit_scale((self.features @ directions).numpy())
        return found

    @cached_property
    def dense(self) -> NDArray[Any]:
        """The same, dense."""
        found: NDArray[Any] = self.x.toarray() if scipy.sparse.issparse(self.x) else self.x
        return found

    def knn_graph(self, num_neighbors: int) -> SparseGraph:
        """Return the symmetrised kNN graph, unweighted, normalised."""
        if num_neighbors not in self._graphs:
            self._graphs[num_neighbors] = self._find_graph(num_neighbors)
        return self._graphs[num_neighbors]

    def _find_graph(self, num_neighbors: int) -> SparseGraph:
        index = nearest_neighbors(self.features, min(num_neighbors, len(self.data.y) - 1))
        row = torch.arange(len(index)).repeat_interleave(index.shape[1])
        is_found = index.flatten() >= 0
        pattern = symmetric_pattern(row[is_found], index.flatten()[is_found], len(index))
        ones = torch.ones(pattern.num_edges, dtype=self.features.dtype)
        return _normalized(SparseGraph.from_pattern(pattern, ones))

    @cached_property
    def given_graph(self) -> SparseGraph:
        """The given graph with self-loops, normalised."""
        assert self.data.edges is not None
        loops = np.tile(np.arange(len(self.data.y)), (2, 1))
        edges = np.hstack([self.data.edges, self.data.edges[::-1], loops])
        row, col = torch.from_numpy(edges)
        pattern = symmetric_pattern(row, col, len(self.data.y))
        ones = torch.ones(pattern.num_edges, dtype=self.features.dtype)
        return _normalized(SparseGraph.from_pattern(pattern, ones))

    def propagated(self, num_neighbors: int | None, restart: float) -> NDArray[Any]:
        """Return personalized PageRank features of unit norm on a kNN graph, or the given one."""
        key = (num_neighbors, restart)
        if key not in self._propagated:
            graph = self.given_graph if num_neighbors is None else self.knn_graph(num_neighbors)
            x = torch.from_numpy(self.components)
            found = personalized_pagerank(graph, x.to(graph.weight.dtype), restart).numpy()
            norm = np.linalg.norm(found, axis=1, keepdims=True)
            self._propagated[key] = _unit_scale(found / np.maximum(norm, _SMALLEST))
        return self._propagated[key]

    @cached_property
    def hops(self) -> list[Any]:
        """X, AX and A²X, with A the given graph with loops, normalised."""
        matrix, x = self.given_matrix, self.x
        return [x, matrix @ x, matrix @ (matrix @ x)]

    @cached_property
    def given_matrix(self) -> Matrix:
        """The given graph with self-loops, normalised, as SciPy's matrix."""
        graph = self.given_graph
        pattern = graph.pattern
        entries = (graph.weight.numpy(), (pattern.row.numpy(), pattern.col.numpy()))
        return scipy.sparse.csr_matrix(entries, shape=(pattern.num_nodes,) * 2)


Method = Callable[[Problem, NDArray[np.int64]], Prediction]


def closed_form(
    problem: Problem,
    shown: NDArray[np.int64],
    **parameters: Any,  # noqa: ANN401
) -> Prediction:
    """The estimator with its defaults, or other parameters."""
    data = problem.data
    graph = None if data.edges is None else np.hstack([data.edges, data.edges[::-1]])
    model = JLGCNClassifier(**parameters).fit(data.x, shown, graph)
    probability = model.label_distributions_.astype(np.float64)
    weights = {name: round(w, 3) for name, w in model.model_.evidence.weights.items()}
    return Prediction(probability, probability, {**model.best_params_, "weights": weights})


def logistic_regression(problem: Problem, shown: NDArray[np.int64]) -> Prediction:
    """Multinomial logistic regression on own features."""
    return _logistic([{}], lambda: problem.x, problem, shown)


def support_vectors(problem: Problem, shown: NDArray[np.int64]) -> Prediction:
    """An SVC with an RBF kernel."""
    known = np.flatnonzero(shown >= 0)
    y, splits = shown[known], _splits(shown[known])
    labelled = problem.dense[known]
    squares = (problem.dense**2).sum(1)
    distance = squares[:, None] + squares[known] - 2 * problem.dense @ labelled.T
    best: tuple[float, Any, dict[str, Any]] | None = None
    for gamma in _GAMMAS:
        kernel = np.exp(-gamma * distance)
        for penalty in _COSTS:
            model = SVC(C=penalty, kernel="precomputed", break_ties=True)
            right = sum(
                model.fit(kernel[np.ix_(known[train], train)], y[train]).score(
                    kernel[np.ix_(known[test], train)], y[test]
                )
                for train, test in splits
            )
            if best is None or right > best[0]:
                best = right, kernel, {"C": penalty, "gamma": gamma}
    assert best is not None
    _, kernel, chosen = best
    model = SVC(C=chosen["C"], kernel="precomputed", break_ties=True).fit(kernel[known], y)
    return _of(model, kernel, problem, chosen)


def discriminant_analysis(problem: Problem, shown: NDArray[np.int64]) -> Prediction:
    """Linear discriminant analysis with Ledoit-Wolf shrinkage."""
    known = np.flatnonzero(shown >= 0)
    x = problem.components
    model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
    model.fit(x[known], shown[known])
    return _of(model, x, problem, {})


def nearest_labels(problem: Problem, shown: NDArray[np.int64]) -> Prediction:
    """The k nearest labels."""
    smallest = int(np.bincount(shown[shown >= 0]).sum())
    grid = {"n_neighbors": [k for k in (1, 3, 5, 10) if k <= max(1, smallest // 2)]}
    return _searched(KNeighborsClassifier(weights="distance"), grid, problem, shown)


def random_forest(problem: Problem, shown: NDArray[np.int64]) -> Prediction:
    """A random forest; out-of-bag accuracy selects the size of its leaves."""
    known = np.flatnonzero(shown >= 0)
    best: Any = None
    for leaf in (1, 3):
        model = RandomForestClassifier(
            _TREES, min_samples_leaf=leaf, oob_score=True, random_state=0
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(problem.dense[known], shown[known])
        if best is None or model.oob_score_ > best.oob_score_:
            best = model
    return _of(best, problem.dense, problem, {"min_samples_leaf": best.min_samples_leaf})


def self_training(problem: Problem, shown: NDArray[np.int64]) -> Prediction:
    """Logistic regression that takes its confident predictions for labels, five times at most."""
    chosen = logistic_regression(problem, shown).chosen
    base = LogisticRegression(C=chosen["C"], max_iter=300)
    model = SelfTrainingClassifier(base, threshold=_THRESHOLD, max_iter=5)
    x = problem.components[:, : _MAX_COLUMNS // 4]  # many rows become labels: all columns cost much
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x, shown)
    return _of(model, x, problem, chosen)


def label_spreading(problem: Problem, shown: NDArray[np.int64]) -> Prediction:
    """Label spreading on a kNN graph, with class-mass normalisation where that is better."""
    known = np.flatnonzero(shown >= 0)
    splits = _splits(shown[known])
    best: tuple[float, Any] = (-1.0, (10, 0.2, True))
    target = np.eye(problem.num_classes)
    for number, restart in itertools.product(_SPREADING_NEIGHBORS, _SPREADING_RESTARTS):
        if not splits:
            break
        columns = np.zeros((len(shown), len(splits), problem.num_classes))
        for fold, (train, _) in enumerate(splits):
            columns[known[train], fold] = target[shown[known[train]]]
        spread = _spread(problem.knn_graph(number), columns.reshape(len(shown), -1), restart)
        spread = spread.reshape(columns.shape)
        for normalises in (True, False):
            right = 0.0
            for fold, (train, test) in enumerate(splits):
                found = spread[:, fold]
                if normalises:
                    found = _class_mass(found, shown[known[train]])
                right += float((found[known[test]].argmax(1) == shown[known[test]]).sum())
            if right > best[0]:
                best = right, (number, restart, normalises)
    number, restart, normalises = best[1]
    columns = np.zeros((len(shown), problem.num_classes))
    columns[known] = target[shown[known]]
    found = _spread(problem.knn_graph(number), columns, restart)
    if normalises:
        found = _class_mass(found, shown[known])
    chosen = {"n_neighbors": number, "restart": restart, "class mass": normalises}
    return Prediction(found, _normalised_rows(found), chosen)


def poisson_learning(problem: Problem, shown: NDArray[np.int64]) -> Prediction:
    """Poisson learning (Calder et al., 2020) by its authors' package, on its kNN graph."""
    learning: Any = require("graphlearning", "", "Poisson learning of the suite")
    known = np.flatnonzero(shown >= 0)
    number = min(20, len(shown) - 1)
    x = problem.components.astype(np.float64)
    weights = learning.weightmatrix.knn(x, number, knn_data=_knn_data(problem, number))
    model = learning.ssl.poisson(weights)
    scores = np.asarray(model.fit(known, shown[known]))
    return Prediction(scores, None, {"n_neighbors": number})


def pagerank_features(problem: Problem, shown: NDArray[np.int64]) -> Prediction:
    """Logistic regression on features diffused over a fixed kNN graph."""
    grid = [
        {"n_neighbors": number, "restart": restart}
        for number, restart in itertools.product(_NEIGHBORS, _RESTARTS)
    ]
    return _logistic(
        grid,
        lambda n_neighbors, restart: problem.propagated(n_neighbors, restart),
        problem,
        shown,
    )


def pagerank_given(problem: Problem, shown: NDArray[np.int64]) -> Prediction:
    """Logistic regression on features diffused over the given graph."""
    grid = [{"restart": restart} for restart in _RESTARTS]
    return _logistic(grid, lambda restart: problem.propagated(None, restart), problem, shown)


def sgc(problem: Problem, shown: NDArray[np.int64]) -> Prediction:
    """SGC (Wu et al., 2019): logistic regression on A²X."""
    return _logistic([{}], lambda: _unit_scale(problem.hops[2]), problem, shown)


def sign(problem: Problem, shown: NDArray[np.int64]) -> Prediction:
    """SIGN (Frasca et al., 2020) without hidden layers: logistic regression on [X, AX, A²X]."""
    return _logistic(
        [{}], lambda: _beside([_unit_scale(block) for block in problem.hops]), problem, shown
    )


def neighbor_means(problem: Problem, shown: NDArray[np.int64]) -> Prediction:
    """Logistic regression on own features and means over neighbours and over theirs."""
    matrix = problem.given_matrix.copy()
    matrix.setdiag(0)
    matrix.data[:] = matrix.data > 0
    degree = np.maximum(np.asarray(matrix.sum(1)).ravel(), 1)
    mean = scipy.sparse.diags(1 / degree) @ matrix
    blocks = [problem.x, mean @ problem.x, mean @ (mean @ problem.x)]
    return _logistic([{}], lambda: _beside([_unit_scale(b) for b in blocks]), problem, shown)


def correct_and_smooth(problem: Problem, shown: NDArray[np.int64]) -> Prediction:
    """Correct & Smooth (Huang et al., 2021) of logistic regression, on the given graph."""
    known = np.flatnonzero(shown >= 0)
    target = np.eye(problem.num_classes)
    penalty = logistic_regression(problem, shown).chosen["C"]
    splits = _splits(shown[known])

    def smoothed(rows: NDArray[np.int64], restart: float) -> NDArray[np.float64]:
        x = _coordinates(problem.x, rows)
        model = LogisticRegression(C=penalty, max_iter=1000).fit(x[rows], shown[rows])
        base = _of(model, x, problem, {}).scores
        error = np.zeros_like(base)
        error[rows] = target[shown[rows]] - base[rows]
        spread = _spread(problem.given_graph, error, restart)
        size = np.abs(error[rows]).sum(1).mean()
        length = np.abs(spread).sum(1, keepdims=True)
        corrected = base + np.where(length > _SMALLEST, spread * size / (length + _SMALLEST), 0)
        corrected[rows] = target[shown[rows]]
        return _spread(problem.given_graph, corrected, restart)

    right = dict.fromkeys(_SPREADING_RESTARTS, 0.0)
    for restart, (train, test) in itertools.product(_SPREADING_RESTARTS, splits):
        found = smoothed(known[train], restart)[known[test]]
        right[restart] += float((found.argmax(1) == shown[known[test]]).sum())
    restart = max(right, key=right.__getitem__)
    found = np.maximum(smoothed(known, restart), 0)
    return Prediction(found, _normalised_rows(found), {"restart": restart, "C": penalty})


#: Methods without a given graph, then those that need one.
METHODS: dict[str, Method] = {
    "jlgcn": closed_form,
    "logistic regression": logistic_regression,
    "SVC": support_vectors,
    "LDA": discriminant_analysis,
    "kNN": nearest_labels,
    "random forest": random_forest,
    "self-training": self_training,
    "label spreading": label_spreading,
    "Poisson learning": poisson_learning,
    "PageRank features": pagerank_features,
}
WITH_GRAPH: dict[str, Method] = {
    "PageRank, given graph": pagerank_given,
    "SGC": sgc,
    "SIGN": sign,
    "neighbour means": neighbor_means,
    "Correct & Smooth": correct_and_smooth,
}
#: The part of the estimator that reads a graph, without the others: what is learning it worth?
GRAPH_ALONE: dict[str, Method] = {
    "learned graph alone": partial(closed_form, parts="graph"),
    "fixed graph alone": partial(closed_form, parts="graph", n_layers=1),
}


def _logistic(
    grid: Sequence[dict[str, Any]],
    features: Callable[..., Any],
    problem: Problem,
    shown: NDArray[np.int64],
) -> Prediction:
    """Select features and penalty by cross-validated log-loss, and fit to all labels."""
    known = np.flatnonzero(shown >= 0)
    y = shown[known]
    splits = _splits(y)
    best: tuple[float, dict[str, Any], float, Any] | None = None
    for setting in grid:
        x = _coordinates(features(**setting), known)
        for penalty in _PENALTIES:
            loss = 0.0
            for train, test in splits:
                model = LogisticRegression(C=penalty, max_iter=300, tol=1e-3)
                probability = model.fit(x[known[train]], y[train]).predict_proba(x[known[test]])
                place = np.searchsorted(model.classes_, y[test])
                own = probability[np.arange(len(test)), place]
                loss -= float(np.log(np.maximum(own, _SMALLEST)).sum())
            if best is None or loss < best[0]:
                best = loss, setting, penalty, x
            if not splits:
                best = loss, setting, 10.0, x
    assert best is not None
    _, setting, penalty, x = best
    model = LogisticRegression(C=penalty, max_iter=1000).fit(x[known], y)
    return _of(model, x, problem, {**setting, "C": penalty})


def _searched(
    model: BaseEstimator, grid: dict[str, list[Any]], problem: Problem, shown: NDArray[np.int64]
) -> Prediction:
    known = np.flatnonzero(shown >= 0)
    splits = _splits(shown[known])
    x = problem.dense
    if splits:
        model = GridSearchCV(model, grid, cv=splits)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x[known], shown[known])
    chosen = model.best_params_ if splits else {}
    return _of(model, x, problem, chosen)


def _of(model: BaseEstimator, x: Matrix, problem: Problem, chosen: dict[str, Any]) -> Prediction:
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


def _splits(y: NDArray[np.int64]) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return stratified folds whose training part has every class; none if one has one label."""
    smallest = int(np.bincount(y)[np.unique(y)].min())
    if smallest < 2:
        return []
    folds = StratifiedKFold(min(_MAX_FOLDS, smallest), shuffle=True, random_state=0)
    return list(folds.split(y[:, None], y))


def _coordinates(x: Matrix, known: NDArray[np.int64]) -> Matrix:
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


def _beside(blocks: list[Any]) -> Matrix:
    if any(scipy.sparse.issparse(block) for block in blocks):
        return scipy.sparse.hstack(blocks, format="csr")
    return np.hstack(blocks)


def _unit_scale(x: Matrix) -> Matrix:
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


def _spread(
    graph: SparseGraph, columns: NDArray[np.float64], restart: float
) -> NDArray[np.float64]:
    x = torch.from_numpy(columns).to(graph.weight.dtype)
    found: NDArray[np.float64] = personalized_pagerank(graph, x, restart).double().numpy()
    return found


def _class_mass(scores: NDArray[np.float64], y: NDArray[np.int64]) -> NDArray[np.float64]:
    """Class-mass normalisation (Zhu et al., 2003): masses of classes as among the labels."""
    prior = np.bincount(y, minlength=scores.shape[1]) / len(y)
    positive = np.maximum(scores, 0)
    found: NDArray[np.float64] = positive * prior / np.maximum(positive.sum(0), _SMALLEST)
    return found


def _normalised_rows(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    positive = np.maximum(scores, _SMALLEST)
    found: NDArray[np.float64] = positive / positive.sum(1, keepdims=True)
    return found


def _knn_data(problem: Problem, number: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return neighbours and distances as the package wants them: a row is its own first one."""
    x = problem.components.astype(np.float64)
    index = nearest_neighbors(torch.from_numpy(x), number).numpy()
    own = np.arange(len(x))[:, None]
    index = np.hstack([own, index])
    distance = np.linalg.norm(x[:, None] - x[index], axis=-1)
    order = distance.argsort(1, kind="stable")
    return np.take_along_axis(index, order, 1), np.take_along_axis(distance, order, 1)
