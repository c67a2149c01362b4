from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
import scipy.sparse
import torch
from sklearn.datasets import load_wine, make_blobs
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score

from jlgcn import JLGCNClassifier
from jlgcn.closed_form.novelty import novelty
from jlgcn.estimator.labelling import with_unknown
from jlgcn.graphs import SparseGraph
from tests.brute import F64, largest_difference
from tests.estimator.test_classifier import wine
from tests.real_data import DATA, needs_data

PROBABILITY = np.array([[0.9, 0.1], [0.4, 0.6], [0.25, 0.75]])


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        (np.array([3, 7]), [3, -1, 7]),
        (np.array([3, 7], dtype=np.uint8), [3, -1, 7]),
        (np.array([0.5, 7.0]), [0.5, -1, 7.0]),
        (np.array([False, True]), [False, None, True]),
        (np.array(["a", "b"]), ["a", None, "b"]),
        (np.array(["a", "b"], dtype=object), ["a", None, "b"]),
    ],
)
def test_an_unsure_row_is_unknown(classes: np.ndarray, expected: list[object]) -> None:
    assert with_unknown(classes, PROBABILITY, 0.25).tolist() == expected
    assert with_unknown(classes, PROBABILITY, None).dtype == classes.dtype


def test_predict_rejects_by_probability() -> None:
    x, _, few = wine()
    model = JLGCNClassifier().fit(x, few)
    probability = model.predict_proba(x)
    found = model.predict(x, reject=0.1)
    assert ((found == -1) == (probability.max(1) < 0.9)).all()
    assert (found[found != -1] == model.predict(x)[found != -1]).all()
    for reject in (-0.1, 1, 2.0):
        with pytest.raises(ValueError, match="reject must be at least 0 and below 1, but it is"):
            model.predict(x, reject=reject)


def test_novelty_counts_walks_that_end_at_labels() -> None:
    pairs = torch.tensor([[0, 1], [1, 2], [2, 3], [0, 2]]).mT
    edges = torch.cat([pairs, pairs.flip(0), torch.arange(5).expand(2, 5)], 1)
    graph = SparseGraph(edges, num_nodes=5)
    probability = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5], [0.6, 0.4], [0.7, 0.3]])
    train, labels = torch.tensor([0, 1, 2]), torch.tensor([0, 1, 0])
    walk = graph.to_dense().double()
    walk = walk / walk.sum(1, keepdim=True)
    ends = 0.2 * torch.linalg.inv(torch.eye(5, dtype=F64) - 0.8 * walk)
    sizes = probability.double().sum(0)
    of_class = torch.stack([ends[:, [0, 2]].sum(1) / 2, ends[:, 1]], 1) * sizes
    expected = -(probability.double() * of_class).sum(1).clamp(min=1e-12).log()
    found = novelty(graph, probability.double(), train, labels)
    assert largest_difference(found[:4], expected[:4]) < 1e-2
    assert int(found.argmax()) == 4  # from which no walk reaches a label


def test_a_cluster_without_labels_is_novel() -> None:
    x, y = make_blobs([100, 50, 80], centers=[[0, 0], [6, 0], [0, 9]], random_state=0)
    few = np.full(len(y), -1)
    for label in (0, 1):
        few[np.flatnonzero(y == label)[:8]] = label
    model = JLGCNClassifier().fit(x, few)
    is_asked = few < 0
    assert model.novelty_.shape == (230,)
    assert roc_auc_score(y[is_asked] == 2, model.novelty_[is_asked]) > 0.99
    assert model.novelty_[~is_asked].max() < np.median(model.novelty_[y == 2])


def test_the_network_has_no_novelty() -> None:
    x, _, few = wine()
    model = JLGCNClassifier(solver="gradient", max_iter=2).fit(x, few)
    with pytest.raises(AttributeError, match="novelty_ is of the closed form"):
        model.novelty_  # noqa: B018


def updatable(num_more: int = 5) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[int, int]]:
    """Return wine with two labels a class, and as many more as asked for."""
    x, y, few = wine(2)
    more = {
        int(row): int(label)
        for label in range(3)
        for row in np.flatnonzero(y == label)[2 : 2 + num_more]
    }
    return x, y, few, more


