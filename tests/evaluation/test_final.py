from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from evaluation.final import run as runner
from evaluation.final.methods import methods
from evaluation.final.rows import GROUPS, FinalProblem, Row, load, rows, rows_of
from evaluation.final.sealed import FREEZE, SealedTest
from evaluation.final.tables import (
    best_of_tables,
    difference,
    draw_gains,
    final_lines,
    first_table,
    gains_table,
    group_gaps,
    methods_table,
)
from tests.real_data import needs_data

READING = {"method": "GCN", "split": 0, "seed": 0, "freeze": FREEZE, "commit": "abc"}


def some_labels() -> SealedTest:
    return SealedTest(torch.tensor([3, 5]), torch.tensor([1, 0]))


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_reading_is_recorded_before_labels_are_returned(tmp_path: Path) -> None:
    path = tmp_path / "cora.jsonl"
    assert some_labels().open(path, READING).tolist() == [1, 0]
    (line,) = lines_of(path)
    assert READING.items() <= line.items()
    assert "resumed" not in line


def test_labels_stay_sealed_if_the_reading_cannot_be_recorded(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        some_labels().open(tmp_path / "file" / "cora.jsonl", READING)


def test_what_has_a_result_is_not_read_again_in_a_freeze(tmp_path: Path) -> None:
    path = tmp_path / "cora.jsonl"
    path.write_text(json.dumps(READING) + "\n" + json.dumps(READING | {"accuracy": 0.5}) + "\n")
    with pytest.raises(ValueError, match="GCN has read split 0 of cora in freeze"):
        some_labels().open(path, READING)
    some_labels().open(path, READING | {"freeze": FREEZE + 1})


def test_an_unfinished_reading_resumes_once_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "cora.jsonl"
    for _ in range(2):
        some_labels().open(path, READING)
    assert [line.get("resumed") for line in lines_of(path)] == [None, True]
    with pytest.raises(ValueError, match="its result stands"):
        some_labels().open(path, READING)


def write_graph(folder: Path, num_nodes: int = 60) -> Path:
    generator = np.random.default_rng(0)
    y = np.arange(num_nodes) % 2
    x = generator.normal(size=(num_nodes, 4)) + 3 * y[:, None]
    pairs = np.stack([np.arange(num_nodes), (np.arange(num_nodes) + 2) % num_nodes], 1)
    part = generator.permutation(num_nodes) % 3
    masks = {
        f"{name}_masks": (part == number)[None]
        for number, name in enumerate(("train", "val", "test"))
    }
    path = folder / "ring.npz"
    features = x.astype(np.float32)
    np.savez(path, edges=pairs, node_labels=y, node_features=features, **masks)
    return path


def test_a_folder_of_graphs_is_run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_graph(tmp_path)
    (row,) = rows_of(tmp_path).values()
    split = load(row, 0)
    assert set(split.data.y[split.sealed.nodes.numpy()]) == {-1}
    monkeypatch.setattr(runner, "commit", lambda: "abc")
    wanted = ("closed form", "closed form, validation", "logistic regression", "SAGE")
    found = list(runner.run([row], None, tmp_path / "out", wanted))
    assert [line["method"] for line in found if line["seed"] == 0] == list(wanted)
    assert all(line["accuracy"] > 0.9 for line in found)
    assert list(runner.run([row], None, tmp_path / "out", wanted)) == []
    written = lines_of(tmp_path / "out" / "ring.jsonl")
    assert len(written) == 2 * len(found)
    assert [("accuracy" in line) for line in written] == [False, True] * len(found)


def test_code_that_is_not_committed_reads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "commit", lambda: "abc-dirty")
    with pytest.raises(ValueError, match="committed code only"):
        next(runner.run([Row("x", "none", "cora")], None, tmp_path, []))
    assert not list(tmp_path.iterdir())


def test_validation_labels_select_and_are_not_learned_from(tmp_path: Path) -> None:
    write_graph(tmp_path)
    (row,) = rows_of(tmp_path).values()
    split = load(row, 0)
    y, folds = FinalProblem(split).selection(split.shown)
    ((fitted, scored),) = folds
    assert set(fitted) == set(split.train)
    assert set(scored) == set(split.val)
    assert (split.shown[split.val] == -1).all()
    assert (y[split.val] >= 0).all()


def test_texts_and_tables_of_a_folder_have_two_label_budgets(tmp_path: Path) -> None:
    y = np.arange(80) % 2
    np.savez(tmp_path / "notes.npz", texts=np.array(["cat mouse", "car road"])[y], y=y)
    np.savez(tmp_path / "table.npz", x=np.eye(80)[:, :3] + y[:, None], y=y)
    found = rows_of(tmp_path)
    assert list(found) == [
        f"{name}, {labels} labels a class" for name in ("notes", "table") for labels in (5, 20)
    ]
    for row in found.values():
        split = load(row, 1)
        assert len(split.train) == 2 * row.labels
        assert not len(split.val)
        assert "kNN-GCN" not in methods(row, split)


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no NPZ file"):
        rows_of(tmp_path)


