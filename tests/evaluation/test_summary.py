from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evaluation.claim_tables import recorded_tables
from evaluation.summary import summarize
from jlgcn.paper.records import read_records

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def recorded() -> list[dict[str, Any]]:
    return summarize(read_records(RESULTS))


def test_claims_are_compared_on_common_seeds_only(recorded: list[dict[str, Any]]) -> None:
    lines = [line for line in read_records(RESULTS) if line["recipe"] == "claims/labels25/cora"]
    accuracy = {(line["variant"], line["seed"]): line["test_accuracy"] for line in lines}
    rows = {
        row["variant"]: row
        for row in recorded
        if (row["recipe"], row["metric"]) == ("claims/labels25/cora", "best_ahead_by")
    }
    for variant, row in rows.items():
        seeds = [s for s in range(10) if {(variant, s), ("best", s)} <= accuracy.keys()]
        gains = [accuracy["best", seed] - accuracy[variant, seed] for seed in seeds]
        assert row["seeds"] == len(seeds)
        assert row["mean"] == pytest.approx(sum(gains) / len(gains))
        assert (row["low"] is None) == (len(seeds) == 1)
    assert rows["given only"]["seeds"] > 1


def test_rows_whose_test_nodes_were_seen_too_early_are_marked_in_every_table(
    recorded: list[dict[str, Any]],
) -> None:
    seen = ["attack25/cora_metattack", "others/actor", "others/squirrel_filtered"]
    tables = recorded_tables(recorded)
    for name in ("claims", "claims-beside", "claims-controls"):
        *lines, empty, note = tables[name].splitlines()
        marked = [line for line in lines if "†" in line]
        assert [line.split(" †")[0].strip("| ") for line in marked] == seen
        assert (empty, note[:46]) == ("", "† Test nodes of this row were scored before th")
        assert len(lines) > 20
    first = tables["claims-first"]
    assert "| attack25/cora_metattack † |" in first
    assert len(first.splitlines()) == 2 + 4 + 2
    assert "†" not in tables["overview"]