def test_more_labels_change_the_classifiers_and_nothing_else() -> None:
    x, y, few, more = updatable()
    model = JLGCNClassifier().fit(x, few)
    before, graph = model.label_distributions_, model.learned_graph()
    assert model.update(more) is model
    rows = model.model_.train
    assert rows.tolist() == sorted([*np.flatnonzero(few >= 0).tolist(), *more])
    assert (model.classes_[model.model_.labels] == y[rows]).all()
    assert torch.equal(model.learned_graph().weight, graph.weight)
    assert np.abs(model.label_distributions_ - before).max() > 0.01
    assert (model.transduction_ == y).mean() > 0.93
    assert (model.predict(x) == model.transduction_).mean() > 0.97
    assert not np.isin(model.suggest_labels(5), rows).any()


def test_an_update_without_change_is_the_head_of_a_fit_without_a_metric() -> None:
    x, _, few, _ = updatable()
    model = JLGCNClassifier(n_layers=1).fit(x, few)
    expected = model.label_distributions_
    assert (
        largest_difference(
            torch.from_numpy(model.update({}).label_distributions_), torch.from_numpy(expected)
        )
        < 1e-6
    )


def test_learning_again_is_a_fit_with_all_labels() -> None:
    x, _, few, more = updatable()
    everything = few.copy()
    for row, label in more.items():
        everything[row] = label
    weight = np.where(few >= 0, 2.0, 1.0)
    for solver in ("closed_form", "gradient"):
        weights = {"sample_weight": weight} if solver == "closed_form" else {}
        kept = JLGCNClassifier(solver=solver, max_iter=5).fit(x, few, **weights)
        again = JLGCNClassifier(solver=solver, max_iter=5).fit(x, everything, **weights)
        kept.update(more, relearn=True)
        assert np.allclose(kept.label_distributions_, again.label_distributions_, atol=1e-5)


def test_labels_may_be_mended_taken_away_and_of_new_classes(tmp_path: Path) -> None:
    x, y, few, more = updatable()
    first = few.copy()
    first[few == 1] = -1
    names = np.array(["barolo", "grignolino", "barbera"], dtype=object)
    words = np.array([names[c] if c >= 0 else None for c in first], dtype=object)
    words[0] = "barbera"  # wrong
    model = JLGCNClassifier().fit(x, words)
    assert model.classes_.tolist() == ["barbera", "barolo"]
    taken = int(np.flatnonzero(few == 2)[0])
    model.update({row: names[c] for row, c in more.items()} | {0: "barolo", taken: None})
    assert model.classes_.tolist() == ["barbera", "barolo", "grignolino"]
    assert taken not in model.model_.train
    assert (model.transduction_ == names[y]).mean() > 0.85
    i, j = 3, 100
    assert len(model.explain_edge(i, j).directions) == 1 + 3
    model.save(tmp_path / "model")
    loaded = JLGCNClassifier.load(tmp_path / "model")
    assert np.array_equal(loaded.label_distributions_, model.label_distributions_)
    assert np.array_equal(
        loaded.update({5: "barolo"}).label_distributions_,
        model.update({5: "barolo"}).label_distributions_,
    )


def test_weights_of_old_labels_are_kept() -> None:
    x, _, few, more = updatable()
    weight = np.where(few == 0, 3.0, 1.0)
    model = JLGCNClassifier(class_weight="balanced").fit(x, few, sample_weight=weight)
    model.update(more)
    rows = model.model_.train.numpy()
    assert model.model_.counts.tolist() == np.where(few[rows] == 0, 3.0, 1.0).tolist()


@pytest.mark.parametrize(
    ("labels", "match"),
    [
        ({178: 0}, "from 0 to 177, but one is 178"),
        ({-1: 0}, "from 0 to 177, but one is -1"),
        ({"a": 0}, "from 0 to 177, but one is 'a'"),
        ({5: "barolo"}, "text or of numbers"),
        ({0: -1, 1: -1}, "class 0 would have no label left; pass relearn=True"),
    ],
)
def test_updates_that_cannot_be_are_refused(labels: dict[Any, Any], match: str) -> None:
    x, _, few, _ = updatable()
    with pytest.raises(ValueError, match=match):
        JLGCNClassifier().fit(x, few).update(labels)


