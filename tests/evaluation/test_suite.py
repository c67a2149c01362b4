from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_wine

from evaluation.suite.data import SHARE, Data, data_sets
from evaluation.suite.methods import METHODS, WITH_GRAPH, SuiteProblem
from evaluation.suite.run import run
from evaluation.suite.tables import excess_error, gains, methods_table
from tests.real_data import DATA, needs_data


def small(*, with_edges: bool) -> Data:
    generator = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 20)
    x = generator.normal(size=(60, 4)) + 3 * np.eye(3, 4)[y]
    edges = np.array([(i, i + 1) for i in range(59) if y[i] == y[i + 1]]).T
    return Data("small", "table", x, y, edges if with_edges else None)


def test_draws_show_a_few_labels_of_each_class_and_none_that_is_hidden() -> None:
    y = np.array([0] * 30 + [1] * 5 + [-1] * 4)
    data = Data("a", "table", np.zeros((39, 1)), y, budgets=(5, SHARE))
    shown = data.draw(5, 0)
    assert np.bincount(shown[shown >= 0]).tolist() == [5, 2]  # at most half of a class
    assert (shown[y == -1] == -1).all()
    assert np.array_equal(shown, data.draw(5, 0))
    assert not np.array_equal(shown, data.draw(5, 1))
    assert np.bincount((some := data.draw(SHARE, 0))[some >= 0]).tolist() == [2, 2]


@pytest.mark.parametrize("name", [*METHODS, *WITH_GRAPH])
def test_every_method_learns_separated_classes(name: str) -> None:
    if name == "Poisson learning":
        pytest.importorskip("graphlearning")
    data = small(with_edges=name in WITH_GRAPH or name == "jlgcn")
    shown = data.draw(5, 0)
    predicted = (METHODS | WITH_GRAPH)[name](SuiteProblem(data), shown)
    assert predicted.scores.shape == (60, 3)
    assert (predicted.scores.argmax(1) == data.y)[shown < 0].mean() > 0.8
    if predicted.probability is not None:
        assert np.allclose(predicted.probability.sum(1), 1)
    json.dumps(predicted.chosen)


@needs_data
def test_a_run_goes_on_where_its_file_ends(tmp_path: Path) -> None:
    methods = ["logistic regression", "kNN"]
    first = list(run(DATA, tmp_path, ["wine"], methods[:1], 2))
    assert [line["draw"] for line in first] == [0, 1] * 3
    again = list(run(DATA, tmp_path, ["wine"], methods, 2))
    assert {line["method"] for line in again} == {"kNN"}
    lines = (tmp_path / "wine.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == first + again
    y = load_wine(return_X_y=True)[1]
    assert first[0]["rows"] == len(y)
    assert sum(count for _, count, *_ in first[0]["confidence"]) == len(y) - 6


@needs_data
def test_no_data_set_has_the_class_of_a_published_test_node() -> None:
    for name in ("cora", "citeseer, no edges"):
        data = data_sets(DATA)[name]()
        assert (data.y == -1).sum() >= 1000
        assert (data.draw(20, 0)[data.y == -1] == -1).all()


@needs_data
def test_labels_whose_kernel_is_nearly_singular_are_fitted() -> None:
    data = data_sets(DATA)["new-thyroid1"]()
    shown = data.draw(5, 1)
    predicted = METHODS["jlgcn"](SuiteProblem(data), shown)
    assert (predicted.scores.argmax(1) == data.y)[shown < 0].mean() > 0.9


def line(method: str, accuracy: float, draw: int = 0, **others: Any) -> dict[str, Any]:  # noqa: ANN401
    own = {"data": "a", "kind": "table", "labels": 5, "draw": draw, "method": method}
    return own | {"accuracy": accuracy, "balanced": accuracy} | others


def test_regret_is_to_the_best_method_of_a_cell_and_gains_are_paired() -> None:
    lines = [
        *(line("jlgcn", 0.9, draw) for draw in range(2)),
        *(line("logistic regression", 0.8 - 0.1 * draw, draw) for draw in range(2)),
    ]
    rows = [row.split(" | ") for row in methods_table(lines).splitlines()[2:]]
    assert [row[0].strip("| ") for row in rows] == ["jlgcn", "logistic regression"]
    assert [row[-2] for row in rows] == ["0.0", "15.0"]
    (gain,) = gains(lines)
    assert gain.mean == pytest.approx(15)
    assert gain.low is not None
    assert gain.low < 15


def test_a_model_that_is_right_as_often_as_it_says_has_no_excess_error() -> None:
    says = [[45, 1000, 900, 900.0], [25, 1000, 500, 500.0]]
    assert excess_error([line("jlgcn", 0.7, confidence=says)]) < 0
    wrong = [[45, 1000, 700, 900.0], [25, 1000, 300, 500.0]]
    assert excess_error([line("jlgcn", 0.5, confidence=wrong)]) == pytest.approx(0.2, abs=0.02)
