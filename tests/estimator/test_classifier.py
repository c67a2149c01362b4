from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pytest
import scipy.sparse
import torch
from sklearn.datasets import load_diabetes, load_digits, load_wine, make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from jlgcn import JLGCNClassifier, SparseGraph, compare
from jlgcn.estimator.labels import read_labels
from jlgcn.paper import load_planetoid
from tests.real_data import DATA, needs_data

REPEATED = "a repeated row is a new node of the graph; a weight is of a label"
EXPECTED_TO_FAIL = {
    "check_classifiers_classes": "its classes are -1 and 1, and -1 is no label",
    "check_sample_weight_equivalence_on_dense_data": REPEATED,
    "check_sample_weight_equivalence_on_sparse_data": REPEATED,
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::jlgcn.errors.OneClassWarning")
@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [JLGCNClassifier()], expected_failed_checks=lambda estimator: EXPECTED_TO_FAIL
)
def test_it_is_an_estimator_of_scikit_learn(
    estimator: JLGCNClassifier, check: Callable[[JLGCNClassifier], None]
) -> None:
    if "array_api" in str(check):
        pytest.skip("for estimators that compute on other arrays than NumPy's")
    check(estimator)


def wine(labels_per_class: int = 5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x, y = load_wine(return_X_y=True)
    few = np.full_like(y, -1)
    for label in np.unique(y):
        few[np.flatnonzero(y == label)[:labels_per_class]] = label
    return x, y, few


def test_a_few_labels_are_enough_for_wine() -> None:
    x, y, few = wine()
    model = JLGCNClassifier().fit(x, few)
    is_hidden = few == -1
    assert (model.transduction_[is_hidden] == y[is_hidden]).mean() > 0.93
    assert model.label_distributions_.shape == (178, 3)
    assert np.allclose(model.label_distributions_.sum(1), 1)
    assert len(model.history_) == 3
    assert (model.predict(x) == model.transduction_).mean() > 0.97


def test_labels_may_be_words_and_missing_ones_none_nan_or_empty() -> None:
    x, y, few = wine()
    names = np.array(["barolo", "grignolino", "barbera"])[y]
    plain = JLGCNClassifier().fit(x, few)
    for missing in (None, np.nan, ""):
        words = names.astype(object)
        words[few == -1] = missing
        model = JLGCNClassifier().fit(x, words)
        assert model.classes_.tolist() == ["barbera", "barolo", "grignolino"]
        expected = np.array(["barolo", "grignolino", "barbera"])[plain.transduction_]
        assert (model.transduction_ == expected).mean() > 0.98


def test_numbers_in_an_array_of_objects_are_numbers() -> None:
    x, _, few = wine()
    plain = JLGCNClassifier().fit(x, few)
    for missing in (-1, None, np.nan):
        labels = few.astype(object)
        labels[few == -1] = missing
        model = JLGCNClassifier().fit(x, labels)
        assert model.classes_.tolist() == [0, 1, 2]
        assert np.array_equal(model.transduction_, plain.transduction_)


NUMBERS = [0, 1, None, 2]
WORDS = ["a", "b", None, "c"]


@pytest.mark.parametrize(
    "y",
    [
        NUMBERS,
        np.array([0.0, 1.0, np.nan, 2.0]),
        np.array([0, 1, -1, 2]),
        np.array([0, 1, pd.NA, 2], dtype=object),
        np.array([0, 1, pd.NaT, 2], dtype=object),
        np.ma.array([0, 1, 7, 2], mask=[False, False, True, False]),
        pd.Series(NUMBERS),
        *(pd.Series(NUMBERS, dtype=name) for name in ("Int64", "Float64", "category")),
        pd.Series(NUMBERS, dtype="int64[pyarrow]"),
        pd.array(NUMBERS, dtype="Int64"),
        pl.Series(NUMBERS),
    ],
    ids=lambda y: f"{type(y).__module__.split('.')[0]} {getattr(y, 'dtype', '')}",
)
def test_numbers_beside_gaps_of_any_kind_are_classes(y: Any) -> None:  # noqa: ANN401
    labels = read_labels(y)
    assert labels.is_known.tolist() == [True, True, False, True]
    assert labels.values[labels.is_known].tolist() == [0, 1, 2]
    assert labels.values.dtype.kind in "if"


@pytest.mark.parametrize(
    "y",
    [
        WORDS,
        ["a", "b", np.nan, "c"],
        *(np.array(["a", "b", gap, "c"]) for gap in ("", "-1")),
        *(np.array(["a", "b", gap, "c"], dtype=object) for gap in (-1, pd.NA, "-1")),
        *(pd.Series(WORDS, dtype=name) for name in (None, "string", "category", "string[pyarrow]")),
        *(pl.Series(WORDS, dtype=kind) for kind in (pl.String, pl.Categorical)),
    ],
    ids=lambda y: f"{type(y).__module__.split('.')[0]} {getattr(y, 'dtype', '')}",
)
def test_words_beside_gaps_of_any_kind_are_classes(y: Any) -> None:  # noqa: ANN401
    labels = read_labels(y)
    assert labels.is_known.tolist() == [True, True, False, True]
    assert labels.values[labels.is_known].tolist() == ["a", "b", "c"]


@pytest.mark.parametrize(
    "y",
    [
        pd.Series([True, False, None], dtype="boolean"),
        pd.Series([True, False, None], dtype="bool[pyarrow]"),
        pl.Series([True, False, None]),
    ],
    ids=["pandas", "arrow", "polars"],
)
def test_true_and_false_beside_a_gap_stay_true_and_false(y: Any) -> None:  # noqa: ANN401
    labels = read_labels(y)
    assert labels.is_known.tolist() == [True, True, False]
    assert labels.values.dtype == bool


@pytest.mark.slow
def test_a_column_with_gaps_is_learned_from_and_compared_as_numbers_are() -> None:
    x, _, few = wine()
    plain = JLGCNClassifier().fit(x, few)
    gaps = pd.Series(few).astype("Int64").where(few >= 0)
    for y in (gaps, gaps.astype(float), pl.Series([None if c < 0 else c for c in few.tolist()])):
        model = JLGCNClassifier().fit(x, y)
        assert model.classes_.tolist() == [0, 1, 2]
        assert np.array_equal(model.label_distributions_, plain.label_distributions_)
    split = {"n_splits": 2, "test_size": 0.4, "network": False}
    assert compare(x, gaps, **split).accuracy == compare(x, few, **split).accuracy  # type: ignore[arg-type]
    flags = pd.Series(few == 1).astype("boolean").where(few >= 0)
    assert JLGCNClassifier().fit(x, flags).predict(x[:1]).dtype == bool
    assert next(iter(compare(x, flags, **split).accuracy)) == "learned graph"  # type: ignore[arg-type]


def test_labels_that_cannot_be_classes_are_refused() -> None:
    x, y, _ = wine()
    dates = pd.Series(pd.date_range("2020-01-01", periods=178))
    for labels, match in (
        (y + 0.5, r"Unknown label type: continuous.*such as 0.5; bin .*numpy.digitize"),
        (np.where(y == 0, np.nan, y + 0.5), "Unknown label type: continuous"),
        (dates, "Unknown label type: unknown.* Timestamp objects"),
        (np.where(y == 0, np.inf, y), "one label is inf; pass -1"),
        (np.eye(3)[y], r"one class a row, but its shape is \(178, 3\).*y.argmax\(1\)"),
        (["a", 1] * 89, "text or of numbers, but it has 'a' and 1; write all"),
        (np.array([b"a", b"b"] * 89), r"text or numbers, but it has b'a'; call y.astype\(str\)"),
        ([None] * 178, "y has no label; label at least one row"),
    ):
        with pytest.raises(ValueError, match=match):
            JLGCNClassifier().fit(x, labels)  # type: ignore[arg-type]


def test_whole_numbers_of_very_many_values_are_doubted() -> None:
    with pytest.warns(UserWarning, match="y has 214 classes in 442 labels, as measurements have"):
        read_labels(load_diabetes(return_X_y=True)[1])
    read_labels(np.arange(50))  # a label of each of fifty classes
    read_labels(load_diabetes(return_X_y=True)[1].astype(int).astype(str))


def test_rows_without_a_label_are_not_scored() -> None:
    x, y, _ = wine()
    model = JLGCNClassifier().fit(x, y)
    right = model.predict(x) == y
    known = np.arange(178) % 3 == 0
    for missing in (-1, np.nan):
        assert model.score(x, np.where(known, y, missing)) == right[known].mean()
    weight = np.arange(178.0)
    weighted = np.average(right[known], weights=weight[known])
    assert model.score(x, np.where(known, y, -1), weight) == pytest.approx(weighted)
    with pytest.raises(ValueError, match="no row has a label, so there is nothing to score"):
        model.score(x, np.full(178, -1))
    with pytest.raises(ValueError, match="X has 178 rows but y has 100; pass a label"):
        model.score(x, y[:100])


@pytest.mark.slow
def test_folds_may_have_rows_without_a_label() -> None:
    x, y, _ = wine()
    few = np.where(np.arange(178) % 3 == 0, y, -1)
    words = np.where(few < 0, "", np.array(["a", "b", "c"])[y])
    for labels in (few, words):
        assert cross_val_score(JLGCNClassifier(), x, labels, cv=3).mean() > 0.9
    folds = KFold(3, shuffle=True, random_state=0)
    for labels in (np.where(few < 0, np.nan, few), pd.Series(few).astype("Int64").where(few >= 0)):
        assert cross_val_score(JLGCNClassifier(), x, labels, cv=folds).mean() > 0.9


def test_embeddings_are_not_standardised() -> None:
    x, _, few = wine()
    x = (x - x.mean(0)) / x.std(0)
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    model = JLGCNClassifier().fit(x, few)
    assert model.scaler_.kind == "embeddings"
    assert repr(model.scaler_) == "FeatureScaler(embeddings, 13 features)"
    as_it_is = JLGCNClassifier(scaler="none").fit(x, few)
    assert np.array_equal(model.label_distributions_, as_it_is.label_distributions_)


@pytest.mark.parametrize("fits_sparse", [False, True])
def test_new_rows_may_be_sparse_or_dense_whatever_was_fitted(fits_sparse: bool) -> None:
    x, _, few = wine()
    sparse = scipy.sparse.csr_matrix(np.maximum(x - np.median(x, 0), 0) / x.std(0))
    model = JLGCNClassifier(scaler="none").fit(sparse if fits_sparse else sparse.toarray(), few)
    from_sparse, from_dense = (model.predict_proba(r[:20]) for r in (sparse, sparse.toarray()))
    assert np.allclose(from_sparse, from_dense, atol=1e-9)


def test_data_frames_keep_their_names_and_sparse_matrices_their_zeros() -> None:
    x, _, few = wine()
    names = [f"f{k}" for k in range(x.shape[1])]
    model = JLGCNClassifier().fit(pd.DataFrame(x, columns=names), few)
    assert model.feature_names_in_.tolist() == names
    words = (x > np.median(x, 0)).astype(np.float32)
    dense = JLGCNClassifier(scaler="words").fit(words, few)
    sparse = JLGCNClassifier().fit(scipy.sparse.csr_matrix(words), few)
    assert sparse.scaler_.kind == "words"
    assert np.allclose(dense.label_distributions_, sparse.label_distributions_, atol=1e-4)
    assert sparse.predict(scipy.sparse.csr_matrix(words[:5])).shape == (5,)


@pytest.mark.slow
def test_pipelines_searches_and_folds() -> None:
    x, y = make_blobs(90, centers=3, random_state=0)
    pipeline = make_pipeline(StandardScaler(), JLGCNClassifier(scaler="none"))
    assert cross_val_score(pipeline, x, y, cv=3).mean() > 0.8
    search = GridSearchCV(JLGCNClassifier(), {"n_neighbors": [5, 20]}, cv=2).fit(x, y)
    assert search.best_params_["n_neighbors"] in (5, 20)


@pytest.mark.slow
def test_a_graph_in_any_form_helps() -> None:
    x, y = make_blobs(150, centers=3, cluster_std=6.0, random_state=0)
    few = np.full_like(y, -1)
    few[:15] = y[:15]
    generator = np.random.default_rng(0)
    row = generator.integers(150, size=600)
    col = np.array([generator.choice(np.flatnonzero(y == y[i])) for i in row])
    row, col = row[row != col], col[row != col]
    edges = np.unique(np.concatenate([[row, col], [col, row]], 1), axis=1)
    alone = JLGCNClassifier().fit(x, few)
    matrix = scipy.sparse.coo_matrix((np.ones(edges.shape[1]), edges), shape=(150, 150))
    for graph in (edges, matrix, matrix.toarray()):
        joined = JLGCNClassifier().fit(x, few, graph)
        assert (joined.transduction_ == y).mean() > (alone.transduction_ == y).mean() + 0.05
    known = joined.predict(x[:40], edges[:, edges[0] < 40])
    assert (known == joined.transduction_[:40]).mean() > 0.9


def test_predict_takes_the_formats_of_fit() -> None:
    x, _, few = wine()
    row = np.arange(177)
    model = JLGCNClassifier(n_layers=1, n_neighbors=5)
    model.fit(x, few, np.concatenate([[row, row + 1], [row + 1, row]], axis=1))
    index, weight = np.array([[0, 0, 2], [3, 70, 150]]), np.array([1.0, 0.5, 2.0])
    matrix = scipy.sparse.coo_array((weight, index), shape=(3, 178))
    data = SimpleNamespace(edge_index=torch.from_numpy(index), edge_weight=torch.from_numpy(weight))
    formats = [
        (index, weight),
        matrix,
        matrix.tocsr(),
        matrix.toarray(),
        torch.from_numpy(matrix.toarray()).to_sparse(),
        data,
    ]
    found = [model.predict_proba(x[:3], graph) for graph in formats]
    for other in found[1:]:
        assert np.allclose(other, found[0], atol=1e-7)
    assert not np.allclose(model.predict_proba(x[:3], index), found[0])  # weights count
    assert not np.allclose(model.predict_proba(x[:3]), found[0])


def test_the_graph_and_its_edges_are_at_hand_and_explained() -> None:
    x, _, few = wine()
    model = JLGCNClassifier().fit(x, few)
    edges = model.edges(top_k=3)
    i, j, weight = int(edges.source[0]), int(edges.target[0]), float(edges.weight[0])
    assert float(model.learned_graph().rows(torch.tensor([i]))[0, j]) == pytest.approx(weight)
    explained = model.explain_edge(i, j)
    assert explained.weight == pytest.approx(weight, rel=1e-6)
    assert float(explained.features.sum()) == pytest.approx(explained.squared_distance, rel=1e-9)
    assert float(explained.directions.sum()) == pytest.approx(explained.squared_distance, rel=1e-9)
    assert len(explained.directions) == 1 + 3
    first = model.explain_edge(i, j, layer=0)
    assert float(first.directions[1:].sum()) == 0  # no metric has been learned there
    with pytest.raises(ValueError, match="a row must be a number from 0 to 177, but it is 178"):
        model.explain_edge(0, 178)


def test_the_neighbours_behind_a_prediction_and_the_labels_that_would_help() -> None:
    x, _, few = wine()
    model = JLGCNClassifier().fit(x, few)
    for row in (0, 100):
        found = model.explain_node(row)
        assert model.classes_[int(found.scores.argmax())] == model.transduction_[row]
        assert not found.given.any()
        assert len(found.neighbors) >= model.best_params_["n_neighbors"]
    with pytest.raises(ValueError, match="a row must be a number from 0 to 177, but it is -1"):
        model.explain_node(-1)
    suggested = model.suggest_labels(4)
    assert len(set(suggested.tolist())) == 4
    assert (few[suggested] == -1).all()


@pytest.mark.parametrize("is_sparse", [False, True])
def test_important_features_are_the_learned_part_of_all_pairs(is_sparse: bool) -> None:
    x, _, few = wine()
    table: Any = pd.DataFrame(x[::6], columns=[f"f{k}" for k in range(13)])
    if is_sparse:
        table = scipy.sparse.csr_matrix(x[::6] > np.median(x, 0), dtype=np.float64)
    model = JLGCNClassifier().fit(table, few[::6])

    def mean_over_pairs(layer: int | None) -> torch.Tensor:
        ends = [(i, j) for i in range(30) for j in range(30)]
        return torch.stack([model.explain_edge(*pair, layer=layer).features for pair in ends]).mean(
            0
        )

    euclidean = mean_over_pairs(0)  # the metric of the first layer is 0
    assert sorted(euclidean.tolist(), reverse=True) == pytest.approx(
        [added for _, added in model.important_features(layer=0)]
    )
    mean = mean_over_pairs(None) - euclidean
    found = model.important_features()
    assert [added for _, added in found] == pytest.approx(sorted(mean.tolist(), reverse=True))
    largest = int(mean.argmax())
    assert found[0][0] == (f"x{largest}" if is_sparse else f"f{largest}")


def test_what_cannot_be_fitted_says_why() -> None:
    x, _, few = wine()
    model = JLGCNClassifier()
    with pytest.raises(ValueError, match="y has no label; label at least one row of each class"):
        model.fit(x, np.full(178, -1))
    with pytest.raises(
        ValueError, match=r"178 are needed.*cross_val_score.*jlgcn.compare holds out labels"
    ):
        model.fit(x, few, np.ones((90, 90)) - np.eye(90))
    with pytest.raises(ValueError, match="kind must be one of"):
        JLGCNClassifier(scaler="image").fit(x, few)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="n_layers must be a whole number from 1 to"):
        JLGCNClassifier(n_layers=0).fit(x, few)
    with pytest.raises(ValueError, match=r"learned_degree must be a number from 0 to .* it is -1"):
        JLGCNClassifier(learned_degree=-1.0).fit(x, few)
    with pytest.raises(NotFittedError):
        model.learned_graph()
    model.fit(x, few)
    with pytest.raises(ValueError, match=r"edges must have the shape \(2, edges\)"):
        model.predict(x[:2], np.zeros((3, 2), int))
    with pytest.raises(ValueError, match=r"each of 2 new nodes.*178 old ones.*shape is \(2, 3\)"):
        model.predict(x[:2], np.ones((2, 3)))
    with pytest.raises(ValueError, match="edges must name old nodes from 0 to 177"):
        model.predict(x[:2], np.array([[0], [178]]))


