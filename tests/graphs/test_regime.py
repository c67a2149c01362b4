"""Memory of learned graphs: what is estimated must be what was measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from jlgcn.graphs import regime
from jlgcn.graphs.regime import Plan, least_whole_graph, plan_whole_graph, whole_graph_regime

RESULTS = Path(__file__).parents[2] / "results" / "scale"
MAX_EXACT_NODES = regime.MAX_EXACT_NODES["cpu"]


def measured(name: str) -> Any:  # noqa: ANN401
    return json.loads((RESULTS / f"{name}.json").read_text())["results"]


def test_exact_steps_take_what_the_plan_says() -> None:
    for step in measured("exact_step")["steps"]:
        if step["nodes"] >= MAX_EXACT_NODES:  # below, what does not grow counts as much
            expected = pytest.approx(step["peak_bytes"], rel=0.2)
            assert regime.EXACT_BYTES * step["nodes"] == expected
    assert plan_whole_graph(100).memory == {"graphs": 100 * regime.EXACT_BYTES}


def test_steps_on_whole_graphs_of_neighbours_take_what_the_plan_says() -> None:
    for step in measured("knn_step")["steps"]:
        planned = plan_whole_graph(step["nodes"])
        assert planned.regime == "knn"
        assert planned.bytes == pytest.approx(step["peak_bytes"], rel=0.2)
    assert plan_whole_graph(20_000, num_neighbors=32).bytes == 2 * plan_whole_graph(20_000).bytes
    assert plan_whole_graph(MAX_EXACT_NODES).regime == "exact"
    assert plan_whole_graph(MAX_EXACT_NODES + 1).regime == "knn"
    assert whole_graph_regime(MAX_EXACT_NODES + 1, "cuda") == "exact"
    assert whole_graph_regime(MAX_EXACT_NODES + 1, "mps") == "knn"  # not measured: as on a CPU


def test_the_least_memory_of_a_graph_is_counted_from_shapes_not_from_measurements(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exact = least_whole_graph(1_000, 16, itemsize=8)
    assert exact.memory == {"points": 2 * 1_000 * 16 * 8}
    knn = least_whole_graph(10_000, 16, num_neighbors=5)
    # Row, column and mirror image of an edge, its weight and its gradient.
    assert knn.memory == {"points": 2 * 10_000 * 16 * 4, "neighbours": 10_000 * 5 * (3 * 8 + 2 * 4)}
    monkeypatch.setattr(regime, "EXACT_BYTES", 1e9)
    monkeypatch.setattr(regime, "KNN_BYTES", 1e9)
    assert least_whole_graph(1_000, 16, itemsize=8) == replace(exact, available=ANY)
    for step in measured("knn_step")["steps"]:  # a lower bound, or it would refuse what fits
        assert least_whole_graph(step["nodes"], 16).bytes < step["peak_bytes"]


def test_what_does_not_fit_is_refused_with_a_remedy() -> None:
    found = Plan("knn", {"points": 2.0 * 2**30, "neighbours": 3.0 * 2**30}, 4.0 * 2**30)
    assert found.bytes == 5.0 * 2**30
    assert not found.fits
    with pytest.raises(MemoryError, match=r"5.0 GiB, most of it for neighbours, but 4.0 .*smaller"):
        found.check()
    replace(found, available=6.0 * 2**30).check()
