from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import torch
from sklearn.datasets import load_digits, load_wine, make_classification

from jlgcn import Comparison, JLGCNClassifier, compare
from jlgcn.estimator.comparison import (
    _advice,
    _advice_on_network,
    _without_whole_classes,
)
from jlgcn.estimator.rivals import Problem, logistic_regression

#: Without a given graph.
RIVALS = ["logistic regression", "label spreading", "PageRank features"]


def digits(num_labels: int = 120) -> tuple[np.ndarray, np.ndarray]:
    x, y = load_digits(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(y))[:800]
    return x[rows], np.where(np.arange(800) < num_labels, y[rows], -1)


def edges_within(y: np.ndarray, num_edges: int) -> np.ndarray:
    generator = np.random.default_rng(0)
    row = generator.integers(len(y), size=num_edges)
    col = np.array([generator.choice(np.flatnonzero(y == y[i])) for i in row])
    return np.unique(np.stack([row, col])[:, row != col], axis=1)


@pytest.mark.nightly
def test_neighbours_that_look_alike_make_a_learned_graph_worth_it() -> None:
    pixels = JLGCNClassifier(scaler="none")
    found = compare(
        *digits(num_labels=400), estimator=pixels, n_splits=6, test_size=0.7, network=False
    )
    assert list(found.accuracy) == ["learned graph", "no metric", "shuffled graph", *RIVALS]
    assert all(len(values) == 6 for values in found.accuracy.values())
    assert found.difference("learned graph", "logistic regression")["low"] > 0
    assert found.difference("learned graph", "shuffled graph")["low"] > 0
    # A fixed kNN graph does as well on digits, and the advice says so.
    assert "learned graph is better than PageRank features, the best rival" in found.advice
    assert str(found).count("\n") == 7
    assert found.advice in str(found)


@pytest.mark.slow
def test_where_features_say_all_it_does_not_advise_a_graph() -> None:
    x, y = make_classification(
        200, 20, n_informative=2, n_redundant=0, n_clusters_per_class=1, random_state=0
    )
    found = compare(x, y, n_splits=5)
    assert found.difference("learned graph", "logistic regression")["mean"] <= 0
    assert not found.advice.startswith("Use learned graph")


@pytest.mark.nightly
def test_a_good_graph_is_enough_where_features_are_noise() -> None:
    generator = np.random.default_rng(0)
    y = np.arange(150) % 3
    x = generator.normal(size=(150, 5))
    with pytest.warns(UserWarning, match="one direction"):
        found = compare(x, y, edges_within(y, 900), n_splits=4)
    assert list(found.accuracy)[:2] == ["both graphs", "given graph"]
    assert found.difference("given graph", "learned graph")["low"] > 0
    assert found.best_rival == "PageRank, given graph"
    assert found.advice.startswith("These labels cannot tell whether both graphs is better than")


@pytest.mark.slow
def test_labels_may_be_words() -> None:
    x, labels = digits()
    words = np.where(labels == -1, "", np.char.add("digit ", labels.astype(str)))
    found = compare(x, words, n_splits=2)
    assert np.mean(found.accuracy["learned graph"]) > 0.8


def test_the_network_is_a_row_whichever_solver_the_estimator_has() -> None:
    x, y = load_wine(return_X_y=True)
    fast = JLGCNClassifier(n_layers=1, n_neighbors=5, restart=0.2)
    fast.set_params(max_iter=3)
    found = compare(x, y, n_splits=2, test_size=0.5, estimator=fast, network=True)
    names = ["learned graph", "no metric", "shuffled graph", "network", *RIVALS]
    assert list(found.accuracy) == names
    gradient = fast.set_params(solver="gradient")
    assert compare(x, y, n_splits=2, test_size=0.5, estimator=gradient, network=True) == found
    without = compare(x, y, n_splits=2, test_size=0.5, estimator=gradient)
    assert list(without.accuracy) == [name for name in names if name != "network"]


def test_the_advice_names_the_network_where_it_is_better() -> None:
    better, good = (0.9, 0.91, 0.9), (0.8, 0.81, 0.8)
    ways = {"learned_graph": good, "logistic_regression": good}
    advice = _advice_on_network(found_with(**ways, network=better))
    assert advice.startswith(' The network (solver="gradient") is better than learned graph: +10.0')
    assert _advice_on_network(found_with(**ways, network=good)) == ""
    assert _advice_on_network(found_with(**ways)) == ""


def found_with(**accuracy: tuple[float, ...]) -> Comparison:
    """Return a comparison of three splits of a thousand rows, all hidden in each."""
    right = {
        name.replace("_", " "): np.stack([np.arange(1000) < 1000 * share for share in shares])
        for name, shares in accuracy.items()
    }
    return Comparison(
        {name: tuple(rows.mean(1).tolist()) for name, rows in right.items()},
        "",
        {},
        {},
        {name: rows.astype(float) for name, rows in right.items()},
    )