def test_the_head_of_a_network_is_not_updated_alone() -> None:
    x, _, few, more = updatable()
    model = JLGCNClassifier(solver="gradient", max_iter=2).fit(x, few)
    with pytest.raises(ValueError, match="pass relearn=True, or fit with solver"):
        model.update(more)


GAPS: dict[str, Callable[[np.ndarray], Any]] = {
    "numbers": lambda y: y,
    "NaN": lambda y: np.where(y < 0, np.nan, y),
    "NA": lambda y: pd.Series(y).astype("Int64").where(y >= 0),
    "text": lambda y: np.where(y < 0, "", np.array(["a", "b", "c"])[y]),
    "None": lambda y: np.array(["a", "b", "c", None], dtype=object)[y],
}


@pytest.mark.parametrize("gap", GAPS)
def test_folds_of_labels_keep_all_other_rows_in_training(gap: str) -> None:
    few = np.where(np.arange(178) % 3 == 0, load_wine().target, -1)
    folds = JLGCNClassifier.label_folds(GAPS[gap](few), 4)
    others = np.flatnonzero(few < 0)
    assert len(folds) == 4
    for train, test in folds:
        assert np.isin(others, train).all()
        assert sorted([*train, *test]) == list(range(178))
        assert np.ptp(np.bincount(few[test]) - np.bincount(few[few >= 0]) / 4) <= 2
    tested = np.concatenate([test for _, test in folds])
    assert sorted(tested) == np.flatnonzero(few >= 0).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("gap", GAPS)
def test_scores_and_searches_take_folds_of_labels(gap: str) -> None:
    x, y, _ = wine()
    given = GAPS[gap](np.where(np.arange(178) % 3 == 0, y, -1))
    folds = JLGCNClassifier.label_folds(given, 3)
    own = cross_val_score(JLGCNClassifier(), x, given, cv=folds)
    if gap != "NA":  # which scikit-learn's scorers do not read
        named = cross_val_score(JLGCNClassifier(), x, given, cv=folds, scoring="accuracy")
        assert np.array_equal(own, named)
    assert own.mean() > 0.9
    search = GridSearchCV(JLGCNClassifier(), {"n_neighbors": [5, 20]}, cv=folds).fit(x, given)
    assert search.best_estimator_.transduction_.shape == (178,)


def test_more_folds_than_labels_are_refused() -> None:
    _, _, few = wine(2)
    with pytest.raises(ValueError, match=r"n_splits must be at most 6, .* but it is 7"):
        JLGCNClassifier.label_folds(few, 7)
    with pytest.raises(ValueError, match="y must have one class a row"):
        JLGCNClassifier.label_folds(np.zeros((4, 2)))


@needs_data
def test_connectivities_of_scanpy_are_a_graph() -> None:
    with np.load(DATA / "cells/pbmc68k_reduced.npz") as file:
        x, y = file["x_pca"], file["y"]
        parts = [file[f"connectivities_{name}"] for name in ("data", "indices", "indptr")]
    graph = scipy.sparse.csr_matrix(tuple(parts), shape=(700, 700))
    few = np.full(len(y), -1)
    for label in np.unique(y):
        few[np.flatnonzero(y == label)[:4]] = label
    model = JLGCNClassifier().fit(x, few, graph)
    assert model.model_.given.weight.dtype == torch.float32
    assert model.best_params_["given_decay"] is not None
    assert (model.transduction_ == y)[few < 0].mean() > 0.6


@pytest.mark.filterwarnings("ignore::UserWarning")  # of a learned graph after so few epochs
def test_a_network_that_learned_again_predicts_rows_in_their_old_unit() -> None:
    x, y, few = wine()
    model = JLGCNClassifier(solver="gradient", max_iter=5).fit(x, few)
    unit = model.model_.unit
    model.update({100: y[100]}, relearn=True)
    assert unit > 2
    assert model.model_.unit == pytest.approx(unit)
    assert np.abs(model.predict_proba(x) - model.label_distributions_).max() < 0.3
