"""Training on batches: as on whole graphs, validation selects and the test nodes come last."""

from __future__ import annotations

import functools
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from jlgcn.nn import JLGCN
from jlgcn.plan import plan
from jlgcn.scale.batch_config import BatchConfig, Split
from jlgcn.scale.forward import BatchOutput, check_options, forward_batch
from jlgcn.scale.inference import infer
from jlgcn.scale.mapping import Mapper, in_turn
from jlgcn.scale.sampler import table_loader
from jlgcn.scale.store import PackedTable
from jlgcn.scale.table import NeighborTable
from jlgcn.train.distributed import mean_over_processes, process_group
from jlgcn.train.loop import FitResult, Run, run_epochs

logger = logging.getLogger(__name__)

# Rows from which a metric that is scaled by what it sees first gets its scale.
_NUM_SEEN_FIRST = 10_000


def fit_batches(
    make_model: Callable[[], JLGCN],
    packed: PackedTable,
    split: Split,
    config: BatchConfig,
    *,
    folder: str | os.PathLike[str],
    seed: int,
    memory: float | None = None,
    checkpoint_seconds: float = 120.0,
    progress: bool = False,
    run_shards: Mapper | None = None,
) -> tuple[JLGCN, Tensor, FitResult]:
    """Train a network on batches, and return it with the logits of all nodes.

    A size that does not fit is refused before anything is allocated, see :func:`jlgcn.plan.plan`.
    In a process group, every process takes its own part of the training nodes and gradients are
    averaged.

    Args:
        make_model: returns the network, called after the seed is set; its options must not
            normalise learned graphs by themselves.
        packed: the rows.
        split: which nodes train, validate and test.
        config: how to train.
        folder: for tables, checkpoints and logits. A run that finds a checkpoint of itself goes on
            from it and ends with the same parameters.
        seed: of everything random.
        memory: bytes that there are; None for what this machine has left. ``math.inf`` tries at any
            size: mapped files count, and the system may take them back.
        checkpoint_seconds: time between two checkpoints.
        progress: show a bar with nodes a second and time left, where there is a terminal.
        run_shards: what builds tables and infers, shard by shard, :func:`jlgcn.scale.in_turn` or
            :func:`jlgcn.scale.over_ray`; None builds tables in memory.

    Returns:
        The network as validation selected it; logits of all nodes, (N, classes), by the whole table
        that it was trained with; and what came of it, with a row for each epoch: ``table``, the
        table that it used, ``first_recall``, its recall when it was built, ``recall``, that of the
        table before it when the epoch began, ``nodes_per_second``.

    Cost: a table, see :meth:`NeighborTable.build`, and the degrees, as often as recall drops;
    batches as :func:`forward_batch`; all nodes once, see :func:`infer`.

    Example:
        >>> import tempfile
        >>> from jlgcn.scale import planted_table
        >>> folder = tempfile.mkdtemp()
        >>> packed, _ = planted_table(folder, 200)
        >>> model, logits, result = fit_batches(
        ...     lambda: JLGCN(8, 16, 3, options="paper"),
        ...     packed,
        ...     Split.of(packed.y, num_train=50, num_val=50),
        ...     BatchConfig(epochs=2, num_neighbors=5),
        ...     folder=folder,
        ...     seed=0,
        ... )
        >>> logits.shape, result.history[0]["table"]
        (torch.Size([200, 3]), 0)
    """
    plan(
        packed.num_nodes,
        packed.num_features,
        num_edges=packed.plan.num_edges,
        available=memory,
        feature_bytes=np.dtype(packed.plan.dtype).itemsize,
    ).check()
    torch.manual_seed(seed)
    model = make_model()
    check_options(model.options)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr, weight_decay=config.weight_decay)
    path = Path(folder)
    run = Run(model, optimizer)
    identity = {"config": _plain(config), "seed": seed, "nodes": packed.num_nodes}
    identity["files"] = [list(file) for file in packed.plan.files]
    run.resume(path / "checkpoints", identity)
    trained = _Training(run, packed, split, config, path, seed, progress, run_shards)
    trained.prepare()
    run_epochs(
        run,
        config.epochs,
        trained.train_epoch,
        trained.validate,
        checkpoints=path / "checkpoints",
        checkpoint_seconds=checkpoint_seconds,
        progress=False,
        label="",
    )
    model.load_state_dict(run.best_state)
    table = NeighborTable(trained.table_folder(int(run.history[run.best.epoch]["table"])))
    with _first_process() as is_first:
        if is_first:
            infer(model, packed, table, path / "inferred", run=trained.run_chunks)
    logits = torch.from_numpy(np.load(path / "inferred" / "logits.npy", mmap_mode="c"))
    is_right = logits[split.test].argmax(-1) == packed.y[split.test]
    return model, logits, run.result(float(is_right.double().mean()))


