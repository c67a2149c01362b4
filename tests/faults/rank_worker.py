"""What torchrun starts in the fault tests: trains on a small graph and prints its losses.

python -m tests.faults.rank_worker CHECKPOINTS EPOCHS SECONDS_AN_EPOCH SILENCE
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from jlgcn.distributed.collectives import process_group
from jlgcn.distributed.launch import torchrun_group
from jlgcn.nn import JLGCN, JLGCNOutput
from jlgcn.training import FitResult, RunOptions, TrainConfig
from tests.training.small import fit_data, small_data


class Slow(JLGCN):
    """A network that takes its time, so that there is some to be killed in."""

    pause = 0.0

    def forward(self, *args: Any, **keywords: Any) -> JLGCNOutput:  # noqa: ANN401
        if self.training:
            time.sleep(self.pause)
        return super().forward(*args, **keywords)


def run(checkpoints: Path | None, epochs: int, pause: float) -> FitResult:
    torch.manual_seed(3)
    # In double precision, and without dropout, of which each process draws its own.
    model = Slow(6, 8, 2, rank=3, dropout=0.0, options="paper").double()
    model.pause = pause
    return fit_data(
        model,
        small_data(121),
        config=TrainConfig(epochs=epochs, lr=0.02, glr_weight=1e-3, glr_probes=None),
        options=RunOptions(checkpoints=checkpoints, checkpoint_seconds=0),
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UserWarning)
    folder, number, pause, silence = sys.argv[1:]
    with torchrun_group(silence=float(silence)):
        rank = process_group()[0]
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"rank-{rank}.pid").write_text(str(os.getpid()))
        found = run(Path(folder) / "checkpoints", int(number), float(pause))
        if rank == 0:
            print("LOSSES " + json.dumps([row["loss"] for row in found.history]), flush=True)
