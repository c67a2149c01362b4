"""What torchrun starts in the tests: trains on small clouds and prints the losses."""

from __future__ import annotations

import json
import os

import torch
import torch.distributed as dist

from jlgcn.nn import GraphLevelJLGCN
from jlgcn.training import GraphTrainConfig
from tests.training.small import fit_clouds, small_clouds


def make() -> GraphLevelJLGCN:
    # In double precision, and without dropout, of which each process draws its own.
    return GraphLevelJLGCN(3, 3, (8, 16), (8,), rank=4, dropout=0.0).double()


def losses() -> list[float]:
    data = small_clouds()
    object.__setattr__(data, "points", data.points.double())
    # Without weight decay: the shift before the head is undone by the head's own normalisation, so
    # its gradient is rounding alone, from which Adam's L2 penalty would make steps of full size.
    config = GraphTrainConfig(
        epochs=3,
        num_points=24,
        batch_size=8,
        lr=0.01,
        weight_decay=0.0,
        regularizer_weight=0.1,
        augments=True,
    )
    result = fit_clouds(make, data, config=config, seed=3)
    return [row[key] for row in result.history for key in ("loss", "val_loss")]


if __name__ == "__main__":
    torch.set_num_threads(1)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    found = losses()
    if not dist.is_initialized() or dist.get_rank() == 0:
        print(json.dumps(found))
    if dist.is_initialized():
        dist.destroy_process_group()
