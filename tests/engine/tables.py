"""Small tables of known classes, as arrays and as Parquet files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jlgcn.closed_form import ClosedFormOptions

NUM_ROWS, NUM_COLUMNS, NUM_CLASSES = 900, 6, 3

#: Few steps; every kind of stage runs.
OPTIONS = ClosedFormOptions(
    n_layers=2,
    n_neighbors=8,
    n_candidates=20,
    restart=0.1,
    given_decay=0.25,
    learned_degree=1.0,
    metric_weight=1.0,
    tolerance=1e-3,
)


@dataclass(frozen=True, eq=False)
class Items:
    """Rows, their classes, those that are known (-1 elsewhere), edges and names."""

    x: np.ndarray
    y: np.ndarray
    few: np.ndarray
    edges: np.ndarray
    ids: np.ndarray


def draw(num_rows: int = NUM_ROWS, seed: int = 0) -> Items:
    """Draw two clusters for each class, and edges that mostly stay within a class."""
    random = np.random.default_rng(seed)
    centers = 1.5 * np.random.default_rng(1).normal(size=(2 * NUM_CLASSES, NUM_COLUMNS))
    cluster = random.integers(0, len(centers), num_rows)
    x = (centers[cluster] + random.normal(size=(num_rows, NUM_COLUMNS))).astype(np.float32)
    y = cluster % NUM_CLASSES
    few = np.full(num_rows, -1)
    known = random.choice(num_rows, 40, replace=False)
    few[known] = y[known]
    edges = random.integers(0, num_rows, (2, 3 * num_rows))
    edges = edges[:, edges[0] != edges[1]]
    edges = edges[:, (y[edges[0]] == y[edges[1]]) | (random.random(edges.shape[1]) < 0.2)]
    ids = np.array([f"item {7 * row}" for row in range(num_rows)])
    return Items(x, y, few, np.unique(edges, axis=1), ids)


def write(items: Items, folder: Path) -> None:
    """Write items to two files of several row groups, edges to a third, by ids."""
    columns: dict[str, Any] = {
        "id": items.ids,
        "kind": [None if label < 0 else f"class {label}" for label in items.few],
    }
    columns |= {f"f{k}": items.x[:, k] for k in range(items.x.shape[1])}
    table = pa.table(columns)
    (folder / "items").mkdir(parents=True)
    half = len(items.y) // 2
    pq.write_table(table[:half], folder / "items" / "a.parquet", row_group_size=100)
    pq.write_table(table[half:], folder / "items" / "b.parquet")
    ends = [items.ids[side] for side in items.edges]
    pq.write_table(pa.table(ends, names=["from", "to"]), folder / "edges.parquet")


def read(folder: str, files: Any = None) -> pa.Table:  # noqa: ANN401
    """Return all predictions in a folder, in the order of the rows."""
    table: pa.Table = pq.read_table(folder, filesystem=files)
    return table
