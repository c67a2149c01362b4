"""One rank of four is killed, or stopped; and a run goes on with another number of ranks."""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from jlgcn.training.checkpoint import load_checkpoint
from tests.faults.figures import count, record
from tests.faults.rank_worker import run
from tests.faults.ranks import EPOCHS, lose_a_rank, torchrun

pytestmark = [pytest.mark.nightly, pytest.mark.filterwarnings("ignore:the learned graph is")]


def test_a_killed_rank_is_started_again_and_nothing_is_lost(tmp_path: Path) -> None:
    found = lose_a_rank(0, tmp_path / "killed", signal.SIGKILL)
    assert found["finished"]
    assert found["seconds"] < 120
    whole = [row["loss"] for row in run(None, EPOCHS, 0.0).history]
    assert found["losses"] == pytest.approx(whole, rel=1e-9)


@pytest.mark.nightly
def test_all_lost_ranks_are_named_or_started_again(tmp_path: Path) -> None:
    whole = [row["loss"] for row in run(None, EPOCHS, 0.0).history]
    figures = {}
    for name, number in {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}.items():

        def lose(index: int, name: str = name, number: signal.Signals = number) -> dict[str, Any]:
            return lose_a_rank(index, tmp_path / f"{name}-{index}", number)

        with ThreadPoolExecutor(count("JLGCN_JOBS", 4)) as pool:
            runs = list(pool.map(lose, range(count("JLGCN_RANKS", 80) // 2)))
        in_time = [each for each in runs if each["seconds"] < 120]
        figures[name] = {
            "runs": len(runs),
            "finished or named in time": sum(r["finished"] or r["named"] for r in in_time),
            "finished": sum(r["finished"] for r in runs),
            "with the losses of one process": sum(
                r["losses"] == pytest.approx(whole, rel=1e-9) for r in runs if r["finished"]
            ),
            "slowest seconds": round(max(r["seconds"] for r in runs), 1),
        }
    record("ranks", figures)
    for figure in figures.values():
        assert figure["finished or named in time"] == figure["runs"]


def test_a_run_goes_on_with_another_number_of_ranks(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    reached = 0
    for ranks in (4, 2):
        with torchrun(folder, ranks) as process:
            while (epoch := _epoch(folder)) < reached + 3:
                assert process.poll() is None, (folder / "log").read_text()
                time.sleep(0.05)
            reached = epoch
        assert reached < EPOCHS
    history = run(folder / "checkpoints", EPOCHS, 0.0).history
    whole = run(None, EPOCHS, 0.0).history
    assert [row["loss"] for row in history] == pytest.approx([r["loss"] for r in whole], rel=1e-9)
    assert [row["epoch"] for row in history] == list(range(EPOCHS))


def _epoch(folder: Path) -> int:
    found = load_checkpoint(folder / "checkpoints") if (folder / "checkpoints").exists() else None
    return 0 if found is None else int(found[1]["epoch"])
