"""Tables over Ray: two raylets, one of which is killed, against the same shards in turn.

    python benchmarks/scale_ray.py --rows 1000000 --out results/scale
    python benchmarks/scale_ray.py --driver 100000 1000000 3000000 --out results/scale
    python benchmarks/scale_ray.py --train 100000 --out results/scale

Rows have 64 planted features, shards 131,072 rows. The object stores are smaller than the data.
Both raylets are on this machine, with one processor each.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from measure import in_own_process, status_bytes, table, write_json

from jlgcn._optional import require
from jlgcn.nn import JLGCN, GraphLearner
from jlgcn.scale import (
    BatchConfig,
    Mapper,
    NeighborTable,
    PackedTable,
    Split,
    fit_batches,
    fit_over_ray,
    in_turn,
    over_ray,
    pack,
    write_planted,
)
from jlgcn.train.distributed import joined_processes, process_group

RANK, NUM_NEIGHBORS, SHARD_ROWS = 8, 16, 1 << 17
STORE_BYTES = 80 << 20  # the least that Ray takes


def prepare(work: Path, num_rows: int, run: Mapper) -> PackedTable:
    """Write and pack planted rows."""
    folder = work / str(num_rows)
    if not (folder / "packed" / "pack.json").exists():
        write_planted(folder / "parquet", num_rows)
        pack(folder / "parquet", folder / "packed", label="kind", rows=SHARD_ROWS, run=run)
        shutil.rmtree(folder / "parquet")
    return PackedTable(folder / "packed")


def learner_of(packed: PackedTable) -> GraphLearner:
    """Return a metric, the same every time."""
    torch.manual_seed(0)
    learner = GraphLearner(packed.num_features, RANK)
    learner.project(packed.rows(torch.arange(5_000)))
    return learner


def build(packed: PackedTable, run: Mapper | None, name: str) -> dict[str, Any]:
    """Build a table and return its time, hash and recall."""
    start = time.perf_counter()
    found = NeighborTable.build(
        packed,
        learner_of(packed),
        NUM_NEIGHBORS,
        packed.folder.parent / name,
        run=run,
        shard_rows=SHARD_ROWS,
    )
    seconds = time.perf_counter() - start
    digest = hashlib.sha256()
    for file in ("start", "neighbor"):
        digest.update((found.folder / f"{file}.npy").read_bytes())
    recall = found.recall(packed, learner_of(packed), NUM_NEIGHBORS)
    return {"seconds": seconds, "sha256": digest.hexdigest(), "recall": recall}


@contextmanager
def two_raylets() -> Iterator[Any]:
    """Start a cluster of two raylets; yield the one that may be killed."""
    ray = require("ray", "ray", "this benchmark")
    clusters = require("ray.cluster_utils", "ray", "this benchmark")
    arguments = {"num_cpus": 1, "object_store_memory": STORE_BYTES}
    cluster = clusters.Cluster(initialize_head=True, head_node_args=arguments)
    second = cluster.add_node(**arguments)
    ray.init(address=cluster.address, log_to_driver=False)
    try:
        yield second
    finally:
        ray.shutdown()
        cluster.shutdown()


def kill_when(folder: Path, node: Any, killed: list[float]) -> None:  # noqa: ANN401
    """Kill a raylet and its workers as soon as two regions of the table "killed" have answered."""
    start = time.perf_counter()
    while len(list(folder.glob(".killed.*.tmp/shards/answers-*.npy"))) < 2:
        time.sleep(0.02)
    raylet = node.all_processes["raylet"][0].process.pid
    os.kill(raylet, signal.SIGKILL)
    killed.append(time.perf_counter() - start)


def measure_cluster(num_rows: int, work: Path) -> dict[str, Any]:
    """Compare shards in turn, over two raylets, and over two of which one is killed."""
    with two_raylets() as second:
        packed = prepare(work, num_rows, over_ray)
        found: dict[str, Any] = {"at once": build(packed, None, "at-once")}
        found["in turn"] = build(packed, in_turn, "in-turn")
        found["over Ray"] = build(packed, over_ray, "over-ray")
        killed: list[float] = []
        watch = threading.Thread(target=kill_when, args=(packed.folder.parent, second, killed))
        watch.start()
        found["over Ray, one raylet killed"] = build(packed, over_ray, "killed")
        watch.join()
        found["over Ray, one raylet killed"]["killed after seconds"] = killed[0]
    found["bytes of rows"] = packed.num_nodes * packed.num_features * 4
    found["bytes of object stores"] = 2 * STORE_BYTES
    return found


def driver_bytes(num_rows: int, work: Path) -> int:
    """Return the peak memory of the process that asks for a table over Ray."""
    with two_raylets():
        packed = prepare(work, num_rows, over_ray)
        learner = learner_of(packed)
        Path("/proc/self/clear_refs").write_text("5")  # what it took to write the rows is no part
        NeighborTable.build(
            packed,
            learner,
            NUM_NEIGHBORS,
            packed.folder.parent / "driver",
            run=over_ray,
            shard_rows=SHARD_ROWS,
        )
        return status_bytes("VmHWM")


CONFIG = BatchConfig(epochs=3, num_neighbors=NUM_NEIGHBORS)


def make_model() -> JLGCN:
    """Return the network that is trained."""
    return JLGCN(64, 32, 10, rank=RANK, options="paper")


def split_of(packed: PackedTable) -> Split:
    """Return which nodes are trained on."""
    return Split.of(packed.y, num_train=10_000, num_val=1_000)


def measure_training(num_rows: int, work: Path) -> dict[str, Any]:
    """Train in two processes of torchrun and in two of Ray."""
    packed = prepare(work, num_rows, in_turn)
    for name in ("torchrun", "ray"):
        shutil.rmtree(work / name, ignore_errors=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", __file__]
    started = time.perf_counter()
    done = subprocess.run(  # noqa: S603
        [*command, "--worker", str(num_rows), "--work", str(work)],
        check=True,
        capture_output=True,
        text=True,
    )
    (digest,) = {line[5:] for line in done.stdout.splitlines() if line.startswith("HASH ")}
    between = time.perf_counter()
    with two_raylets():
        _, _, result = fit_over_ray(
            make_model,
            packed,
            split_of(packed),
            CONFIG,
            folder=work / "ray",
            seed=0,
            num_processes=2,
        )
        ended = time.perf_counter()
    return {
        "torchrun": {"sha256": digest, "seconds": between - started},
        "Ray": {"sha256": result.parameter_sha256, "seconds": ended - between},
        "test_accuracy": result.test_accuracy,
    }


def train_worker(num_rows: int, work: Path) -> None:
    """Be one of torchrun's processes."""
    torch.set_num_threads(1)
    packed = PackedTable(work / str(num_rows) / "packed")
    with joined_processes():
        _, _, result = fit_batches(
            make_model, packed, split_of(packed), CONFIG, folder=work / "torchrun", seed=0
        )
        if process_group()[0] == 0:
            sys.stdout.write(f"HASH {result.parameter_sha256}\n")


