"""kill -9 and SIGTERM at random times, and a crash at every point of a save."""

from __future__ import annotations

import functools
import itertools
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from jlgcn.nn import JLGCN
from jlgcn.training import GraphTrainConfig, RunOptions, TrainConfig
from jlgcn.training.checkpoint import load_checkpoint, save_checkpoint
from tests.faults.figures import count, record
from tests.faults.forks import forked, wait, wait_for
from tests.nn.small_clouds import small_classifier
from tests.training.small import fit_clouds, fit_data, small_clouds, small_data, train_small

pytestmark = pytest.mark.nightly

NUM_EPOCHS = {"nodes": 40, "clouds": 4}


def train_nodes(seed: int, folder: Path) -> str:
    return train_small(seed, NUM_EPOCHS["nodes"], folder / "checkpoints")[1].parameter_sha256


def train_clouds(seed: int, folder: Path) -> str:
    config = GraphTrainConfig(
        epochs=NUM_EPOCHS["clouds"], num_points=16, batch_size=8, lr=0.01, augments=True
    )
    result = fit_clouds(
        small_classifier,
        small_clouds(),
        config=config,
        seed=seed,
        options=RunOptions(checkpoints=folder / "checkpoints", checkpoint_seconds=0),
    )
    return result.parameter_sha256


TRAINERS = {"nodes": train_nodes, "clouds": train_clouds}


def train_to_the_end(kind: str, seed: int, folder: Path, answer: Path) -> None:
    answer.write_text(TRAINERS[kind](seed, folder))


def trained(kind: str, seed: int, folder: Path) -> tuple[str, float]:
    """Return the hash of a run that nothing happens to, and the seconds it takes."""
    answer = folder.with_suffix(".answer")
    start = time.perf_counter()
    with forked(train_to_the_end, kind, seed, folder, answer) as process:
        assert wait(process, 120) == 0
    return answer.read_text(), time.perf_counter() - start


@functools.cache
def uninterrupted(kind: str, seed: int, folder: Path) -> tuple[str, float]:
    return trained(kind, seed, folder / f"whole-{kind}-{seed}")


def kill_and_resume(index: int, folder: Path) -> dict[str, Any]:
    """Kill a run at a random time and let it go on; say when, and whether all is the same."""
    kind, seed = list(TRAINERS)[index % len(TRAINERS)], index % 6
    expected, seconds = uninterrupted(kind, seed, folder)
    chance = random.Random(index)
    own = folder / str(index)
    kills = 0
    while kills == 0 or (kills < 3 and chance.random() < 0.3):  # some are killed again
        with forked(train_to_the_end, kind, seed, own, folder / "answer") as process:
            time.sleep(chance.uniform(0, seconds))
            process.kill()
            code = wait(process, 30)
        assert code in (0, -signal.SIGKILL), code
        kills += code == -signal.SIGKILL
        if code == 0:  # it was too late; begin anew
            shutil.rmtree(own)
    found = load_checkpoint(own / "checkpoints") if (own / "checkpoints").exists() else None
    epoch = 0 if found is None else found[1]["epoch"]
    same = trained(kind, seed, own)[0] == expected
    shutil.rmtree(own)
    return {"kind": kind, "kills": kills, "epoch": epoch, "same": same}


def test_killed_runs_end_as_if_nothing_had_happened(tmp_path: Path) -> None:
    assert all(kill_and_resume(index, tmp_path)["same"] for index in range(2 * len(TRAINERS)))


@pytest.mark.nightly
def test_all_killed_runs_end_as_if_nothing_had_happened(tmp_path: Path) -> None:
    runs = [kill_and_resume(index, tmp_path) for index in range(count("JLGCN_KILLS", 200))]
    same = sum(run["same"] for run in runs)
    record(
        "kills",
        {
            "runs": len(runs),
            "same": same,
            "kills": sum(run["kills"] for run in runs),
            "of each kind": {kind: sum(run["kind"] == kind for run in runs) for kind in TRAINERS},
            "before the first checkpoint": sum(run["epoch"] == 0 for run in runs),
        },
    )
    assert same == len(runs)


def terminate(index: int, folder: Path) -> dict[str, Any]:
    """Send SIGTERM at a random time; say how the run ended, when, and what it left."""
    kind, seed = list(TRAINERS)[index % len(TRAINERS)], index % 6
    _, seconds = uninterrupted(kind, seed, folder)
    checkpoints = folder / f"term-{index}" / "checkpoints"
    with forked(train_to_the_end, kind, seed, checkpoints.parent, folder / "answer") as process:
        wait_for(checkpoints / "LATEST", process)
        time.sleep(random.Random(index).uniform(0, 0.6 * seconds))
        start = time.perf_counter()
        process.terminate()
        code = wait(process, 20)
        taken = time.perf_counter() - start
    found = load_checkpoint(checkpoints)
    epoch = 0 if found is None else found[1]["epoch"]
    return {"kind": kind, "code": code, "seconds": taken, "epoch": epoch}


