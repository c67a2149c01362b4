"""What torchrun starts in the tests: trains on a small graph and prints losses and accuracies."""

from __future__ import annotations

import json
import os

import torch
import torch.distributed as dist

from jlgcn.nn import JLGCN, PRESETS
from jlgcn.nn.options import Preset
from jlgcn.training import TrainConfig
from tests.training.small import fit_data, small_data


def history(preset: Preset) -> list[float]:
    data = small_data(121)  # an odd number: parts differ in size
    # In double precision, and without dropout, of which each process draws its own.
    torch.manual_seed(3)
    model = JLGCN(6, 8, 2, rank=3, dropout=0.0, options=PRESETS[preset]).double()
    result = fit_data(
        model,
        data,
        config=TrainConfig(epochs=5, lr=0.02, glr_weight=1e-3, glr_probes=None),
        trace_test=True,
    )
    model(data.x)  # on all nodes: the network of the caller is not sharded
    rows = [row[key] for row in result.history for key in ("loss", "val_loss", "test_accuracy")]
    return [*rows, result.test_accuracy]


if __name__ == "__main__":
    torch.set_num_threads(1)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    found = history("paper") + history("authors")
    if not dist.is_initialized() or dist.get_rank() == 0:
        print(json.dumps(found))
    if dist.is_initialized():
        dist.destroy_process_group()
