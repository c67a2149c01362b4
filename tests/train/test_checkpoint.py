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

from jlgcn.train import load_checkpoint, save_checkpoint


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
    assert names == ["LATEST", "step-00000002", "step-00000003", "step-00000004"]


def test_the_same_step_may_be_saved_again(tmp_path: Path) -> None:
    save(tmp_path, 1)
    save(tmp_path, 1)
    assert loaded_step(tmp_path) == 1


def test_checkpoints_of_the_schema_before_are_read_and_of_one_to_come_are_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(tmp_path, 1)
    path = tmp_path / "step-00000001" / "state.json"
    document = json.loads(path.read_text())
    # At first only the tensors had a hash, and nothing else was said.
    first = {"sha256": document["files"]["tensors.safetensors"], "state": document["state"]}
    path.write_text(json.dumps(first))
    assert loaded_step(tmp_path) == 1
    path.write_text(json.dumps(first | {"sha256": "0" * 64}))
    assert loaded_step(tmp_path) is None
    assert "the tensors do not have their hash" in caplog.text
    path.write_text(json.dumps(document | {"schema": 99}))
    assert loaded_step(tmp_path) is None
    assert "it is of schema 99, not 2" in caplog.text


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