def test_the_advice_says_what_the_intervals_say() -> None:
    better, good, bad = (0.9, 0.91, 0.9), (0.8, 0.81, 0.8), (0.6, 0.61, 0.6)
    ways = {
        "both_graphs": better,
        "given_graph": good,
        "no_metric": good,
        "logistic_regression": bad,
    }
    advice = _advice(found_with(**ways))
    assert advice.startswith("Use both graphs: +30.0 points (+27.2 to +32.8) against logistic")
    assert "The learned graph is worth +10.0 points" in advice
    same = _advice(found_with(**ways | {"no_metric": (0.9, 0.92, 0.9)}))
    assert "n_layers=1 does as well" in same
    harmed = _advice(found_with(**ways | {"both_graphs": bad}))
    assert harmed.startswith("These labels cannot tell whether both graphs is better than logistic")
    assert harmed.endswith("The given graph alone helps: +20.0 points (+17.6 to +22.4).")
    unsure = _advice(found_with(**ways | {"both_graphs": (0.9, 0.5, 0.9)}))
    assert unsure.startswith(
        "These labels cannot tell whether both graphs is better than logistic regr"
    )
    assert "the best rival: +16.3 points" in unsure
    worse = _advice(found_with(**ways | {"logistic_regression": (0.95, 0.96, 0.95)}))
    assert worse.startswith("Use logistic regression instead: both graphs is -5.0 points")


def test_the_interval_allows_for_the_choice_of_splits_and_of_rows() -> None:
    generator = np.random.default_rng(0)
    first, second = (
        np.where(generator.random((4, 50)) < 0.6, generator.random((4, 50)) < share, np.nan)
        for share in (0.9, 0.6)
    )
    second[np.isnan(first)] = np.nan
    first[np.isnan(second)] = np.nan
    found = Comparison({}, "", {}, {}, {"a": first, "b": second}).difference("a", "b")
    gains = first - second
    means = [row[~np.isnan(row)].mean() for row in gains]
    by_row = [column[~np.isnan(column)].mean() for column in gains.T if not np.isnan(column).all()]
    half = np.hypot(
        scipy.stats.t.ppf(0.975, 3) * scipy.stats.sem(means), 1.96 * scipy.stats.sem(by_row)
    )
    assert found["mean"] == pytest.approx(np.mean(means))
    assert found["high"] - found["mean"] == pytest.approx(half)


@pytest.mark.nightly
def test_it_says_the_same_every_time_and_leaves_random_numbers_alone() -> None:
    x, y = digits()
    torch.manual_seed(7)
    before = torch.get_rng_state()
    few_epochs = JLGCNClassifier(max_iter=2)
    first = compare(x, y, n_splits=2, estimator=few_epochs)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(8)
    assert compare(x, y, n_splits=2, estimator=few_epochs) == first


def test_one_split_proves_nothing() -> None:
    with pytest.raises(ValueError, match=r"n_splits must be at least 2, .*but it is 1"):
        compare(*digits(), n_splits=1)


def test_too_few_labels_are_refused() -> None:
    x = np.random.default_rng(0).normal(size=(9, 2))
    with pytest.raises(ValueError, match=r"needs two classes and 2 labels of each.*0: 2, 1: 1"):
        compare(x, np.array([0, 0, 1, -1, -1, -1, -1, -1, -1]))


def test_scores_are_of_hidden_labels_and_beside_those_of_rivals() -> None:
    x, y = load_wine(return_X_y=True)
    few = np.where(np.random.default_rng(0).random(178) < 0.3, y, -1)
    found = compare(x, few, np.array([[0, 1], [1, 0]]), n_splits=2, test_size=0.5)
    names = ["both graphs", "given graph", "learned graph", "no metric", "shuffled graph"]
    assert list(found.accuracy) == [*names, *RIVALS, "PageRank, given graph"]
    assert found.best_rival in RIVALS
    for name, losses in found.log_loss.items():
        assert 0 < min(losses) < max(losses) < np.log(3), name
        assert min(found.balanced_accuracy[name]) > 0.8, name
    known = np.flatnonzero(few != -1)
    asked = ~np.isnan(found.right["logistic regression"][0])
    shown = few.copy()
    shown[known[asked]] = -1
    x = (x - x.mean(0)) / x.std(0)  # the rival sees scaled features, and no hidden label
    expected = logistic_regression(Problem(torch.from_numpy(x), 3), shown).scores.argmax(1)
    assert found.accuracy["logistic regression"][0] == np.mean((expected == few)[known[asked]])


def test_every_class_keeps_a_label_in_every_split() -> None:
    hidden, codes = np.array([0, 3, 4, 5]), np.array([0, 0, 0, 1, 2, 1])
    # Both labels of class 1 and the one of class 2 would be hidden.
    assert _without_whole_classes(hidden, codes).tolist() == [0, 5]
    x, _ = load_wine(return_X_y=True)
    y = np.full(len(x), -1)
    y[:10], y[130:132] = 0, 1
    found = compare(x, y, n_splits=3, test_size=0.75, network=False)
    assert len(found.accuracy["logistic regression"]) == 3
