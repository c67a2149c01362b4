from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from evaluation.sealed_test import record_all
from jlgcn.paper.records import read_records
from tests.paper.test_records import write


def test_looks_at_the_test_nodes_of_claims_are_kept_apart_from_runs(tmp_path: Path) -> None:
    runs, results = tmp_path / "runs", tmp_path / "results"
    folder = runs / "claims/given/cora/0/seed-0"
    folder.mkdir(parents=True)
    line = {
        "schema": 1,
        "recipe": "claims/given/cora",
        "variant": "best",
        "seed": 0,
        "commit": "abc",
        "configuration": {},
        "freeze": 1,
    }
    (folder / "result.json").write_text(json.dumps(line))
    (folder / "history.csv").write_text("")
    record_all(runs, results)
    record_all(runs, results)  # the same look, recorded again, is one look
    (read,) = (results / "test_reads.jsonl").read_text().splitlines()
    assert json.loads(read) == {
        "recipe": "claims/given/cora",
        "variant": "best",
        "seed": 0,
        "commit": "abc",
        "freeze": 1,
    }
    assert read_records(results) == [line]


def claim(seed: int, **changed: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "recipe": "claims/given/cora",
        "variant": "random metric",
        "seed": seed,
        "commit": "abc",
        "freeze": 3,
        "correction": "matched by variance",
    } | changed


def test_every_reading_of_test_labels_is_gathered_once_whatever_became_of_the_run(
    tmp_path: Path,
) -> None:
    runs, results = tmp_path / "runs", tmp_path / "results"
    write(runs, claim(0, configuration={}))  # of a time when only results told of readings
    write(runs, claim(1, configuration={}))
    counted = [
        claim(1, config_hash="x", opened="10:00"),  # of the second result
        claim(1, config_hash="x", opened="09:00"),  # the same run, begun before and repeated
        claim(2, config_hash="x", opened="11:00"),  # of a run that never finished
    ]
    (runs / "test_reads.jsonl").write_text("".join(json.dumps(one) + "\n" for one in counted))
    results.mkdir()
    old = claim(0, commit="before", freeze=2)
    (results / "test_reads.jsonl").write_text(json.dumps(old) + "\n")
    for _ in range(2):
        record_all(runs, results)
        lines = (results / "test_reads.jsonl").read_text().splitlines()
        assert [json.loads(text) for text in lines] == [old, *counted, claim(0)]