def main() -> None:
    """Measure what is asked for, write and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, help="build tables of so many rows in all ways")
    parser.add_argument("--driver", type=int, nargs="*", default=[], help="memory of the driver")
    parser.add_argument("--train", type=int, help="train on so many rows in two processes")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, default=Path("scale-ray"), help="folder for rows")
    parser.add_argument("--out", type=Path, default=Path("results/scale"))
    args = parser.parse_args()
    work = args.work.absolute()
    if args.worker:
        train_worker(args.worker, work)
        return
    settings: dict[str, object] = {
        "rank": RANK,
        "neighbors": NUM_NEIGHBORS,
        "shard rows": SHARD_ROWS,
    }
    if args.rows:
        found = measure_cluster(args.rows, work)
        write_json(args.out / "ray.json", settings | {"rows": args.rows}, found)
        ways = {name: way for name, way in found.items() if isinstance(way, dict)}
        rows = [
            [n, f"{w['seconds']:.0f}", w["sha256"][:12], f"{w['recall']:.4f}"]
            for n, w in ways.items()
        ]
        print(table(["", "seconds", "hash", "recall"], rows))
    if args.driver:
        peaks = {
            str(rows): in_own_process(driver_bytes, rows, work, num_threads=1)
            for rows in args.driver
        }
        write_json(args.out / "ray_driver.json", settings, {"peak bytes": peaks})
        print(table(["rows", "peak MiB"], [[n, f"{b / 2**20:.0f}"] for n, b in peaks.items()]))
    if args.train:
        found = measure_training(args.train, work)
        write_json(args.out / "ray_training.json", settings | {"rows": args.train}, found)
        print(found)


if __name__ == "__main__":
    main()
