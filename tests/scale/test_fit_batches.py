from __future__ import annotations

import logging
import math
from pathlib import Path

import pytest
import torch

from jlgcn.nn import JLGCN
from jlgcn.scale import (
    BatchConfig,
    Mapper,
    PackedTable,
    Split,
    fit_batches,
    planted_table,
    training,
)
from jlgcn.train import FitResult
from tests.processes import run_processes

CONFIG = BatchConfig(epochs=4, batch_size=64, fanouts=(4, 4), num_neighbors=5, lr=0.05)


def make_model() -> JLGCN:
    return JLGCN(8, 16, 3, dropout=0.1, options="paper")


def split_of(packed: PackedTable) -> Split:
    return Split.of(packed.y, num_train=200, num_val=100)


def train(
    packed: PackedTable,
    folder: Path,
    config: BatchConfig = CONFIG,
    checkpoint_seconds: float = 0,
    run_shards: Mapper | None = None,
) -> tuple[torch.Tensor, FitResult]:
    _, logits, result = fit_batches(
        make_model,
        packed,
        split_of(packed),
        config,
        folder=folder,
        seed=0,
        checkpoint_seconds=checkpoint_seconds,
        run_shards=run_shards,
    )
    return logits, result


@pytest.fixture
def packed(tmp_path: Path) -> PackedTable:
    return planted_table(tmp_path / "data", 600)[0]


def test_batches_learn_the_classes(packed: PackedTable, tmp_path: Path) -> None:
    logits, result = train(packed, tmp_path / "run", BatchConfig(**{**vars(CONFIG), "epochs": 15}))
    assert result.test_accuracy > 0.6  # a third by chance
    assert logits.shape == (600, 3)
    assert result.history[-1]["loss"] < 0.7 * result.history[0]["loss"]
    assert all(row["nodes_per_second"] > 0 for row in result.history)


@pytest.mark.parametrize("checkpoint_seconds", [0, 1e9])
def test_a_run_that_was_stopped_ends_as_if_it_had_not(
    packed: PackedTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoint_seconds: float
) -> None:
    # A new table every epoch: the hardest case, because the table is part of the state.
    config = BatchConfig(**{**vars(CONFIG), "min_recall": 2.0})
    _, expected = train(packed, tmp_path / "one", config)
    step = training._Training._step
    count = 0

    def stop_in_the_last_epoch(self: object, batch: object) -> float:
        nonlocal count
        count += 1
        if count == 14:  # in the last of four epochs, of four steps each
            raise KeyboardInterrupt
        return step(self, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(training._Training, "_step", stop_in_the_last_epoch)
    with pytest.raises(KeyboardInterrupt):
        train(packed, tmp_path / "two", config, checkpoint_seconds)
    monkeypatch.undo()
    _, result = train(packed, tmp_path / "two", config, checkpoint_seconds)
    assert result.parameter_sha256 == expected.parameter_sha256
    assert [row["table"] for row in result.history] == [0, 1, 2, 3]
    assert result.test_accuracy == expected.test_accuracy


def test_tables_are_built_anew_when_recall_drops(
    packed: PackedTable, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "jlgcn.scale.training")
    config = BatchConfig(**{**vars(CONFIG), "min_recall": 0.999, "lr": 0.3})
    _, result = train(packed, tmp_path / "run", config)
    assert result.history[-1]["table"] > 0
    assert "table 1: " in caplog.text
    assert "mean degrees" in caplog.text
    _, result = train(packed, tmp_path / "still", BatchConfig(**{**vars(config), "min_recall": 0}))
    assert result.history[-1]["table"] == 0


def test_the_regularizer_smooths(packed: PackedTable, tmp_path: Path) -> None:
    _, plain = train(packed, tmp_path / "plain")
    config = BatchConfig(**{**vars(CONFIG), "glr_weight": 1e-3})
    _, smooth = train(packed, tmp_path / "smooth", config)
    assert smooth.history[0]["loss"] > plain.history[0]["loss"]


def test_two_processes_end_with_one_network(packed: PackedTable, tmp_path: Path) -> None:
    printed = run_processes(
        2, "tests.scale.batch_worker", str(packed.folder), str(tmp_path / "run")
    )
    hashes = {line.split()[1] for line in printed.splitlines() if line.startswith("hash ")}
    accuracies = [float(line.split()[2]) for line in printed.splitlines()]
    assert len(accuracies) == 2
    assert len(hashes) == 1
    assert min(accuracies) > 0.5


def test_too_few_labels_are_named() -> None:
    with pytest.raises(ValueError, match="3 nodes have a class, which is too few for 2 to train"):
        Split.of(torch.tensor([0, 1, -1, 0]), num_train=2, num_val=1)


def test_a_size_that_does_not_fit_is_refused_first(
    packed: PackedTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jlgcn.plan.available_bytes", lambda: 1e6)
    with pytest.raises(MemoryError, match="GiB are available; free some memory"):
        train(packed, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    _, logits, _ = fit_batches(
        make_model,
        packed,
        split_of(packed),
        BatchConfig(epochs=1, num_neighbors=5),
        folder=tmp_path / "run",
        seed=0,
        memory=math.inf,
    )
    assert len(logits) == 600
