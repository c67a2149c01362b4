"""Many machines by Ray (extra ``ray``): it schedules, does again what is lost, joins processes.

The files must be where every machine sees them under the same path. Only numbers of shards and
small settings pass through Ray.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save
from torch import Tensor

from jlgcn._files import write_file
from jlgcn._optional import require
from jlgcn.nn import JLGCN
from jlgcn.scale.batch_config import BatchConfig, Split
from jlgcn.scale.mapping import mapped
from jlgcn.scale.store import PackedTable
from jlgcn.scale.training import fit_batches
from jlgcn.train import FitResult
from jlgcn.train.distributed import process_group


def over_ray(function: Callable[[int], object], count: int, label: str) -> None:
    """Do shards wherever Ray has a processor for one: a :class:`Mapper`.

    Ray Data schedules them and does those of a lost machine again.

    Args:
        function: what to do with the number of a shard; Ray carries it to the machines.
        count: number of shards.
        label: what it is, as Ray's own messages call it.

    Cost: that of all calls over the number of processors, and some milliseconds a shard.

    Example:
        >>> over_ray(print, 0, "nothing to do, and so Ray is not asked")
    """
    if count == 0:
        return
    data = require("ray.data", "ray", "mapping shards over machines")

    def call(row: dict[str, Any]) -> dict[str, Any]:
        function(int(row["id"]))
        return row

    shards = data.range(count, override_num_blocks=count)
    shards.set_name(label)
    shards.map(call).materialize()


def fit_over_ray(
    make_model: Callable[[], JLGCN],
    packed: PackedTable,
    split: Split,
    config: BatchConfig,
    *,
    folder: str | os.PathLike[str],
    seed: int,
    num_processes: int,
    memory: float | None = None,
    checkpoint_seconds: float = 120.0,
    max_failures: int = 2,
) -> tuple[JLGCN, Tensor, FitResult]:
    """Train on batches in several processes of Ray's ``TorchTrainer``.

    Each process runs :func:`fit_batches`, as each process of ``torchrun`` would, and ends with the
    same parameters. One that is lost lets Ray start all of them again, from the checkpoint.

    Args:
        make_model: returns the network; Ray carries it to the processes.
        packed: the rows.
        split: which nodes train, validate and test.
        config: how to train.
        folder: for tables, checkpoints, logits, and what Ray writes of its own.
        seed: of everything random.
        num_processes: processes, of one processor each.
        memory: as of :func:`fit_batches`.
        checkpoint_seconds: time between two checkpoints.
        max_failures: how often to start again.

    Returns:
        The network, logits of all nodes and what came of it, as :func:`fit_batches` does.

    Cost: as :func:`fit_batches`, over the processes.

    Example:
        >>> fit_over_ray.__module__
        'jlgcn.scale.ray_engine'
    """
    train = require("ray.train", "ray", "training in processes of Ray")
    trainers = require("ray.train.torch", "ray", "training in processes of Ray")
    rows, run_folder = packed.folder, Path(folder).absolute()

    def work() -> None:
        model, _, result = fit_batches(
            make_model,
            PackedTable(rows),
            split,
            config,
            folder=run_folder,
            seed=seed,
            memory=memory,
            checkpoint_seconds=checkpoint_seconds,
        )
        if process_group()[0] == 0:
            write_file(run_folder / "model.safetensors", save(model.state_dict()))
            write_file(run_folder / "result.json", json.dumps(asdict(result)))

    trainers.TorchTrainer(
        work,
        scaling_config=train.ScalingConfig(num_workers=num_processes),
        run_config=train.RunConfig(
            name="ray",
            storage_path=str(run_folder),
            failure_config=train.FailureConfig(max_failures=max_failures),
        ),
    ).fit()
    model = make_model()
    model.load_state_dict(load_file(run_folder / "model.safetensors"))
    result = FitResult(**json.loads((run_folder / "result.json").read_text()))
    return model, mapped(run_folder / "inferred" / "logits.npy"), result
