"""Training steps on more rows than memory holds: what the path from disk to a step can do.

    python benchmarks/scale_out_of_core.py --rows 100000000 --work /data/scratch --out results/scale

Rows are planted, written as Parquet and packed in float16. Their neighbours are not searched, which
would take hours: each row is joined with those a fixed, random distance of numbers away, in both
directions, so that a batch reads all over the disk and no cache can guess where. Degrees are ones.
Accuracy means nothing here; memory, reads and batches a second do.

Steps run in a control group (of Linux, and only root may make one) that may hold fewer bytes than
there are on disk, mapped pages and page cache included; all caches are dropped first.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from measure import in_own_process, status_bytes, write_json
from scale import BATCH_SIZE, HIDDEN, RANK, make_model
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from jlgcn.scale import NeighborTable, PackedTable, forward_batch, pack, table_loader, write_planted
from jlgcn.scale.mapping import new_array, write_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

NUM_NEIGHBORS = 16
FANOUTS = (10, 10)
_CHUNK_ROWS = 1 << 20
_GIB = 2**30


def prepare(num_rows: int, num_features: int, folder: Path) -> None:
    """Write packed rows and a table of neighbours, unless they are there."""
    if not (folder / "packed" / "done").exists():
        write_planted(folder / "parquet", num_rows, num_features=num_features)
        pack(folder / "parquet", folder / "packed", label="kind", dtype="float16", progress=True)
        shutil.rmtree(folder / "parquet")
        (folder / "packed" / "done").touch()
    table = folder / "table"
    if not (table / "done").exists():
        table.mkdir(exist_ok=True)
        write_table(num_rows, table)
        (table / "done").touch()


def write_table(num_rows: int, folder: Path) -> None:
    """Join every row with those a few random distances before and behind it, in a ring."""
    half = np.random.default_rng(0).integers(1, num_rows // 2, NUM_NEIGHBORS // 2)
    distance = np.concatenate([half, num_rows - half])
    new_array(folder / "neighbor.npy", (num_rows * NUM_NEIGHBORS,), np.int32)
    new_array(folder / "start.npy", (num_rows + 1,), np.int64)
    new_array(folder / "degree.npy", (num_rows, 2), np.float32)
    for first in tqdm(range(0, num_rows, _CHUNK_ROWS), desc="table", unit="chunk", disable=None):
        row = np.arange(first, min(first + _CHUNK_ROWS, num_rows))
        near = (row[:, None] + distance) % num_rows
        near.sort(1)
        write_rows(folder / "neighbor.npy", first * NUM_NEIGHBORS, near.reshape(-1))
        write_rows(folder / "start.npy", first, row * NUM_NEIGHBORS)
        write_rows(folder / "degree.npy", first, np.ones((len(row), 2)))
    write_rows(folder / "start.npy", num_rows, np.array([num_rows * NUM_NEIGHBORS]))


@contextmanager
def capped(num_bytes: int) -> Iterator[Path]:
    """Make a control group that may hold so many bytes, page cache included."""
    first = Path("/sys/fs/cgroup/memory")  # where Linux keeps those of the first version
    root, limit = (first, "memory.limit_in_bytes")
    if not first.exists():
        root, limit = (Path("/sys/fs/cgroup"), "memory.max")
    group = root / f"jlgcn-{os.getpid()}"
    group.mkdir()
    try:
        (group / limit).write_text(str(num_bytes))
        yield group
    finally:
        group.rmdir()


def read_bytes() -> int:
    """Return how much this process, and those it has waited for, have read from the disk."""
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return 512 * sum(resource.getrusage(who).ru_inblock for who in whose)


def measure(folder: Path, group: Path, num_batches: int, num_workers: int) -> dict[str, object]:
    """Take steps within the group, on nodes drawn from all rows."""
    (group / "cgroup.procs").write_text(str(os.getpid()))
    packed, table = PackedTable(folder / "packed"), NeighborTable(folder / "table")
    torch.manual_seed(0)
    model = make_model(packed)
    optimizer = torch.optim.Adam(model.parameters())
    nodes = torch.randint(0, packed.num_nodes, (num_batches * BATCH_SIZE,))
    loader = table_loader(
        packed, table, nodes, FANOUTS, batch_size=BATCH_SIZE, num_workers=num_workers
    )
    seconds: list[float] = []
    rows = 0
    before, started = read_bytes(), time.perf_counter()
    for batch in tqdm(loader, unit="batch", disable=None):
        loss = cross_entropy(forward_batch(model, batch).logits, batch.y[: batch.batch_size])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rows += batch.num_nodes
        now = time.perf_counter()
        seconds.append(now - started)
        started = now
    most = group / "memory.max_usage_in_bytes"
    if not most.exists():
        most = group / "memory.peak"
    return {
        "rows": packed.num_nodes,
        "batches": len(seconds),
        "rows_of_a_batch": rows / len(seconds),
        "batches_per_second": len(seconds) / sum(seconds),
        "first_hundred_per_second": 100 / sum(seconds[:100]),
        "last_hundred_per_second": 100 / sum(seconds[-100:]),
        "bytes_read_of_a_batch": (read_bytes() - before) / len(seconds),
        "peak_resident_bytes": status_bytes("VmHWM"),
        "own_bytes": status_bytes("RssAnon"),
        "most_bytes_of_the_group": int(most.read_text()),
        "loss": float(loss.detach()),
    }


def main() -> None:
    """Prepare what is missing, take steps in a control group, and write what they took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--batches", type=int, default=1000)
    parser.add_argument("--cap", type=float, default=5.0, help="GiB that the steps may hold")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--workers", type=int, default=4, help="processes that read ahead; each waits for the disk"
    )
    parser.add_argument("--work", type=Path, required=True, help="a folder for large files")
    parser.add_argument("--out", type=Path, default=Path("results/scale"))
    args = parser.parse_args()
    folder = args.work / f"out-of-core-{args.rows}"
    folder.mkdir(parents=True, exist_ok=True)
    prepare(args.rows, args.features, folder)
    on_disk = sum(path.stat().st_size for path in folder.rglob("*.npy"))
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")
    with capped(int(args.cap * _GIB)) as group:
        found = in_own_process(
            measure, folder, group, args.batches, args.workers, num_threads=args.threads
        )
    settings = {"features": args.features, "neighbors": NUM_NEIGHBORS, "fanouts": FANOUTS}
    settings |= {"batch_size": BATCH_SIZE, "rank": RANK, "hidden": HIDDEN, "threads": args.threads}
    settings |= {"cap_bytes": int(args.cap * _GIB), "dtype": "float16"}
    settings |= {"workers": args.workers}
    found |= {"bytes_on_disk": on_disk}
    write_json(args.out / f"out_of_core-{args.rows}.json", settings, found)
    for name, value in found.items():
        print(f"{name}: {value:,}")


if __name__ == "__main__":
    main()
