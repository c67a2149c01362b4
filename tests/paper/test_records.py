from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jlgcn._stats import mean_and_interval
from jlgcn.paper.records import config_hash, read_records, record
from tests.faults.forks import forked, wait


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
    (path.parent / "history.csv").write_text("epoch,loss,val_accuracy\n0,1.5,0.25\n1,1.0,0.5\n")


def test_means_have_students_interval() -> None:
    found = mean_and_interval([0.80, 0.82, 0.84])
    assert found["mean"] == pytest.approx(0.82)
    assert found["high"] - found["mean"] == pytest.approx(4.302653 * 0.02 / 3**0.5, rel=1e-5)
    assert found["low"] == pytest.approx(2 * found["mean"] - found["high"])
    assert found["seeds"] == 3


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


def record_often(runs: Path, results: Path) -> None:
    for _ in range(10):
        record(runs, results)


@pytest.mark.slow
def test_two_processes_may_record_at_once_and_no_line_is_lost(tmp_path: Path) -> None:
    results = tmp_path / "results"
    for seed in range(2):
        write(tmp_path / f"runs-{seed}", line(seed, 0.5))
    with (
        forked(record_often, tmp_path / "runs-0", results) as first,
        forked(record_often, tmp_path / "runs-1", results) as second,
    ):
        assert wait(first, 120) == 0
        assert wait(second, 120) == 0
    assert [row["seed"] for row in read_records(results)] == [0, 1]
    assert not list(results.rglob("*.tmp"))


def test_records_are_not_written_through_links(tmp_path: Path) -> None:
    runs, results = tmp_path / "runs", tmp_path / "results"
    write(runs, line(0, 0.5))
    (results / "citation").mkdir(parents=True)
    (tmp_path / "mine").touch()
    (results / "citation/cora.jsonl").symlink_to(tmp_path / "mine")
    record(runs, results)
    assert (tmp_path / "mine").read_text() == ""
    assert len(read_records(results)) == 1


def test_nothing_to_record_makes_no_folder(tmp_path: Path) -> None:
    assert record(tmp_path, tmp_path / "results") == []
    assert not (tmp_path / "results").exists()