@contextmanager
def _first_process() -> Iterator[bool]:
    """Say whether this process is the first; what it does, the others wait for."""
    yield process_group()[0] == 0
    if process_group()[1] > 1:
        dist.barrier()


def _plain(config: BatchConfig) -> dict[str, Any]:
    return {**asdict(config), "fanouts": list(config.fanouts)}


class _Training:
    """One run: the network, its table, and how an epoch goes."""

    def __init__(
        self,
        run: Run,
        packed: PackedTable,
        split: Split,
        config: BatchConfig,
        folder: Path,
        seed: int,
        progress: bool,
        run_shards: Mapper | None,
    ) -> None:
        self.run = run
        self.run_shards = run_shards
        self.run_chunks = run_shards or functools.partial(in_turn, progress=progress)
        self.packed = packed
        self.split = split
        self.config = config
        self.folder = folder
        self.seed = seed
        self.progress = progress
        assert isinstance(run.model, JLGCN)
        self.model: JLGCN = run.model
        self.number = int(run.history[-1]["table"]) if run.history else 0
        self.recall = 1.0
        self.first_recall = 1.0
        self.speed = 0.0

    def table_folder(self, number: int) -> Path:
        """Return where a table is."""
        return self.folder / f"table-{number}"

    def prepare(self) -> None:
        """Scale the metrics, and have the table that the run stands at."""
        learner = self.model.learners[0]
        if not self.run.history:
            count = min(_NUM_SEEN_FIRST, self.packed.num_nodes)
            spread = torch.arange(count) * self.packed.num_nodes // count
            with torch.no_grad():
                learner.project(self.packed.rows(spread))
            self._build()
            self.recall = self.first_recall
            return
        self.table = NeighborTable(self.table_folder(self.number))
        self.first_recall = float(self.run.history[-1]["first_recall"])

    def _build(self) -> None:
        """Search candidates by the metric as it is, and sum the degrees of every layer."""
        learner, config = self.model.learners[0], self.config
        started = time.perf_counter()
        folder = self.table_folder(self.number)
        with _first_process() as is_first:
            if is_first:
                NeighborTable.build(
                    self.packed, learner, config.num_neighbors, folder, run=self.run_shards
                )
        self.table = NeighborTable(folder)
        self.first_recall = self.table.recall(self.packed, learner, config.num_neighbors)
        searched = time.perf_counter()
        if not all(bool(learner.is_scaled) for learner in self.model.learners):
            # Metrics of later layers are scaled by what they see first: a batch of random nodes.
            with torch.no_grad():
                batch = next(iter(self._loader(self.split.train, shuffle=True)))
                self._forward(batch)
        with _first_process() as is_first:
            if is_first:
                scratch = self.folder / "degrees"
                infer(
                    self.model,
                    self.packed,
                    self.table,
                    scratch,
                    num_layers=self.model.num_learned,
                    run=self.run_chunks,
                )
        self.table = NeighborTable(folder)
        logger.info(
            "table %d: %d entries, recall %.3f, mean degrees %s; %.0f s to search, %.0f s to sum "
            "degrees",
            self.number,
            self.table.num_entries,
            self.first_recall,
            [round(float(d), 2) for d in self.table.degree.mean(0)],
            searched - started,
            time.perf_counter() - searched,
        )

    def _refresh(self) -> None:
        """Build the table anew if the metric has moved away from it."""
        config = self.config
        self.recall = self.table.recall(self.packed, self.model.learners[0], config.num_neighbors)
        logger.info("epoch %d: recall %.3f of table %d", self.run.epoch, self.recall, self.number)
        if self.recall < config.min_recall * self.first_recall:
            self.number += 1
            self._build()
            with _first_process() as is_first:
                if is_first:
                    self._drop_old_tables()

    def _drop_old_tables(self) -> None:
        """Delete tables that neither the best epoch nor the newest checkpoint names."""
        self.run.snapshot().save(
            self.folder / "checkpoints"
        )  # which names the table before this one
        best = self.run.history[self.run.best.epoch]["table"]
        for number in range(self.number - 1):
            if number != best:
                shutil.rmtree(self.table_folder(number), ignore_errors=True)

    def _loader(self, nodes: Tensor, *, shuffle: bool) -> Iterable[Any]:
        config = self.config
        loader: Iterable[Any] = table_loader(
            self.packed,
            self.table,
            nodes,
            config.fanouts,
            batch_size=config.batch_size,
            shuffle=shuffle,
            num_workers=config.num_workers,
        )
        return loader

    def _forward(self, batch: Any) -> BatchOutput:  # noqa: ANN401
        given = None if self.table.given is None else self.table.given[batch.e_id]
        has_regularizer = self.model.training and self.config.glr_weight > 0
        return forward_batch(self.model, batch, given, with_energy=has_regularizer)

    def train_epoch(self) -> float:
        """Train on every training node once and return the mean loss."""
        if self.run.epoch > 0 and self.config.min_recall > 0:
            self._refresh()
        self.model.train()
        rank, num_processes = process_group()
        if num_processes > 1:
            # Draws differ by process and follow from the epoch: a checkpoint of one is enough.
            torch.manual_seed((self.seed * 1_000_003 + self.run.epoch) * num_processes + rank)
        # Every process takes as many nodes, or those that are done would wait for ever.
        size = len(self.split.train) // num_processes
        nodes = self.split.train[rank * size : (rank + 1) * size]
        losses, seen, started = 0.0, 0, time.perf_counter()
        bar = tqdm(
            total=len(nodes),
            desc=f"epoch {self.run.epoch}",
            unit="node",
            unit_scale=True,
            disable=None if self.progress and rank == 0 else True,
        )
        with bar:
            for batch in self._loader(nodes, shuffle=True):
                loss = self._step(batch)
                losses += loss * batch.batch_size
                seen += batch.batch_size
                bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
                bar.update(batch.batch_size)
        self.speed = num_processes * seen / (time.perf_counter() - started)
        return float(mean_over_processes(torch.tensor(losses / seen, dtype=torch.float64)))

    def _step(self, batch: Any) -> float:  # noqa: ANN401
        out = self._forward(batch)
        loss = cross_entropy(out.logits, batch.y[: batch.batch_size])
        if out.energy is not None:
            # As a sum over all nodes, which those of a batch stand for.
            loss = loss + self.config.glr_weight * self.packed.num_nodes * out.energy.mean()
        self.run.optimizer.zero_grad()
        loss.backward()
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                parameter.grad = mean_over_processes(parameter.grad)
        self.run.optimizer.step()
        return float(loss.detach())

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Measure the epoch on validation nodes, with neighbours drawn as in training."""
        self.model.eval()
        loss, correct = 0.0, 0
        for batch in self._loader(self.split.val, shuffle=False):
            logits = self._forward(batch).logits
            y = batch.y[: batch.batch_size]
            loss += float(cross_entropy(logits, y, reduction="sum"))
            correct += int((logits.argmax(-1) == y).sum())
        count = len(self.split.val)
        row = mean_over_processes(
            torch.tensor([correct / count, loss / count], dtype=torch.float64)
        )
        return {
            "val_accuracy": float(row[0]),
            "val_loss": float(row[1]),
            "recall": self.recall,
            "first_recall": self.first_recall,
            "table": self.number,
            "nodes_per_second": self.speed,
        }