def ended_as_promised(run: dict[str, Any]) -> bool:
    """143 and a checkpoint; or, when all epochs were done and saved, whatever the signal does."""
    was_done = run["epoch"] == NUM_EPOCHS[run["kind"]]
    codes = (143, 0, -signal.SIGTERM) if was_done else (143,)
    return run["code"] in codes and run["seconds"] < 10 and run["epoch"] > 0


@pytest.mark.nightly
def test_all_terminated_runs_leave_a_checkpoint(tmp_path: Path) -> None:
    runs = [terminate(index, tmp_path) for index in range(count("JLGCN_TERMINATIONS", 40))]
    record(
        "terminations",
        {
            "runs": len(runs),
            "as promised": sum(map(ended_as_promised, runs)),
            "after the last epoch": sum(r["epoch"] == NUM_EPOCHS[r["kind"]] for r in runs),
            "slowest seconds": round(max(run["seconds"] for run in runs), 2),
        },
    )
    assert all(map(ended_as_promised, runs)), [r for r in runs if not ended_as_promised(r)]


def train_slowly(folder: Path) -> None:
    """Train a network whose fourth epoch would take a minute."""
    torch.manual_seed(0)
    model = JLGCN(6, 8, 2, rank=3)
    calls = itertools.count(1)

    def wait_in_epoch_3(module: nn.Module, _: object) -> None:
        if module.training and next(calls) == 4:
            (folder / "slow").touch()
            time.sleep(60)

    model.register_forward_pre_hook(wait_in_epoch_3)
    config = TrainConfig(epochs=NUM_EPOCHS["nodes"], lr=0.02, lr_step=20)
    options = RunOptions(checkpoints=folder / "checkpoints")
    fit_data(model, small_data(), config=config, options=options)


def test_an_epoch_that_takes_too_long_is_left_and_does_not_count(tmp_path: Path) -> None:
    with forked(train_slowly, tmp_path) as process:
        wait_for(tmp_path / "slow", process)
        process.terminate()
        assert wait(process, 10) == 143
    found = load_checkpoint(tmp_path / "checkpoints")
    assert found is not None
    assert found[1]["epoch"] == 3
    resumed, _ = trained("nodes", 0, tmp_path)
    assert resumed == trained("nodes", 0, tmp_path / "whole")[0]


def save(folder: Path, step: int) -> None:
    save_checkpoint(folder, step, {"w": torch.full((3,), float(step))}, {"epoch": step})


#: Everything a save asks of the system; the process is gone just before, and in writing half-way.
SYSTEM_CALLS = ("open", "mkdir", "fsync", "replace", "unlink", "rmdir")


def save_and_die(point: int, folder: Path, step: int) -> None:
    calls = 0
    patch = pytest.MonkeyPatch()

    def wrapped(original: Callable[..., Any], die: Callable[..., object]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            nonlocal calls
            calls += 1
            if calls > point:
                die(*args)
                os._exit(9)
            return original(*args, **kwargs)

        return call

    fdopen = os.fdopen

    def opened(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        file = fdopen(*args, **kwargs)
        write = file.write

        def write_half(content: bytes) -> None:
            write(content[: len(content) // 2])
            file.flush()

        file.write = wrapped(write, write_half)
        return file

    for name in SYSTEM_CALLS:
        patch.setattr(os, name, wrapped(getattr(os, name), lambda *_: None))
    patch.setattr(os, "fdopen", opened)
    save(folder, step)
    patch.undo()


def crash_at(point: int, folder: Path, step: int) -> bool:
    """Save in a process that is gone at some point; return whether it came to the end."""
    with forked(save_and_die, point, folder, step) as process:
        code = wait(process, 30)
    assert code in (0, 9), code
    return code == 0


def crash_points(folder: Path, step: int) -> int:
    """Crash at every point of a save in turn, and return how many there are."""
    save(folder / "template", 1)
    points = 0
    finished = False
    while not finished:
        copy = folder / str(points)
        shutil.copytree(folder / "template", copy)
        finished = crash_at(points, copy, step)
        found = load_checkpoint(copy)
        assert found is not None, f"neither the old nor the new one, after {points} calls"
        assert found[1]["epoch"] in ((step,) if finished else (1, step))
        save(copy, 3)  # and the next save does not stumble over what is left
        found = load_checkpoint(copy)
        assert found is not None
        assert found[1]["epoch"] == 3
        assert not list(copy.glob("*.tmp"))
        points += not finished
    return points


def test_every_crash_point_of_a_save_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    new, again = (crash_points(tmp_path / str(step), step) for step in (2, 1))
    assert new > 10
    assert again > new  # what is replaced is deleted afterwards
    record("crash_points", {"points": new + again, "whole": new + again})