def test_what_was_chosen_is_logged_if_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    x, _, few = wine()
    with caplog.at_level(logging.INFO, "jlgcn.estimator"):
        JLGCNClassifier(verbose=True).fit(x, few)
    assert "selected {'n_neighbors'" in caplog.text
    assert "scaled features by FeatureScaler(table, 13 features)" in caplog.text


def digits_and_labels(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return digits, their classes, and ten labels of each."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    few = np.full(len(y), -1)
    for label in range(10):
        few[order[y[order] == label][:10]] = label
    return x, y, few


@pytest.mark.slow
def test_new_digits_are_read_as_well_as_those_that_were_there() -> None:
    x, y, few = digits_and_labels(0)
    new = np.random.default_rng(0).choice(np.flatnonzero(few == -1), 500, replace=False)
    old = np.setdiff1d(np.arange(len(y)), new)
    model = JLGCNClassifier(scaler="none").fit(x[old], few[old])
    accuracy = (model.predict(x[new]) == y[new]).mean()
    together = JLGCNClassifier(scaler="none").fit(x, few).transduction_
    assert accuracy > (together[new] == y[new]).mean() - 0.02
    assert accuracy > 0.95


@pytest.mark.nightly
@needs_data
def test_new_papers_of_cora_are_classified_nearly_as_well_as_those_that_were_there() -> None:
    data = load_planetoid("cora", DATA)
    x, y = scipy.sparse.csr_matrix(data.x.numpy()), data.y.numpy()
    few = np.full(len(y), -1)
    few[data.train] = y[data.train]
    # A tenth of the nodes comes later; the public test nodes are not needed for this.
    free = np.setdiff1d(np.arange(len(y)), np.concatenate([data.train, data.test]))
    row, col = data.edge_index.numpy()
    together = JLGCNClassifier().fit(x, few, data.edge_index.numpy()).transduction_
    differences = []
    for seed in range(3):
        new = np.random.default_rng(seed).choice(free, len(y) // 10, replace=False)
        is_new = np.isin(np.arange(len(y)), new)
        place = np.full(len(y), -1)
        place[~is_new], place[new] = np.arange((~is_new).sum()), np.arange(len(new))
        inside = place[np.stack([row, col])[:, ~is_new[row] & ~is_new[col]]]
        across = place[np.stack([row, col])[:, is_new[row] & ~is_new[col]]]
        model = JLGCNClassifier().fit(x[~is_new], few[~is_new], inside)
        predicted = model.predict(x[new], across)
        differences.append((predicted == y[new]).mean() - (together[new] == y[new]).mean())
    assert np.mean(differences) > -0.02


def test_the_first_bad_number_of_sparse_features_is_named_by_row_and_column() -> None:
    X = scipy.sparse.random(30, 6, density=0.5, format="lil", random_state=0)
    X[7, 3] = np.nan
    X[20, 1] = np.inf
    with pytest.raises(ValueError, match=r"entry \(7, 3\) is nan; fill in or leave out"):
        JLGCNClassifier().fit(X.tocsr(), np.arange(30) % 2)


def test_a_fit_that_fails_leaves_no_model() -> None:
    x, _, few = wine()
    model = JLGCNClassifier(n_layers=1).fit(x, few)
    with pytest.raises(ValueError, match="nodes"):
        model.fit(1000 * x, np.array([*"cba", *["" for _ in few[3:]]]), np.array([[0], [500]]))
    with pytest.raises(NotFittedError):
        model.predict(x)


def test_validation_rows_are_not_counted_from_the_end() -> None:
    x, _, few = wine()
    with pytest.raises(ValueError, match="validation must be numbers of rows from 0 to 177"):
        JLGCNClassifier().fit(x, few, validation=[-178, 60])


def test_a_graph_that_is_being_differentiated_is_taken_as_it_is() -> None:
    x, _, few = wine()
    weight = torch.ones(2, requires_grad=True)
    graph = SparseGraph(torch.tensor([[0, 1], [1, 0]]), weight, num_nodes=len(x))
    model = JLGCNClassifier(n_layers=1).fit(x, few, graph)
    assert not model.model_.logits.requires_grad


def test_edges_may_come_in_reversed_arrays() -> None:
    x, _, few = wine()
    edges, weight = np.array([[0, 1, 2], [3, 4, 5]]), np.array([1.0, 2.0, 3.0])
    both = np.concatenate([edges, edges[::-1]], 1), np.concatenate([weight, weight])
    model = JLGCNClassifier(n_layers=1)
    expected = model.fit(x, few, both).label_distributions_
    found = model.fit(x, few, (both[0][::-1], both[1][::-1][::-1])).label_distributions_
    assert np.array_equal(found, expected)
