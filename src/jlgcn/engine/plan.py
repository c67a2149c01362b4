"""What a fit of the closed form takes, in memory and by an engine, before it is run."""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from jlgcn._files import replacing
from jlgcn._optional import require
from jlgcn._schema import real, record, whole
from jlgcn.closed_form.fit import bytes_of_fit, fit_closed_form
from jlgcn.closed_form.nystroem import MAX_LANDMARKS
from jlgcn.closed_form.options import ClosedFormOptions
from jlgcn.closed_form.shard_bytes import (
    EDGES_BYTES,
    PROCESS_BYTES,
    blocks_of_columns,
    diffusion_bytes,
    edge_bytes,
    index_bytes,
    shard_bytes,
)
from jlgcn.engine.fit import fit_shards, read_bytes
from jlgcn.engine.local import LocalExecutor
from jlgcn.engine.table import rows_of_shard
from jlgcn.engine.tasks import Task
from jlgcn.graphs.diffusion import chebyshev_steps
from jlgcn.ops.cells import (
    MAX_FLAT_CELLS,
    NUM_PROBES,
    number_of_cells,
    training_distances,
)

#: Stages by what their work is in proportion to, see :meth:`Size.work`. The rest is the driver's.
STAGES = {
    "read": ("read_shard",),
    "project": ("scale_features", "gram_product", "gram_of_image", "project"),
    "cells": ("train_index", "assign_cells", "order_rows", "renumber", "merge_index"),
    "search": ("search",),
    "rank": ("rank", "project_metric", "discount_given"),
    "symmetrize": ("symmetrize", "given_rows", "renumber_edges"),
    "diffuse": ("diffuse", "diffuse_some"),
    "score": (
        "class_moments",
        "score",
        "write_predictions",
        "block_terms",
        "block_means",
        "pick",
        "pick_blocks",
        "pick_diffused",
    ),
}

#: CPU seconds for 10⁹ units of work of each kind, "driver" seconds of a fit, and "memory" the time
#: of a fit in memory in units of that by an engine: measured on one core of 2.5 GHz.
DEFAULTS = {
    "read": 110.0,
    "project": 0.501,
    "cells": 0.0749,
    "search": 0.446,
    "rank": 8.67,
    "symmetrize": 333.0,
    "diffuse": 0.706,
    "score": 0.337,
    "driver": 1.97,
    "memory": 0.896,
}
_CHECK = record({"schema": whole(1, 1), "constants": record({k: real(0, 1e12) for k in DEFAULTS})})

# Entries of a symmetric learned graph for each directed edge to a neighbour, as measured.
_SYMMETRIC_SHARE = 1.6
_DEFAULT_NEIGHBORS, _DEFAULT_RESTART, _SMALLEST_RESTART = 20, 0.05, 0.02
_COARSE = 0.05

# A row's nearest cells are chosen in the time of so many distances to centroids.
_CHOOSING = 2000

# Rows and columns of a fit that calibrates: its vectors leave the processor's first caches.
_CALIBRATION = (60_000, 64)


