"""Four processes under torchrun's own engine, one of which is killed or stopped.

`torchrun` starts interpreters; its engine can fork as well, which spares the imports and is the
same in everything else: rendezvous, watching, restarts.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from tests.faults.forks import forked, wait

EPOCHS = 30
RANKS = 4


def work(folder: str, epochs: int, pause: float, silence: float) -> None:
    """Train together, and leave the losses."""
    import warnings

    import torch

    from jlgcn.train.distributed import joined_processes, process_group
    from tests.faults.rank_worker import run

    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UserWarning)
    # What is said when a rank is lost must be found again.
    log = os.open(f"{folder}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 2)
    sys.stderr = os.fdopen(2, "w", closefd=False)
    with joined_processes(silence):
        rank = process_group()[0]
        (Path(folder) / f"rank-{rank}.pid").write_text(str(os.getpid()))
        found = run(Path(folder) / "checkpoints", epochs, pause)
        if rank == 0:
            losses = json.dumps([row["loss"] for row in found.history])
            (Path(folder) / "losses.json").write_text(losses)


def launch(folder: Path, ranks: int, epochs: int, pause: float, silence: float) -> None:
    """Start the processes, and start them again if one fails, twice at most."""
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=ranks,
        max_restarts=2,
        start_method="fork",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        run_id=folder.name,
        monitor_interval=0.2,
    )
    elastic_launch(config, work)(str(folder), epochs, pause, silence)


def lose_a_rank(index: int, folder: Path, number: signal.Signals) -> dict[str, Any]:
    """Kill or stop one rank at a random time, and say how it ended, and when."""
    chance = random.Random(index)
    folder.mkdir(parents=True)
    with forked(launch, folder, RANKS, EPOCHS, 0.1, 15.0) as process:
        _wait_for_checkpoint(folder)
        time.sleep(chance.uniform(0, 2.0))
        rank = chance.randrange(RANKS)
        os.kill(int((folder / f"rank-{rank}.pid").read_text()), number)
        start = time.perf_counter()
        code = wait(process, 240)
        seconds = time.perf_counter() - start
    log = (folder / "log").read_text() if (folder / "log").exists() else ""
    finished = code == 0 and (folder / "losses.json").exists()
    losses = json.loads((folder / "losses.json").read_text()) if finished else []
    named = f"rank {rank} has given no sign of life" in log
    return {"finished": finished, "named": named, "seconds": seconds, "losses": losses}


def _wait_for_checkpoint(folder: Path, seconds: float = 180.0) -> None:
    deadline = time.monotonic() + seconds
    while not (folder / "checkpoints" / "LATEST").exists():
        if time.monotonic() > deadline:
            raise TimeoutError("the ranks do not begin")
        time.sleep(0.01)
