from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, make_classification

from jlgcn import Comparison, JLGCNClassifier, compare


def digits() -> tuple[np.ndarray, np.ndarray]:
    x, y = load_digits(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(y))[:800]
    return x[rows], np.where(np.arange(800) < 120, y[rows], -1)


def edges_within(y: np.ndarray, num_edges: int) -> np.ndarray:
    generator = np.random.default_rng(0)
    row = generator.integers(len(y), size=num_edges)
    col = np.array([generator.choice(np.flatnonzero(y == y[i])) for i in row])
    return np.unique(np.stack([row, col])[:, row != col], axis=1)


def test_neighbours_that_look_alike_make_a_learned_graph_worth_it() -> None:
    found = compare(*digits(), estimator=JLGCNClassifier(scaler="none"), n_splits=6)
    assert list(found.accuracy) == [
        "learned graph",
        "no metric",
        "shuffled graph",
        "logistic regression",
    ]
    assert all(len(values) == 6 for values in found.accuracy.values())
    assert found.difference("learned graph", "logistic regression")["low"] > 0
    assert found.difference("learned graph", "shuffled graph")["low"] > 0
    assert found.advice.startswith("Use learned graph: +")
    assert str(found).count("\n") == 4
    assert found.advice in str(found)


def test_where_features_say_all_it_advises_against_a_graph() -> None:
    x, y = make_classification(
        200, 20, n_informative=2, n_redundant=0, n_clusters_per_class=1, random_state=0
    )
    found = compare(x, y, n_splits=5)
    assert found.advice.startswith("Do not use a learned graph here:")


def test_a_good_graph_is_enough_where_features_are_noise() -> None:
    generator = np.random.default_rng(0)
    y = np.arange(150) % 3
    with pytest.warns(UserWarning, match="one direction"):
        found = compare(generator.normal(size=(150, 5)), y, edges_within(y, 900), n_splits=4)
    assert list(found.accuracy)[:2] == ["both graphs", "given graph"]
    assert found.difference("given graph", "learned graph")["low"] > 0
    assert "Use the given graph alone" in found.advice


def test_labels_may_be_words() -> None:
    x, labels = digits()
    words = np.where(labels == -1, "", np.char.add("digit ", labels.astype(str)))
    found = compare(x, words, n_splits=2)
    assert np.mean(found.accuracy["learned graph"]) > 0.8


def test_the_advice_says_what_the_intervals_say() -> None:
    from jlgcn.comparison import _advice

    better, good, bad = (0.9, 0.91, 0.9), (0.8, 0.81, 0.8), (0.6, 0.61, 0.6)
    found = Comparison(
        {
            "both graphs": better,
            "given graph": good,
            "no metric": good,
            "logistic regression": bad,
        },
        "",
    )
    text = "Use both graphs: +30.0 points (+30.0 to +30.0) against logistic regression."
    assert _advice(found).startswith(text)
    assert "The learned graph is worth +10.0 points" in _advice(found)
    same = Comparison({**found.accuracy, "no metric": (0.9, 0.92, 0.9)}, "")
    assert "n_layers=1 does as well" in _advice(same)
    harmed = Comparison({**found.accuracy, "both graphs": bad}, "")
    assert _advice(harmed).startswith("Do not use a learned graph here: +0.0 points")
    assert _advice(harmed).endswith("The given graph alone helps: +20.0 points (+20.0 to +20.0).")


def test_it_says_the_same_every_time_and_leaves_random_numbers_alone() -> None:
    x, y = digits()
    torch.manual_seed(7)
    before = torch.get_rng_state()
    first = compare(x, y, n_splits=2)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(8)
    assert compare(x, y, n_splits=2) == first


def test_one_split_proves_nothing() -> None:
    with pytest.raises(ValueError, match="n_splits must be at least 2, but it is 1"):
        compare(*digits(), n_splits=1)


def test_too_few_labels_are_refused() -> None:
    x = np.random.default_rng(0).normal(size=(9, 2))
    with pytest.raises(ValueError, match=r"needs two classes and 2 labels of each.*0: 2, 1: 1"):
        compare(x, np.array([0, 0, 1, -1, -1, -1, -1, -1, -1]))