@dataclass(frozen=True, kw_only=True)
class Size:
    """The size of a problem, as far as time and memory depend on it.

    Attributes:
        num_rows: rows, N.
        num_features: columns of features, F; of words those that a row has on average.
        num_classes: classes, C.
        num_edges: known edges, E.
        options: hyperparameters.
    """

    num_rows: int
    num_features: int
    num_classes: int = 10
    num_edges: int = 0
    options: ClosedFormOptions = field(default_factory=ClosedFormOptions)

    @property
    def num_components(self) -> int:
        """Columns that are diffused, D."""
        return min(self.options.n_components, self.num_features, self.num_rows)

    @property
    def num_neighbors(self) -> int:
        """Neighbours of a row, k."""
        return min(self.options.n_neighbors or _DEFAULT_NEIGHBORS, self.num_rows - 1)

    @property
    def num_entries(self) -> int:
        """Entries of the graph that features are diffused over."""
        learned = int(_SYMMETRIC_SHARE * self.num_neighbors * self.num_rows)
        return learned + 2 * self.num_edges + self.num_rows

    @property
    def num_graphs(self) -> int:
        """Learned graphs of a fit: some are compared, one is made for each layer."""
        compared = 3 if self.options.n_neighbors is None else 1
        return compared + self._num_trials + self.options.n_layers - 1

    @property
    def _num_trials(self) -> int:
        if self.options.n_layers == 1:
            return 0
        return 2 * (2 if self.options.metric_weight is None else 1)  # splits and weights

    @property
    def num_products(self) -> int:
        """Products of the graph with a column, in all diffusions."""
        options, restart = self.options, self.options.restart
        usual = _DEFAULT_RESTART if restart is None else restart
        least = _SMALLEST_RESTART if restart is None else restart
        compared = 3 if options.n_neighbors is None else 1
        if self.num_edges:
            compared += 5 * (options.given_decay is None) + 3 * (options.learned_degree is None)
        if compared == 1 and restart is not None:
            compared = 0
        selection = compared * min(64, self.num_components) * chebyshev_steps(least, _COARSE)
        trials = self._num_trials * chebyshev_steps(usual, _COARSE)
        layers = options.n_layers * chebyshev_steps(usual, options.tolerance)
        return selection + (trials + layers) * self.num_components

    def work(self) -> dict[str, float]:
        """Return units of work of each kind."""
        n, f, d, c = self.num_rows, self.num_features, self.num_components, self.num_classes
        k, candidates = self.num_neighbors, min(self.options.n_candidates, n - 1)
        cells = number_of_cells(n)
        # Above, HNSW finds a cell in about the time of so many.
        looked = min(cells, MAX_FLAT_CELLS)
        trained = training_distances(cells)
        gram = f * f if f < 1024 else 20 * f * d
        return {
            "read": n * f,
            "project": n * (f * d + gram),
            "cells": (n * (looked + _CHOOSING) + trained) * f,
            "search": n * NUM_PROBES * max(1, n // cells) * f,
            # Edges are sorted, candidates compared under a metric of rank C.
            "rank": self.num_graphs * n * (33 * k + candidates * (10 + c)),
            "symmetrize": self.num_graphs * n * k,
            "diffuse": self.num_products * self.num_entries,
            "score": n * d * (MAX_LANDMARKS + self.options.n_layers * c),
        }

    def seconds(self, constants: Mapping[str, float]) -> float:
        """Return CPU seconds of a fit by an engine."""
        units = self.work()
        return constants["driver"] + sum(constants[k] * units[k] for k in units) / 1e9

    def task_bytes(self) -> int:
        """Return the memory of the largest task of an engine."""
        rows = min(self.num_rows, rows_of_shard(self.num_features))
        diffusion = diffusion_bytes(
            self.num_rows, blocks_of_columns(self.num_rows, self.num_components)
        )
        return max(
            read_bytes(rows, self.num_features),
            shard_bytes(rows, self.num_features, self.options.n_candidates),
            index_bytes(self.num_rows, self.num_features),
            edge_bytes(rows, self.options.n_candidates, self.num_neighbors),
            PROCESS_BYTES + 8 * rows * (MAX_LANDMARKS + self.num_components),
            diffusion,
            EDGES_BYTES if self.num_edges else 0,
        )

    def traffic(self) -> dict[str, tuple[int, int, int]]:
        """Return bytes by kind of stage: written, read once, and read by every machine.

        A file of a shard is read by the machine that goes on with it; the index, edges, features
        that are diffused, and what they became, by every machine. Each keeps what it has read.
        """
        n, f, d, c = self.num_rows, self.num_features, self.num_components, self.num_classes
        k, graphs, layers = self.num_neighbors, self.num_graphs, self.options.n_layers
        x, components, scores = 4 * n * f, 4 * n * d, 4 * n * (c + d + 1)
        candidates = 8 * n * min(self.options.n_candidates, n - 1)
        directed, learned = self._directed_bytes, 8 * n + int(8 * _SYMMETRIC_SHARE * n * k)
        near = 4 * n * min(NUM_PROBES, number_of_cells(n))
        by_metric = 4 * n * c * (self._num_trials + layers - 1)
        given = 8 * n * bool(self.num_edges) + 24 * self.num_edges  # with distances
        return {
            "read": (x, x, 0),
            "project": (x + components, 2 * x, 0),
            "cells": (
                2 * x + components + 2 * near + 24 * n,
                x + 8 * n,
                x + components + near + 12 * n,
            ),
            "search": (candidates, near, x + 8 * n),
            "rank": (graphs * directed + by_metric, candidates, by_metric),
            "symmetrize": (graphs * learned + given, 0, graphs * directed + given),
            "diffuse": (layers * components, 0, graphs * learned + given + components),
            "score": (scores, scores, layers * components),
        }

    def disk_bytes(self) -> int:
        """Return the bytes of all files of a fit; of directed edges those of one graph."""
        written = sum(put for put, *_ in self.traffic().values())
        return written - (self.num_graphs - 1) * self._directed_bytes

    @property
    def _directed_bytes(self) -> int:
        return 16 * self.num_rows * self.num_neighbors


class Way(NamedTuple):
    """A way to fit, and what it takes.

    Attributes:
        name: "memory", "local" or "ray".
        num_bytes: memory of the processes of a machine; of Ray, of one task.
        cpu_seconds: CPU seconds.
        seconds: time, with all cores busy.
        num_machines: machines.
        disk_bytes: files of the fit on a disk, or in the object store.
        moved_bytes: between machines and the object store.
        fits: whether the memory is there.
        num_workers: processes of a machine.
    """

    name: str
    num_bytes: int
    cpu_seconds: float
    seconds: float
    num_machines: int
    disk_bytes: int
    moved_bytes: int
    fits: bool
    num_workers: int


def ways_to_fit(
    size: Size, constants: Mapping[str, float], *, memory: int, cores: int, hours: float
) -> list[Way]:
    """Return what a fit takes in memory, by local processes and on Ray.

    Args:
        size: size of the problem.
        constants: what :func:`calibrate` measured, or :data:`DEFAULTS`.
        memory: bytes of memory of a machine.
        cores: its cores.
        hours: time after which a fit on several machines should be done.
    """
    by_engine, largest = size.seconds(constants), size.task_bytes()
    in_memory = by_engine * constants["memory"]
    needed = PROCESS_BYTES + bytes_of_fit(size.num_rows, size.num_features, size.options)
    needed += 4 * size.num_rows * size.num_features
    workers = max(1, min(cores, memory // largest))
    machines = max(1, math.ceil(by_engine / (workers * 3600 * hours)))
    traffic = size.traffic().values()
    written = size.disk_bytes()
    moved = sum(put + once + machines * each for put, once, each in traffic)
    fits = largest <= memory
    alone, many = by_engine / workers, by_engine / workers / machines
    return [
        Way("memory", needed, in_memory, in_memory, 1, 0, 0, needed <= memory, 1),
        Way("local", workers * largest, by_engine, alone, 1, written, 0, fits, workers),
        Way("ray", largest, by_engine, many, machines, written, moved, fits, workers),
    ]


def advise(ways: Sequence[Way]) -> Way:
    """Return the first way whose memory is there: in memory, else local unless it takes a day.

    Raises:
        ValueError: none fits.
    """
    fitting = [way for way in ways if way.fits]
    if not fitting:
        least = min(way.num_bytes for way in ways)
        raise ValueError(
            f"no way to fit has enough memory: the smallest takes {least / 2**30:,.1f} GiB; take a "
            "machine with more (--memory), or a sample of the rows (--rows)"
        )
    short = [way for way in fitting if way.seconds <= 24 * 3600]
    return (short or fitting[-1:])[0]


class _Timed:
    """Runs tasks in this process, and adds up their CPU seconds by stage."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._executor = LocalExecutor(1)

    def execute(self, uris: tuple[str, ...], tasks: Sequence[Task], num_bytes: int) -> None:
        started = time.process_time()
        self._executor.execute(uris, tasks, num_bytes)
        self.seconds[tasks[0].stage.__name__] += time.process_time() - started

    def close(self) -> None:
        self._executor.close()


def calibrate(num_rows: int = _CALIBRATION[0]) -> dict[str, float]:
    """Fit planted rows by the local engine and in memory, and return constants of this machine.

    Args:
        num_rows (int, default 60,000): rows of the fit.

    Cost: about a minute of one core.
    """
    x, few = _planted(num_rows)
    options = ClosedFormOptions(n_candidates=20, n_neighbors=20)
    size = Size(num_rows=num_rows, num_features=x.shape[1], options=options)
    executor = _Timed()
    with tempfile.TemporaryDirectory() as folder:
        _write(Path(folder) / "rows.parquet", x, few)
        started = time.process_time()
        fit_shards(
            f"{folder}/rows.parquet",
            label="kind",
            out=f"{folder}/model",
            executor=executor,
            options=options,
            shard_rows=-(-num_rows // 4),
        )
        total = time.process_time() - started
    units, found = size.work(), dict[str, float]()
    for kind, stages in STAGES.items():
        found[kind] = 1e9 * sum(executor.seconds[each] for each in stages) / units[kind]
    found["driver"] = total - sum(executor.seconds[s] for part in STAGES.values() for s in part)
    tensors = torch.from_numpy(x), torch.from_numpy(few)
    started = time.process_time()
    fit_closed_form(*tensors, train=(tensors[1] >= 0).nonzero().flatten(), options=options)
    found["memory"] = (time.process_time() - started) / total
    return found


def _planted(num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw rows of ten classes, two clusters each, and a thousand labels."""
    random, width = np.random.default_rng(0), _CALIBRATION[1]
    centers = np.zeros((20, width), dtype=np.float32)
    centers[:, :16] = 1.25 * random.standard_normal((20, 16))
    cluster = random.integers(0, len(centers), num_rows)
    x = centers[cluster] + random.standard_normal((num_rows, width), dtype=np.float32)
    few = np.where(np.arange(num_rows) < 1000, cluster % 10, -1)
    return x, few


def _write(path: Path, x: np.ndarray, few: np.ndarray) -> None:
    arrow = require("pyarrow", "scale", "calibration")
    parquet = require("pyarrow.parquet", "scale", "calibration")
    kinds = arrow.array([None if label < 0 else str(label) for label in few.tolist()])
    vectors = arrow.FixedSizeListArray.from_arrays(arrow.array(x.ravel()), x.shape[1])
    with replacing(path) as file:
        parquet.write_table(arrow.table({"kind": kinds, "vector": vectors}), file)


def save_constants(path: Path, constants: Mapping[str, float]) -> None:
    """Write constants to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"schema": 1, "constants": dict(constants)}
    with replacing(path) as file:
        file.write(json.dumps(document, indent=2).encode())


def load_constants(path: Path) -> dict[str, float]:
    """Return the constants in a file."""
    try:
        document = json.loads(path.read_bytes())
    except ValueError:
        raise ValueError(f"{path} holds no JSON; run jlgcn plan --calibrate again") from None
    _CHECK(document, "")
    constants: dict[str, float] = document["constants"]
    return constants
