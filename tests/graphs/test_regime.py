"""The plan: what it says must be what was measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from typer.testing import CliRunner

from jlgcn._memory import available_bytes, group_bytes
from jlgcn.cli import app
from jlgcn.engine.plan import plan
from jlgcn.graphs.regime import (
    CALIBRATION,
    Calibration,
    Plan,
    least_whole_graph,
    plan_whole_graph,
    whole_graph_regime,
)
from jlgcn.graphs.regime import MAX_EXACT_NODES as LIMITS

RESULTS = Path(__file__).parents[2] / "results" / "scale"
GIB = 2**30
MAX_EXACT_NODES = LIMITS["cpu"]


def measured(name: str) -> Any:  # noqa: ANN401
    return json.loads((RESULTS / f"{name}.json").read_text())["results"]


def test_exact_steps_take_what_the_plan_says() -> None:
    steps = {step["nodes"]: step for step in measured("exact_step")["steps"]}
    for nodes, step in steps.items():
        if nodes >= MAX_EXACT_NODES:  # below, what does not grow counts as much
            assert CALIBRATION.exact_step * nodes**2 == pytest.approx(step["seconds"], rel=0.25)
            assert CALIBRATION.exact_bytes * nodes == pytest.approx(step["peak_bytes"], rel=0.2)
    planned = plan(MAX_EXACT_NODES, 64, available=12 * GIB)
    assert planned.regime == "exact"
    assert planned.memory["graphs"] == CALIBRATION.exact_bytes * MAX_EXACT_NODES


def test_bytes_on_the_wire_are_those_that_were_counted() -> None:
    sharded = measured("sharded-4000")
    for row in sharded["rows"]:
        if row["dtype"] == "float32" and row["processes"] > 1:
            planned = plan(sharded["nodes"], 64, num_devices=row["processes"], available=12 * GIB)
            assert planned.regime == "exact over processes"
            assert planned.wire == pytest.approx(row["loopback_bytes_a_rank"], rel=0.1)


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
    slower = replace(CALIBRATION, exact_bytes=1e9, knn_bytes=1e9, exact_step=1e9)
    monkeypatch.setattr("jlgcn.graphs.regime.CALIBRATION", slower)
    assert least_whole_graph(1_000, 16, itemsize=8) == replace(exact, available=ANY)
    for step in measured("knn_step")["steps"]:  # a lower bound, or it would refuse what fits
        assert least_whole_graph(step["nodes"], 16).bytes < step["peak_bytes"]


def test_memory_is_the_sum_of_its_parts() -> None:
    found = Plan("knn", {"features": 2.0, "libraries": 3.0}, {}, 0.0, 4.0, Calibration().machine)
    assert found.bytes == 5.0
    assert not found.fits


def test_what_does_not_fit_is_refused_with_a_remedy() -> None:
    with pytest.raises(MemoryError, match=r"most of it for features.*principal_directions"):
        plan(10_000_000, 4096, available=12 * GIB).check()
    with pytest.raises(MemoryError, match=r"most of it for neighbours.*smaller num_neighbors"):
        plan(100_000_000, 8, available=12 * GIB).check()
    plan(1_000_000, 64, available=12 * GIB).check()
    with pytest.raises(ValueError, match="num_nodes must be at least 1, but it is 0"):
        plan(0, 8)
    with pytest.raises(ValueError, match="num_devices must be at least 1"):
        plan(8, 8, num_devices=0)
    assert 0 < available_bytes() < 2**60


def test_the_command_names_its_calibration_and_fails_where_nothing_fits() -> None:
    runner = CliRunner()
    done = runner.invoke(app, ["plan", "--nodes", "1000000", "--features", "64", "--memory", "12"])
    assert done.exit_code == 0, done.output
    assert "method: knn" in done.output
    assert CALIBRATION.machine in done.output
    done = runner.invoke(
        app, ["plan", "--nodes", "900000000", "--features", "64", "--memory", "12"]
    )
    assert done.exit_code == 1
    assert "needs about" in done.output


def write_group(folder: Path, **files: int | str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (folder / name.replace("_", ".", 1)).write_text(f"{value}\n")


def test_what_is_left_is_that_of_the_narrowest_control_group(tmp_path: Path) -> None:
    own = tmp_path / "own"
    # The second version: the job's own group, that of its user, and a root without a limit.
    root = tmp_path / "second"
    job = root / "user" / "job"
    write_group(job, memory_max="max", memory_current=90, memory_stat="inactive_file 0")
    write_group(job.parent, memory_max=1000, memory_current=700, memory_stat="inactive_file 300")
    own.write_text("0::/user/job\n")
    assert group_bytes(root, own) == [600]  # cache that nobody uses is as good as free
    write_group(job, memory_max=200, memory_current=250)
    assert group_bytes(root, own) == [0, 600]
    own.write_text("0::/a/path/of/the/host\n")  # as a container sees it
    write_group(root, memory_max=500, memory_current=100, memory_stat="inactive_file 0")
    assert group_bytes(root, own) == [400]
    # The first version: a controller of its own, other names.
    root = tmp_path / "first"
    write_group(root / "memory" / "job", memory_stat="total_inactive_file 5\ncache 9")
    write_group(root / "memory" / "job", memory_limit_in_bytes=80, memory_usage_in_bytes=30)
    own.write_text("5:cpu,cpuacct:/\n4:memory:/job\n0::/\n")
    assert group_bytes(root, own) == [55]
    (root / "memory" / "job" / "memory.stat").unlink()  # as in some sandboxes
    assert group_bytes(root, own) == [50]
    assert group_bytes(root, tmp_path / "no such file") == []
