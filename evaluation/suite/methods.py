"""The estimator and its rivals, whose settings are selected by cross-validation on the labels."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.svm import SVC

from evaluation.suite.data import Data, Matrix
from jlgcn import JLGCNClassifier, SparseGraph
from jlgcn._optional import require
from jlgcn.closed_form import FeatureScaler
from jlgcn.estimator.rivals import (
    Prediction,
    Problem,
    as_distributions,
    in_span,
    label_spreading,
    logistic_regression,
    pagerank_features,
    pagerank_given,
    prediction_of,
    spread,
    tuned_logistic,
    unit_scale,
)
from jlgcn.ops import SparseFeatures, nearest_neighbors

_RESTARTS = (0.05, 0.2, 0.5)
_TREES = 200
_GAMMAS = (0.25, 1.0, 4.0)  # in units of the inverse variance
_COSTS = (1.0, 10.0, 100.0)
_COLUMNS = 100
_THRESHOLD = 0.9
_SMALLEST = 1e-12


class SuiteProblem(Problem):
    """A data set, and what rivals share of it."""

    def __init__(self, data: Data) -> None:
        self.data = data
        x, given = data.x, None
        tensor = (
            SparseFeatures.from_scipy(x)
            if scipy.sparse.issparse(x)
            else torch.from_numpy(np.ascontiguousarray(x))
        )
        if data.edges is not None:
            both = torch.from_numpy(np.hstack([data.edges, data.edges[::-1]]))
            given = SparseGraph(both, num_nodes=len(data.y))
        super().__init__(FeatureScaler.fit(tensor)(tensor), int(data.y.max()) + 1, given)

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


Method = Callable[[SuiteProblem, NDArray[np.int64]], Prediction]


def closed_form(
    problem: SuiteProblem,
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


def support_vectors(problem: SuiteProblem, shown: NDArray[np.int64]) -> Prediction:
    """An SVC with an RBF kernel."""
    known = np.flatnonzero(shown >= 0)
    y, splits = problem.selection(shown)
    place = np.zeros(len(shown), dtype=np.int64)  # of labelled rows among the kernel's columns
    place[known] = np.arange(len(known))
    squares = (problem.dense**2).sum(1)
    distance = squares[:, None] + squares[known] - 2 * problem.dense @ problem.dense[known].T
    best: tuple[float, Any, dict[str, Any]] | None = None
    for gamma in _GAMMAS:
        kernel = np.exp(-gamma * distance)
        for penalty in _COSTS:
            model = SVC(C=penalty, kernel="precomputed", break_ties=True)
            right = sum(
                model.fit(kernel[np.ix_(fitted, place[fitted])], y[fitted]).score(
                    kernel[np.ix_(scored, place[fitted])], y[scored]
                )
                for fitted, scored in splits
            )
            if best is None or right > best[0]:
                best = right, kernel, {"C": penalty, "gamma": gamma}
    assert best is not None
    _, kernel, chosen = best
    model = SVC(C=chosen["C"], kernel="precomputed", break_ties=True)
    model.fit(kernel[known], shown[known])
    return prediction_of(model, kernel, problem, chosen)


def discriminant_analysis(problem: SuiteProblem, shown: NDArray[np.int64]) -> Prediction:
    """Linear discriminant analysis with Ledoit-Wolf shrinkage."""
    known = np.flatnonzero(shown >= 0)
    x = problem.components
    model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
    model.fit(x[known], shown[known])
    return prediction_of(model, x, problem, {})


def nearest_labels(problem: SuiteProblem, shown: NDArray[np.int64]) -> Prediction:
    """The k nearest labels."""
    smallest = int(np.bincount(shown[shown >= 0]).sum())
    grid = [{"n_neighbors": k} for k in (1, 3, 5, 10) if k <= max(1, smallest // 2)]
    return _searched(KNeighborsClassifier(weights="distance"), grid, problem, shown)


def random_forest(problem: SuiteProblem, shown: NDArray[np.int64]) -> Prediction:
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
    return prediction_of(best, problem.dense, problem, {"min_samples_leaf": best.min_samples_leaf})


def self_training(problem: SuiteProblem, shown: NDArray[np.int64]) -> Prediction:
    """Logistic regression that takes its confident predictions for labels, five times at most."""
    chosen = logistic_regression(problem, shown).chosen
    base = LogisticRegression(C=chosen["C"], max_iter=300)
    model = SelfTrainingClassifier(base, threshold=_THRESHOLD, max_iter=5)
    x = problem.components[:, :_COLUMNS]  # many rows become labels: all columns cost much
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x, shown)
    return prediction_of(model, x, problem, chosen)


def poisson_learning(problem: SuiteProblem, shown: NDArray[np.int64]) -> Prediction:
    """Poisson learning (Calder et al., 2020) by its authors' package, on its kNN graph."""
    learning: Any = require("graphlearning", "", "Poisson learning of the suite")
    known = np.flatnonzero(shown >= 0)
    number = min(20, len(shown) - 1)
    x = problem.components.astype(np.float64)
    weights = learning.weightmatrix.knn(x, number, knn_data=_knn_data(problem, number))
    model = learning.ssl.poisson(weights)
    scores = np.asarray(model.fit(known, shown[known]))
    return Prediction(scores, None, {"n_neighbors": number})


