"""One training step with exact graphs: how time and memory grow, and what processes share.

    python -m benchmarks.scale_exact --nodes 2000 5000 10000 20000 50000 --out results/scale
    python -m benchmarks.scale_exact --backend knn --nodes 20000 50000 100000 --out results/scale
    python -m benchmarks.scale_exact --sharded --nodes 10000 --out results/scale

Sharded over processes, gradients are compared with those of one process, in float32 and float64,
and the bytes that the loopback device carried with a formula: every gather of N rows brings each of
P processes N (1 - 1/P) rows; gradients take twice that, because gloo sums by an all-reduce.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.measure import growth_exponent, in_own_process, status_bytes, table, write_json
from jlgcn.distributed import ShardedSparseGraph, distribute
from jlgcn.distributed.sharded import Shards
from jlgcn.graphs import SparseGraph
from jlgcn.nn import JLGCN, PRESETS

NUM_FEATURES, HIDDEN, NUM_CLASSES, RANK = 64, 16, 10, 16


def make_model(backend: Literal["exact", "knn"] = "exact") -> JLGCN:
    """Return the network, with the same parameters in every process."""
    torch.manual_seed(0)
    options = replace(PRESETS["paper"], metric_init="median")
    return JLGCN(
        NUM_FEATURES, HIDDEN, NUM_CLASSES, rank=RANK, dropout=0, options=options, backend=backend
    )


def inputs(num_nodes: int) -> tuple[Tensor, Tensor]:
    """Return features and classes; the first tenth of the nodes is trained on."""
    generator = torch.Generator().manual_seed(1)
    return (
        torch.randn(num_nodes, NUM_FEATURES, generator=generator),
        torch.randint(0, NUM_CLASSES, (num_nodes,), generator=generator),
    )


class Step:
    """A forward pass, the loss with its regularizer, and a backward pass."""

    def __init__(self, num_nodes: int, backend: Literal["exact", "knn"]) -> None:
        self.model, (self.x, self.y) = make_model(backend), inputs(num_nodes)
        self.nodes = torch.arange(max(1, num_nodes // 10))

    def __call__(self) -> None:
        """Take the step."""
        self.model.zero_grad()
        out = self.model(self.x, None, self.nodes)
        loss = cross_entropy(out.logits, self.y[self.nodes])
        (loss + 1e-4 * self.model.regularizer(out, self.x, probes=16)).backward()


def time_and_peak(
    num_nodes: int, repeats: int, backend: Literal["exact", "knn"]
) -> dict[str, object]:
    """Return the seconds of steps, and by how much they raise the memory of this process."""
    Step(64, backend)()
    step = Step(num_nodes, backend)
    Path("/proc/self/clear_refs").write_text("5")  # forget the high-water mark so far
    before = status_bytes("VmRSS")
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - started)
    peak = status_bytes("VmHWM") - before
    return {"nodes": num_nodes, "seconds": min(seconds), "all": seconds, "peak_bytes": peak}


def measure_steps(
    sizes: list[int], repeats: int, threads: int, backend: Literal["exact", "knn"]
) -> dict[str, object]:
    """Return seconds and peak bytes of a step, and the exponents of their growth."""
    # Without this the allocator keeps freed blocks, and the peak is that of its history.
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "65536"
    rows = []
    for num_nodes in sizes:
        times = repeats if num_nodes <= 10_000 else 1
        row = in_own_process(time_and_peak, num_nodes, times, backend, num_threads=threads)
        rows.append(row)
        print(f"{num_nodes:,} nodes: {row['seconds']:.2f} s, {row['peak_bytes']:,} B", flush=True)
    return {
        "steps": rows,
        "time_exponent": growth_exponent(sizes, [float(str(row["seconds"])) for row in rows]),
        "peak_exponent": growth_exponent(sizes, [float(str(row["peak_bytes"])) for row in rows]),
    }


def loopback_bytes() -> int:
    """Return how many bytes the loopback device has carried."""
    line = next(
        line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip()[:3] == "lo:"
    )
    return int(line.split(":")[1].split()[0])


def work(num_nodes: int, repeats: int) -> None:
    """Take steps as one of several processes, and let the first print what it saw."""
    torch.set_num_threads(1)
    rows_gathered = [0.0]
    gather = Shards.gather

    def counted(shards: Shards, x: Tensor) -> Tensor:
        ways = 3 if x.requires_grad else 1
        rows_gathered[0] += ways * shards.num_rows * x.shape[1] * x.element_size()
        return gather(shards, x)

    Shards.gather = counted  # type: ignore[method-assign, assignment]
    dist.init_process_group("gloo")
    try:
        found: dict[str, object] = {"processes": dist.get_world_size()}
        for dtype in (torch.float32, torch.float64):
            model, (x, y) = make_model(), inputs(num_nodes)
            model, x = model.to(dtype), x.to(dtype)
            shards = distribute(model, num_nodes)
            none = SparseGraph.without_edges(num_nodes).to(dtype=dtype)
            given = ShardedSparseGraph.from_graph(none, shards)
            own = shards.own
            num_train = num_nodes // 10
            nodes = torch.arange(own.start, min(own.stop, max(own.start, num_train))) - own.start

            def step(
                model: JLGCN = model,
                x: Tensor = x[own],
                y: Tensor = y[own],
                given: ShardedSparseGraph = given,
                nodes: Tensor = nodes,
                num_train: int = num_train,
            ) -> None:
                model.zero_grad()
                out = model(x, given, nodes)
                (cross_entropy(out.logits, y[nodes], reduction="sum") / num_train).backward()

            step()
            seconds = []
            dist.barrier()
            rows_gathered[0], before = 0.0, loopback_bytes()
            for _ in range(repeats):
                started = time.perf_counter()
                step()
                seconds.append(time.perf_counter() - started)
            dist.barrier()
            size = dist.get_world_size()
            name = str(dtype).removeprefix("torch.")
            found[name] = {
                "seconds": statistics.median(seconds),
                "all": seconds,
                "loopback_bytes_a_rank": (loopback_bytes() - before) / repeats / size,
                "formula_bytes_a_rank": rows_gathered[0] * (1 - 1 / size) / repeats,
                "gradient": [
                    value
                    for p in model.parameters()
                    if p.grad is not None
                    for value in p.grad.double().flatten().tolist()
                ],
            }
        if dist.get_rank() == 0:
            print("FOUND " + json.dumps(found))
    finally:
        dist.destroy_process_group()


def measure_sharded(num_nodes: int, repeats: int) -> dict[str, object]:
    """Return times, bytes and errors of gradients over 1, 2 and 4 processes."""
    found = {}
    for processes in (1, 2, 4):
        command = [sys.executable, "-m", "torch.distributed.run"]
        command += [f"--nproc-per-node={processes}", "--rdzv-backend=c10d"]
        command += ["--rdzv-endpoint=localhost:0", "-m", "benchmarks.scale_exact"]
        command += ["--worker", str(num_nodes), "--repeats", str(repeats)]
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, check=True, env=os.environ
        )
        line = next(line for line in done.stdout.splitlines() if line.startswith("FOUND "))
        found[processes] = json.loads(line.removeprefix("FOUND "))
    rows = []
    for name in ("float32", "float64"):
        gradients = {
            processes: torch.tensor(one[name].pop("gradient"), dtype=torch.float64)
            for processes, one in found.items()
        }
        for processes, one in found.items():
            difference = (gradients[processes] - gradients[1]).abs().max()
            error = float(difference / gradients[1].abs().max())
            row = {"processes": processes, "dtype": name, "gradient_error": error}
            rows.append(row | one[name])
    return {"nodes": num_nodes, "rows": rows}


def main() -> None:
    """Parse the command line, measure, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, nargs="+", default=[2_000, 5_000, 10_000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--backend", choices=("exact", "knn"), default="exact")
    parser.add_argument("--sharded", action="store_true", help="measure processes instead")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=Path("results/scale"))
    args = parser.parse_args()
    if args.worker is not None:
        work(args.worker, args.repeats)
        return
    torch.set_num_threads(args.threads)
    settings = {"features": NUM_FEATURES, "hidden": HIDDEN, "rank": RANK, "repeats": args.repeats}
    if args.sharded:
        sharded = measure_sharded(args.nodes[-1], args.repeats)
        write_json(args.out / f"sharded-{args.nodes[-1]}.json", settings, sharded)
        columns = ("processes", "dtype", "gradient_error", "seconds", "loopback_bytes_a_rank")
        rows = sharded["rows"]
        assert isinstance(rows, list)
        print(table(list(columns), [[str(row[name]) for name in columns] for row in rows]))
        return
    steps = measure_steps(args.nodes, args.repeats, args.threads, args.backend)
    write_json(args.out / f"{args.backend}_step.json", settings, steps)
    print(f"time ~ N^{steps['time_exponent']:.2f}, peak ~ N^{steps['peak_exponent']:.2f}")


if __name__ == "__main__":
    main()
