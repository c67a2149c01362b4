from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jlgcn.train.result import config_hash, read_records, record, summarize


def line(seed: int, accuracy: float, best: float | None = None, **changed: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "recipe": "citation/cora",
        "variant": "",
        "configuration": {"epochs": 3},
        "seed": seed,
        "test_accuracy": accuracy,
        "best_test_accuracy": best,
    } | changed


def write(folder: Path, result: dict[str, Any]) -> None:
    path = folder / config_hash(result["configuration"]) / f"seed-{result['seed']}" / "result.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result))


def test_means_have_students_interval() -> None:
    (row,) = summarize([line(0, 0.80), line(1, 0.82), line(2, 0.84)])
    assert row["mean"] == pytest.approx(0.82)
    assert row["high"] - row["mean"] == pytest.approx(4.302653 * 0.02 / 3**0.5, rel=1e-5)
    assert row["low"] == pytest.approx(2 * row["mean"] - row["high"])
    assert (row["protocol"], row["seeds"]) == ("honest", 3)


def test_one_seed_has_no_interval() -> None:
    (row,) = summarize([line(0, 0.8)])
    assert (row["mean"], row["low"], row["high"], row["seeds"]) == (0.8, None, None, 1)


def test_both_protocols_are_reported_where_test_nodes_were_traced() -> None:
    honest, authors = summarize([line(0, 0.80, 0.83), line(1, 0.82, 0.85)])
    assert (honest["protocol"], honest["mean"]) == ("honest", pytest.approx(0.81))
    assert (authors["protocol"], authors["mean"]) == ("authors", pytest.approx(0.84))


def test_runs_are_recorded_once(tmp_path: Path) -> None:
    runs, results = tmp_path / "runs", tmp_path / "results"
    write(runs, line(1, 0.8))
    write(runs, line(0, 0.7))
    write(runs, line(0, 0.6, variant="epochs=4", configuration={"epochs": 4}))
    record(runs, results)
    write(runs, line(1, 0.9))  # run anew
    (path,) = record(runs, results)
    assert path == results / "citation/cora.jsonl"
    found = [(row["variant"], row["seed"], row["test_accuracy"]) for row in read_records(results)]
    assert found == [("", 0, 0.7), ("", 1, 0.9), ("epochs=4", 0, 0.6)]