def sgc(problem: SuiteProblem, shown: NDArray[np.int64]) -> Prediction:
    """SGC (Wu et al., 2019): logistic regression on A²X."""
    return tuned_logistic([{}], lambda: unit_scale(problem.hops[2]), problem, shown)


def sign(problem: SuiteProblem, shown: NDArray[np.int64]) -> Prediction:
    """SIGN (Frasca et al., 2020) without hidden layers: logistic regression on [X, AX, A²X]."""
    return tuned_logistic(
        [{}], lambda: _beside([unit_scale(block) for block in problem.hops]), problem, shown
    )


def neighbor_means(problem: SuiteProblem, shown: NDArray[np.int64]) -> Prediction:
    """Logistic regression on own features and means over neighbours and over theirs."""
    matrix = problem.given_matrix.copy()
    matrix.setdiag(0)
    matrix.data[:] = matrix.data > 0
    degree = np.maximum(np.asarray(matrix.sum(1)).ravel(), 1)
    mean = scipy.sparse.diags(1 / degree) @ matrix
    blocks = [problem.x, mean @ problem.x, mean @ (mean @ problem.x)]
    return tuned_logistic([{}], lambda: _beside([unit_scale(b) for b in blocks]), problem, shown)


def correct_and_smooth(problem: SuiteProblem, shown: NDArray[np.int64]) -> Prediction:
    """Correct & Smooth (Huang et al., 2021) of logistic regression, on the given graph."""
    known = np.flatnonzero(shown >= 0)
    target = np.eye(problem.num_classes)
    penalty = logistic_regression(problem, shown).chosen["C"]
    y, splits = problem.selection(shown)

    def smoothed(rows: NDArray[np.int64], restart: float) -> NDArray[np.float64]:
        x = in_span(problem.x, rows)
        model = LogisticRegression(C=penalty, max_iter=1000).fit(x[rows], shown[rows])
        base = prediction_of(model, x, problem, {}).scores
        error = np.zeros_like(base)
        error[rows] = target[shown[rows]] - base[rows]
        wide = spread(problem.given_graph, error, restart)
        size = np.abs(error[rows]).sum(1).mean()
        length = np.abs(wide).sum(1, keepdims=True)
        corrected = base + np.where(length > _SMALLEST, wide * size / (length + _SMALLEST), 0)
        corrected[rows] = target[shown[rows]]
        return spread(problem.given_graph, corrected, restart)

    right = dict.fromkeys(_RESTARTS, 0.0)
    for restart, (fitted, scored) in itertools.product(_RESTARTS, splits):
        found = smoothed(fitted, restart)[scored]
        right[restart] += float((found.argmax(1) == y[scored]).sum())
    restart = max(right, key=right.__getitem__)
    found = np.maximum(smoothed(known, restart), 0)
    return Prediction(found, as_distributions(found), {"restart": restart, "C": penalty})


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


def _searched(
    model: BaseEstimator,
    grid: list[dict[str, Any]],
    problem: SuiteProblem,
    shown: NDArray[np.int64],
) -> Prediction:
    known = np.flatnonzero(shown >= 0)
    y, splits = problem.selection(shown)
    x = problem.dense
    best: tuple[float, dict[str, Any]] = (-1.0, {})
    for chosen in grid if splits else []:
        right = np.mean(
            [
                clone(model)
                .set_params(**chosen)
                .fit(x[fitted], y[fitted])
                .score(x[scored], y[scored])
                for fitted, scored in splits
            ]
        )
        if right > best[0]:
            best = float(right), chosen
    model = clone(model).set_params(**best[1]).fit(x[known], shown[known])
    return prediction_of(model, x, problem, best[1])


def _knn_data(problem: SuiteProblem, number: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return neighbours and distances as the package wants them: a row is its own first one."""
    x = problem.components.astype(np.float64)
    index = nearest_neighbors(torch.from_numpy(x), number).numpy()
    own = np.arange(len(x))[:, None]
    index = np.hstack([own, index])
    distance = np.linalg.norm(x[:, None] - x[index], axis=-1)
    order = distance.argsort(1, kind="stable")
    return np.take_along_axis(index, order, 1), np.take_along_axis(distance, order, 1)


def _beside(blocks: list[Any]) -> Matrix:
    if any(scipy.sparse.issparse(block) for block in blocks):
        return scipy.sparse.hstack(blocks, format="csr")
    return np.hstack(blocks)
