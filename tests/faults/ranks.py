"""Processes under torchrun, one of which is killed or stopped."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
EPOCHS = 30
RANKS = 4


@contextmanager
def torchrun(
    folder: Path, ranks: int, pause: float = 0.1, silence: float = 20.0
) -> Iterator[subprocess.Popen[bytes]]:
    """Start so many processes, which are started again if one fails, twice at most."""
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}"]
    command += ["--max-restarts=2", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    command += ["-m", "tests.faults.rank_worker", str(folder), str(EPOCHS), str(pause)]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [*command, str(silence)], cwd=ROOT, stdout=log, stderr=log, start_new_session=True
        )
        try:
            yield process
        finally:
            for pid in [*_pids(folder), process.pid]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()


def _pids(folder: Path) -> list[int]:
    return [int(path.read_text()) for path in folder.glob("rank-*.pid") if path.read_text()]


def lose_a_rank(index: int, folder: Path, number: signal.Signals) -> dict[str, Any]:
    """Kill or stop one rank at a random time, and say how it ended, and when."""
    chance = random.Random(index)
    folder.mkdir(parents=True)
    with torchrun(folder, RANKS) as process:
        wait_for_checkpoint(folder, process)
        time.sleep(chance.uniform(0, 2.0))
        rank = chance.randrange(RANKS)
        os.kill(int((folder / f"rank-{rank}.pid").read_text()), number)
        start = time.perf_counter()
        try:
            code: int | None = process.wait(240)
        except subprocess.TimeoutExpired:
            code = None
        seconds = time.perf_counter() - start
    log = (folder / "log").read_text(errors="replace")
    losses = [json.loads(line[7:]) for line in log.splitlines() if line.startswith("LOSSES ")]
    return {
        "finished": code == 0 and len(losses) == 1,
        "named": f"rank {rank} has sent no heartbeat" in log,
        "seconds": seconds,
        "losses": losses[0] if losses else [],
    }


def wait_for_checkpoint(
    folder: Path, process: subprocess.Popen[bytes], seconds: float = 180.0
) -> None:
    """Wait until the processes have trained for an epoch."""
    deadline = time.monotonic() + seconds
    while not (folder / "checkpoints" / "LATEST").exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise TimeoutError((folder / "log").read_text(errors="replace")[-2000:])
        time.sleep(0.01)
