"""Damaged and hostile files are refused by name: no crash, no hang, no code, no memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.faults.figures import record
from tests.faults.forks import forked, wait
from tests.faults.hostile import MEGABYTE, try_hostile, try_large, try_mutants

pytestmark = pytest.mark.nightly


def tried_mutants(folder: Path, number: int) -> list[dict[str, Any]]:
    with forked(try_mutants, folder, number, folder / "answer") as process:
        assert wait(process, 600) == 0, "a damaged file ended the process"
    results: list[dict[str, Any]] = json.loads((folder / "answer").read_text())
    assert len(results) == number
    return results


def check(results: list[dict[str, Any]]) -> None:
    for result in results:
        assert result["outcome"] == "refused", result
        assert result["seconds"] < 5, result
        assert result["extra bytes"] < 200 * MEGABYTE, result


def test_damaged_checkpoints_and_models_are_refused(tmp_path: Path) -> None:
    check(tried_mutants(tmp_path, 40))


@pytest.mark.nightly
def test_200_of_200_damaged_files_are_refused(tmp_path: Path) -> None:
    results = tried_mutants(tmp_path, 200)
    record("mutants", summary(results))
    check(results)


def test_hostile_files_are_refused_and_run_nothing(tmp_path: Path) -> None:
    with forked(try_hostile, tmp_path, tmp_path / "answer") as process:
        assert wait(process, 300) == 0, "a hostile file ended the process"
    answer = json.loads((tmp_path / "answer").read_text())
    assert len(answer["files"]) >= 30
    assert not answer["code was run"]
    record("hostile", summary(list(answer["files"].values())) | {"code run": 0})
    for name, result in answer["files"].items():
        assert result["outcome"] == "refused", (name, result)
        assert result["seconds"] < 5, (name, result)
        assert result["extra bytes"] < result["bytes"] + 200 * MEGABYTE, (name, result)


def test_few_rows_of_many_features_and_long_labels_take_little_memory(tmp_path: Path) -> None:
    with forked(try_large, tmp_path, tmp_path / "answer") as process:
        assert wait(process, 300) == 0, "it took too much"
    answer = json.loads((tmp_path / "answer").read_text())
    assert [result["outcome"] for result in answer.values()] == ["read", "read"]
    assert answer["label"]["extra bytes"] < 200 * MEGABYTE
    assert answer["raw"]["extra bytes"] < 200 * MEGABYTE
    assert answer["raw"]["outcome"] == "read"
    # The answer itself is large: 40 directions of a million features.
    assert answer["fit"]["extra bytes"] < 40 * 10**6 * 4 + 200 * MEGABYTE


def summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "files": len(results),
        "refused": sum(result["outcome"] == "refused" for result in results),
        "slowest seconds": round(max(result["seconds"] for result in results), 3),
        "most extra bytes": max(result["extra bytes"] for result in results),
    }
