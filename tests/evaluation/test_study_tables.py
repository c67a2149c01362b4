"""Tables of studies from their lines."""

import json
from pathlib import Path

from evaluation.study_tables import study_tables


def write(path: Path, lines: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_gains_are_paired_by_draw(tmp_path: Path) -> None:
    lines: list[dict[str, object]] = [
        {"data": "wine", "labels": 2, "network": network, "draw": draw, "fixed": fixed}
        | {"learned": fixed + 0.02 + 0.01 * draw}
        for network in ("gcn", "sage", "gcnii")
        for draw, fixed in enumerate((0.5, 0.9))
    ]
    write(tmp_path / "learn_graph.jsonl", lines)
    table = study_tables(tmp_path)["studies/learn_graph"]
    gain = "+2.5 ± 0.5 (70.0)"  # the accuracies differ by 40 points, the gains by one
    assert table.splitlines()[-1] == f"| wine | 2 | {gain} | {gain} | {gain} | 2 |"


def test_runs_of_a_variant_are_averaged(tmp_path: Path) -> None:
    lines: list[dict[str, object]] = [
        {"data": "cora", "setting": "nograph", "variant": "decoupled", "test": test}
        for test in (0.7, 0.72)
    ]
    lines.append({"data": "cora", "setting": "nograph", "variant": "gcn", "test": 0.6})
    write(tmp_path / "decoupled.jsonl", lines)
    table = study_tables(tmp_path)["studies/decoupled"]
    assert table.splitlines()[-1] == "| cora | no edges | 71.0 ± 1.0 |  | 60.0 ± 0.0 | 0 to 2 |"


def test_the_estimator_is_paired_with_the_better_rival(tmp_path: Path) -> None:
    lines: list[dict[str, object]] = [
        {"data": "city", "labels": 5, "draw": draw, "rows": 2000}
        | {"JLGCN": {"accuracy": right + 0.01 * (draw + 1), "balanced": right}}
        | {"logistic regression": {"accuracy": right, "balanced": 0.5}}
        | {"our encoding": {"accuracy": 0.9, "balanced": 0.9}}
        | {"gradient boosting": {"accuracy": 0.4, "balanced": 0.3}}
        for draw, right in enumerate((0.6, 0.8))
    ]
    write(tmp_path / "mixed_tables.jsonl", lines)
    cells = study_tables(tmp_path)["studies/mixed_tables"].splitlines()[-1].split(" | ")
    assert cells[:3] == ["| city", "2,000", "5"]
    assert cells[3:6:2] == ["71.5\u00a0/\u00a070.0", "70.0\u00a0/\u00a050.0"]
    assert cells[7:] == ["+1.5 ± 0.5", "2 |"]


def test_a_study_without_lines_has_no_table(tmp_path: Path) -> None:
    assert study_tables(tmp_path) == {}


def test_the_best_score_of_each_hidden_class_is_counted(tmp_path: Path) -> None:
    lines: list[dict[str, object]] = [
        {"data": "wine", "novelty": ours, "probability": 0.6, "logistic regression": 0.5}
        | {"distance": 0.7}
        for ours in (0.9, 0.65)
    ]
    write(tmp_path / "novelty.jsonl", lines)
    table = study_tables(tmp_path)["studies/novelty"]
    assert table.splitlines()[-1] == "| wine | 0.775 | 0.600 | 0.500 | 0.700 | 1 of 2 | 0.65 |"


def test_ways_to_choose_rows_are_paired_with_random_ones(tmp_path: Path) -> None:
    lines: list[dict[str, object]] = [
        {"data": "wine", "way": way, "draw": draw, "accuracy": [0.5, last], "classes": [2, 3]}
        | {"batch": 3}
        for way, lasts in (("suggested", (0.8, 0.6)), ("random", (0.7, 0.5)))
        for draw, last in enumerate(lasts)
    ]
    write(tmp_path / "label_rounds.jsonl", lines)
    rows = study_tables(tmp_path)["studies/label_rounds"].splitlines()
    gain = "+10.0 (+10.0 to +10.0)"  # the accuracies differ by 20 points, the gains do not
    assert rows[-2] == f"| wine | suggested | 50.0 | 70.0 | 2.0 of 3 | {gain} | 2 |"
    assert rows[-1] == "| wine | random | 50.0 | 60.0 | 2.0 of 3 |  | 2 |"


def test_methods_on_cells_are_paired_with_ours_on_the_same_features(tmp_path: Path) -> None:
    lines: list[dict[str, object]] = [
        {"method": method, "draw": draw, "accuracy": accuracy + draw / 10}
        for method, accuracy in (
            ("jlgcn, genes", 0.7),
            ("jlgcn, components", 0.6),
            ("ingest, genes, k = 5", 0.5),
        )
        for draw in range(2)
    ]
    write(tmp_path / "ingest.jsonl", lines)
    rows = study_tables(tmp_path)["studies/ingest"].splitlines()
    assert rows[-1].startswith("| ingest, genes, k = 5 | 55.0 | +20.0 (")
