from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jlgcn.paper import NodeExperiment, get_recipe
from jlgcn.paper.summary import summarize
from jlgcn.paper.tables import rows_as_csv, summary_table

RESULTS = Path(__file__).parents[2] / "results"
OURS = get_recipe("citation/cora").variant("jlgcn").experiment


def line(
    experiment: NodeExperiment, seed: int, accuracy: float, best: float | None = None
) -> dict[str, Any]:
    return {
        "recipe": "citation/cora",
        "variant": "as recorded",
        "configuration": experiment.configuration(),
        "seed": seed,
        "test_accuracy": accuracy,
        "best_test_accuracy": best,
    }


def found(rows: list[dict[str, Any]], recipe: str, variant: str) -> dict[str, dict[str, Any]]:
    return {
        row["protocol"]: row for row in rows if (row["recipe"], row["variant"]) == (recipe, variant)
    }


def test_both_protocols_are_reported_where_test_nodes_were_traced() -> None:
    rows = summarize([line(OURS, 0, 0.80, 0.83), line(OURS, 1, 0.82, 0.85)])
    cora = found(rows, "citation/cora", "jlgcn")
    assert cora["honest"]["mean"] == pytest.approx(0.81)
    assert cora["honest"]["published"] is None
    assert cora["authors"]["mean"] == pytest.approx(0.84)
    assert cora["authors"]["published"] == 83.9


def test_a_baselines_published_figure_is_an_honest_one() -> None:
    gcn = get_recipe("citation/cora").variant("gcn").experiment
    rows = found(summarize([line(gcn, 0, 0.81, 0.83)]), "citation/cora", "gcn")
    assert rows["honest"]["published"] == 81.5
    assert rows["authors"]["published"] is None


def test_an_experiment_counts_in_every_table_it_stands_in() -> None:
    rows = summarize([line(OURS, 0, 0.80, 0.83)])
    assert found(rows, "robustness/edges", "jlgcn 0")["honest"]["seeds"] == 1
    assert found(rows, "ablation/regularizer", "glr 0.0001, missing 0")["honest"]["mean"] == 0.8


def test_a_seed_by_both_protocols_is_one_seed() -> None:
    traced = replace(OURS, protocol="authors")
    rows = summarize([line(traced, 0, 0.80, 0.83), line(OURS, 0, 0.80)])
    cora = found(rows, "citation/cora", "jlgcn")
    assert (cora["honest"]["seeds"], cora["authors"]["seeds"]) == (1, 1)


def test_changed_settings_stand_apart() -> None:
    (row,) = summarize([line(replace(OURS, rank=3), 0, 0.5)])
    assert (row["recipe"], row["variant"]) == ("citation/cora", "as recorded")
    assert row["published"] is None


def test_rows_are_printed_as_a_table_and_as_csv() -> None:
    rows = summarize([line(OURS, 0, 0.80, 0.83), line(OURS, 1, 0.82, 0.85)])
    table = summary_table(rows).splitlines()
    assert len(table) == 2 + len(rows)
    assert any("| jlgcn | authors |" in row and "| 84.0 |" in row for row in table)
    again = list(csv.DictReader(rows_as_csv(rows).splitlines()))
    assert [float(row["mean"]) for row in again] == pytest.approx([row["mean"] for row in rows])
