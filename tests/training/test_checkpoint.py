from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from jlgcn._files import LOCK
from jlgcn.training.checkpoint import load_checkpoint, save_checkpoint
from tests.faults.forks import forked, wait


def save(folder: Path, step: int) -> None:
    save_checkpoint(folder, step, {"w": torch.full((3,), float(step))}, {"epoch": step})


def loaded_step(folder: Path) -> int | None:
    found = load_checkpoint(folder)
    if found is None:
        return None
    tensors, state = found
    assert torch.equal(tensors["w"], torch.full((3,), float(state["epoch"])))
    return int(state["epoch"])


def test_the_newest_three_are_kept(tmp_path: Path) -> None:
    assert loaded_step(tmp_path) is None
    for step in range(5):
        save(tmp_path, step)
        assert loaded_step(tmp_path) == step
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [LOCK, "LATEST", "step-00000002", "step-00000003", "step-00000004"]


def test_steps_of_more_digits_are_newer(tmp_path: Path) -> None:
    for step in (99_999_998, 99_999_999, 100_000_000, 100_000_001):
        save(tmp_path, step)
    (tmp_path / "LATEST").unlink()
    assert loaded_step(tmp_path) == 100_000_001
    assert not (tmp_path / "step-99999998").exists()


def test_a_save_deletes_nothing_that_is_no_checkpoint(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    save(elsewhere, 0)
    checkpoints = tmp_path / "checkpoints"
    names = (
        *("step-0-raw-data", "step-2-notes.tmp", "step-00000000", "step-00000001.tmp"),
        *("step-00000001.7", ".step-00000001.tmp", ".step-1.0123456789abcdef.tmp"),
    )
    for name in names:
        (checkpoints / name).mkdir(parents=True)
        (checkpoints / name / "mine").write_text("precious")
    (checkpoints / "step-00000001").write_text("precious")
    (checkpoints / "step-3.tmp").write_text("precious")
    (checkpoints / "step-00000000.1").symlink_to(elsewhere / "step-00000000")
    (checkpoints / "step-00000000.2").symlink_to(tmp_path / "nowhere")
    before = {path.name for path in checkpoints.iterdir()}
    for step in (0, 1, 1, 2, 3, 4, 5):
        save(checkpoints, step)
        assert loaded_step(checkpoints) == step
    added = {path.name for path in checkpoints.iterdir()} - before
    assert added == {LOCK, "LATEST", "step-00000003", "step-00000004", "step-00000005"}
    for name in names:
        assert (checkpoints / name / "mine").read_text() == "precious"
    assert loaded_step(elsewhere) == 0


def test_a_checkpoint_with_somebodys_notes_in_it_stays(tmp_path: Path) -> None:
    save(tmp_path, 0)
    (tmp_path / "step-00000000" / "notes.txt").write_text("the best so far")
    for step in range(1, 6):
        save(tmp_path, step)
    assert (tmp_path / "step-00000000" / "notes.txt").exists()
    assert not (tmp_path / "step-00000001").exists()


def test_links_in_a_folder_of_checkpoints_are_not_written_through(tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    (tmp_path / "mine").write_text("precious")
    for name in ("LATEST", "LATEST.tmp"):
        (checkpoints / name).symlink_to(tmp_path / "mine")
    save(checkpoints, 1)
    assert (tmp_path / "mine").read_text() == "precious"
    assert loaded_step(checkpoints) == 1


def save_often(folder: Path, first: int) -> None:
    for step in range(first, 40, 2):
        save(folder, step)


@pytest.mark.nightly
def test_two_processes_may_save_into_one_folder(tmp_path: Path) -> None:
    with (
        forked(save_often, tmp_path, 0) as even,
        forked(save_often, tmp_path, 1) as odd,
    ):
        assert wait(even, 120) == 0
        assert wait(odd, 120) == 0
    assert loaded_step(tmp_path) in (38, 39)
    assert not list(tmp_path.glob("*.tmp"))


def test_the_same_step_may_be_saved_again(tmp_path: Path) -> None:
    save(tmp_path, 1)
    save(tmp_path, 1)
    assert loaded_step(tmp_path) == 1


def test_checkpoints_of_another_schema_are_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(tmp_path, 1)
    path = tmp_path / "step-00000001" / "state.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"schema": 99}))
    assert loaded_step(tmp_path) is None
    assert "its schema is 99, not 2" in caplog.text


class PowerCutError(Exception):
    """The machine is gone in the middle of a save."""


@pytest.mark.parametrize("function", ["fsync", "replace", "open"])
def test_a_crash_at_any_point_of_a_save_leaves_a_whole_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    original: Callable[..., Any] = getattr(os, function)
    save(tmp_path / "template", 1)
    survived = 0
    for crash_at in range(20):
        folder = tmp_path / f"{crash_at}"
        shutil.copytree(tmp_path / "template", folder)
        calls = 0

        def crashing(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            nonlocal calls
            calls += 1
            if calls > crash_at:  # noqa: B023
                raise PowerCutError
            return original(*args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(os, function, crashing)
            try:
                save(folder, 2)
                finished = True
            except PowerCutError:
                finished = False
        assert loaded_step(folder) in ((2,) if finished else (1, 2))
        save(folder, 3)  # and the next save does not stumble over what is left
        assert loaded_step(folder) == 3
        if finished:
            break
        survived += 1
    assert survived > 0


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "tensors.safetensors").write_bytes(b"short"),
        lambda folder: (folder / "tensors.safetensors").unlink(),
        lambda folder: (folder / "state.json").write_text("{"),
        lambda folder: (folder / "state.json").write_text("[]"),
        lambda folder: (folder / "state.json").write_text(json.dumps({"sha256": "0"})),
    ],
)
def test_a_damaged_checkpoint_is_passed_over(
    tmp_path: Path, damage: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2)
    damage(tmp_path / "step-00000002")
    with caplog.at_level(logging.WARNING):
        assert loaded_step(tmp_path) == 1
    assert "step-00000002 is damaged" in caplog.text


def test_a_full_disk_reaches_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 1)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            save(tmp_path, 2)
    assert loaded_step(tmp_path) == 1
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [LOCK, "LATEST", "step-00000001"]  # what was begun would fill the disk