def test_splits_are_paired_and_the_best_other_is_named(tmp_path: Path) -> None:
    lines = [
        READING | {"method": method, "split": split, "accuracy": accuracy, "cpu_seconds": 1.0}
        for method, own in {
            "closed form, validation": (0.80, 0.70, 0.75),
            "GCN": (0.70, 0.60, 0.65),
            "SIGN": (0.5, 0.5, 0.5),
            "GCNII": (0.9,),  # begun: one split decides nothing
            "random metric": (0.99, 0.99, 0.99),
        }.items()
        for split, accuracy in enumerate(own)
    ]
    (tmp_path / "cora, no graph.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    found = final_lines(tmp_path)
    gap = difference(
        rows()["cora, no graph"], found["cora, no graph"], "closed form, validation", "GCN"
    )
    assert gap is not None
    assert [round(gap[name], 6) for name in ("mean", "low", "high")] == [10, 10, 10]
    assert "| GCN 65.0 | +10.0 (10.0 to 10.0) | 3 |" in gains_table(found)


def test_a_method_with_fewer_splits_is_named_with_their_number(tmp_path: Path) -> None:
    lines = [
        READING | {"method": method, "split": split, "accuracy": accuracy, "cpu_seconds": 1.0}
        for method, own in {
            "closed form, validation": (0.8, 0.7, 0.6, 0.5),
            "GRAND": (0.9, 0.8, 0.7),
            "fixed kNN graph": (0.8, 0.7, 0.6, 0.5),
        }.items()
        for split, accuracy in enumerate(own)
    ]
    (tmp_path / "cora, all edges.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    found = final_lines(tmp_path)
    assert "| GRAND 80.0 (3 splits) | -10.0 (-10.0 to -10.0) | 4 |" in gains_table(found)
    assert "| 80.0 (GRAND, 3 splits) | 65.0, -10.0 (-10.0 to -10.0) |" in first_table(found)
    assert "| cora, all edges | 65.0 | 80.0 (3) |" in methods_table(found)


def test_networks_of_ours_have_columns_of_their_own(tmp_path: Path) -> None:
    lines = [
        READING | {"method": method, "split": split, "accuracy": accuracy, "cpu_seconds": 1.0}
        for method, own in {
            "closed form": (0.8, 0.7, 0.6),
            "GCN": (0.7, 0.6, 0.5),
            "DecoupledJLGCN": (0.9, 0.8, 0.7),
        }.items()
        for split, accuracy in enumerate(own)
    ]
    (tmp_path / "cora, no graph.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    table = gains_table(final_lines(tmp_path))
    assert "| DecoupledJLGCN | best other | ahead | DecoupledJLGCN ahead | splits |" in table
    gaps = "+10.0 (10.0 to 10.0) | +20.0 (20.0 to 20.0) | 3 |"
    assert f"| 70.0 |  | 80.0 | GCN 60.0 | {gaps}" in table


def test_tables_are_compared_with_the_one_method_that_is_best_over_all(tmp_path: Path) -> None:
    own = {
        "wine, 5 labels a class": {"closed form": (0.9, 0.8), "LDA": (0.9, 0.9), "SVC": (0.8, 0.8)},
        "tae, 5 labels a class": {"closed form": (0.7, 0.5), "LDA": (0.2, 0.2), "SVC": (0.6, 0.6)},
    }
    for name, methods_of_row in own.items():
        lines = [
            READING | {"method": method, "split": split, "accuracy": value, "cpu_seconds": 1.0}
            for method, values in methods_of_row.items()
            for split, value in enumerate(values)
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    found = final_lines(tmp_path)
    assert best_of_tables(found) == "SVC"
    gaps = {name: round(gap["mean"], 6) for name, gap in group_gaps(found, "tables")}
    assert gaps == {"wine, 5 labels a class": 5, "tae, 5 labels a class": 0}
    picture = draw_gains(found, tmp_path / "gains.png")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_every_row_belongs_to_a_group() -> None:
    found = rows()
    assert {row.group for row in found.values()} <= set(GROUPS)
    assert all(row.name == name for name, row in found.items())


@needs_data
@pytest.mark.parametrize(
    ("name", "num_train", "num_val"),
    [
        ("cora, half of the edges", 140, 500),
        ("cora, 25 % attacked", 247, 249),
        ("wine, 5 labels a class", 15, 0),
    ],
)
def test_classes_that_are_scored_are_hidden(name: str, num_train: int, num_val: int) -> None:
    split = load(rows()[name], 0)
    assert (len(split.train), len(split.val)) == (num_train, num_val)
    scored = split.sealed.nodes.numpy()
    assert set(split.data.y[scored]) == {-1}
    assert not set(scored) & {*split.train, *split.val}
