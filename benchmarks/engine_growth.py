"""The closed form over shards as rows grow: time, memory and accuracy on planted rows.

    python -m benchmarks.engine_growth --rows 100000 1000000 3000000 --work /tmp/growth \
        --out results/benchmarks/engine_growth.jsonl

64 columns: 20 clusters around centres in 16 of them, two to a class, noise in all; the first 1,000
rows are labelled at every size, and 20 neighbours are searched. A line for each size, which is not
measured again; a size that was interrupted goes on from its files in the work folder. Memory is
anonymous memory of all processes, which leaves out the page cache of mapped files.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measure import Peak
from jlgcn.closed_form import ClosedFormOptions
from jlgcn.engine import ShardedModel
from jlgcn.training.environment import versions

NUM_LABELS, NUM_COLUMNS, NUM_INFORMATIVE, NUM_CLUSTERS, NUM_CLASSES = 1000, 64, 16, 20, 10
_GROUP_ROWS = 2**17


def classes_of(group: int, num_rows: int) -> tuple[np.ndarray, np.random.Generator]:
    """Return the cluster of every row of a group, and the generator of its noise."""
    random = np.random.default_rng([1, group])
    return random.integers(0, NUM_CLUSTERS, num_rows), random


def write(path: Path, num_rows: int) -> None:
    """Write planted rows, group by group."""
    centers = np.zeros((NUM_CLUSTERS, NUM_COLUMNS), dtype=np.float32)
    centers[:, :NUM_INFORMATIVE] = 1.25 * np.random.default_rng(0).normal(
        size=(NUM_CLUSTERS, NUM_INFORMATIVE)
    )
    schema = pa.schema([("kind", pa.string()), ("vector", pa.list_(pa.float32(), NUM_COLUMNS))])
    with pq.ParquetWriter(path, schema) as writer:
        for group, first in enumerate(range(0, num_rows, _GROUP_ROWS)):
            size = min(_GROUP_ROWS, num_rows - first)
            cluster, random = classes_of(group, _GROUP_ROWS)
            noise = random.standard_normal((_GROUP_ROWS, NUM_COLUMNS), dtype=np.float32)
            x = (centers[cluster] + noise)[:size]
            labels = [
                str(c % NUM_CLASSES) if first + row < NUM_LABELS else None
                for row, c in enumerate(cluster[:size].tolist())
            ]
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), NUM_COLUMNS)
            writer.write_table(pa.table([pa.array(labels), vectors], schema=schema))


def accuracy(model: Path, num_rows: int) -> float:
    """Return the accuracy on rows without a label."""
    names = pq.read_table(model / "predictions", columns=["kind"]).column("kind").to_pylist()
    found = np.array([int(name) for name in names])
    expected = [classes_of(group, _GROUP_ROWS)[0] for group in range(-(-num_rows // _GROUP_ROWS))]
    y = np.concatenate(expected)[:num_rows] % NUM_CLASSES
    return float((found == y)[NUM_LABELS:].mean())


def main() -> None:
    """Parse the command line, measure, and append a line for each size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", required=True)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    for num_rows in args.rows:
        lines = args.out.read_text().splitlines() if args.out.exists() else []
        if any(json.loads(line)["rows"] == num_rows for line in lines):
            continue
        folder = args.work / str(num_rows)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "items.parquet").exists():
            write(folder / "new.parquet", num_rows)
            (folder / "new.parquet").rename(folder / "items.parquet")
        started = time.perf_counter()
        with Peak() as peak:
            ShardedModel.fit(
                str(folder / "items.parquet"),
                label="kind",
                out=str(folder / "model"),
                options=ClosedFormOptions(n_candidates=20, n_neighbors=20),
                num_workers=args.workers,
            )
        line = {
            "rows": num_rows,
            "workers": args.workers,
            "seconds": round(time.perf_counter() - started, 1),
            "cpu_seconds": round(peak.cpu_seconds, 1),
            "peak_anonymous_bytes": peak.num_bytes,
            "accuracy": accuracy(folder / "model", num_rows),
            "environment": versions(),
        }
        print(json.dumps(line), flush=True)
        with args.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
