"""Mini-batches from 100,000 to 10 million rows with planted classes: throughput, memory, accuracy.

    python benchmarks/scale.py --rows 100000 300000 1000000 --work /data/scratch --out results/scale

Every size runs in a process of its own and has a file of its own; a size whose file is there is not
run again. Labels, batches and steps are the same at all sizes: 10,000 training nodes, 10,000 to
validate, all others are looked at once. Building is timed apart from training. ``--seeds`` asks
instead how far accuracies of one size lie apart when labels and first weights are drawn anew.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from measure import (
    Run,
    growth_exponent,
    in_own_process,
    median_ratio,
    status_bytes,
    table,
    times_side_by_side,
    write_json,
)
from torch.nn.functional import cross_entropy

from jlgcn.nn import JLGCN, PRESETS
from jlgcn.scale import (
    BatchConfig,
    NeighborTable,
    PackedTable,
    Split,
    fit_batches,
    forward_batch,
    pack,
    table_loader,
    training,
    write_planted,
)
from jlgcn.train import FitResult
from jlgcn.train.environment import versions

NUM_LABELS = 10_000
RANK = 8
HIDDEN = 32
BATCH_SIZE = 256
NUM_WARM_STEPS = 250


def make_model(packed: PackedTable) -> JLGCN:
    """Return the network that is measured."""
    options = replace(PRESETS["paper"], metric_init="median", bias=True)
    return JLGCN(
        packed.num_features, HIDDEN, packed.num_classes, rank=RANK, dropout=0.0, options=options
    )


class Clock:
    """Seconds spent in functions, summed, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def time(self, module: object, name: str, label: str) -> None:
        """Have every later call of ``module.name`` timed."""
        function = getattr(module, name)

        def timed(*args: object, **keywords: object) -> object:
            started = time.perf_counter()
            try:
                return function(*args, **keywords)
            finally:
                spent = time.perf_counter() - started
                self.seconds[label] = self.seconds.get(label, 0.0) + spent

        setattr(module, name, timed)


def measure(
    num_rows: int, num_features: int, work: Path, config: BatchConfig, keep: bool
) -> dict[str, object]:
    """Write, pack, train on and infer one size."""
    folder = work / f"rows-{num_rows}"
    shutil.rmtree(folder, ignore_errors=True)
    write_planted(folder / "parquet", num_rows, num_features=num_features)
    started = time.perf_counter()
    pack(folder / "parquet", folder / "packed", label="kind")
    packing = time.perf_counter() - started
    shutil.rmtree(folder / "parquet")
    packed = PackedTable(folder / "packed")
    clock = Clock()
    clock.time(NeighborTable, "build", "search")
    clock.time(NeighborTable, "recall", "recall")
    clock.time(training, "infer", "degrees and logits")
    started = time.perf_counter()
    result = train(packed, config, folder / "run", seed=0)
    seconds = time.perf_counter() - started
    speeds = [row["nodes_per_second"] for row in result.history]
    on_disk = sum(path.stat().st_size for path in folder.rglob("*.npy"))
    if not keep:
        shutil.rmtree(folder)
    return {
        "rows": num_rows,
        "features": num_features,
        "pack_seconds": round(packing, 1),
        "search_seconds": round(clock.seconds["search"], 1),
        "recall_seconds": round(clock.seconds["recall"], 1),
        "infer_seconds": round(clock.seconds["degrees and logits"], 1),
        "seconds": round(seconds, 1),
        "nodes_per_second": round(statistics.median(speeds), 1),
        "nodes_per_second_by_epoch": [round(speed, 1) for speed in speeds],
        "tables": int(result.history[-1]["table"]) + 1,
        "recall": [round(row["recall"], 3) for row in result.history],
        "val_accuracy": result.val_accuracy,
        "test_accuracy": result.test_accuracy,
        "peak_bytes": status_bytes("VmHWM"),
        "bytes_on_disk": on_disk,
    }


def train(packed: PackedTable, config: BatchConfig, folder: Path, seed: int) -> FitResult:
    """Train on labels drawn by a seed."""
    split = Split.of(packed.y, num_train=NUM_LABELS, num_val=NUM_LABELS, seed=seed)
    _, _, result = fit_batches(
        lambda: make_model(packed), packed, split, config, folder=folder, seed=seed
    )
    return result


def over_seeds(num_rows: int, num_seeds: int, work: Path, config: BatchConfig) -> list[float]:
    """Return the test accuracies of one size, by seed."""
    folder = work / f"seeds-{num_rows}"
    shutil.rmtree(folder, ignore_errors=True)
    write_planted(folder / "parquet", num_rows)
    pack(folder / "parquet", folder / "packed", label="kind")
    packed = PackedTable(folder / "packed")
    found = []
    for seed in range(num_seeds):
        found.append(train(packed, config, folder / "run", seed).test_accuracy)
        shutil.rmtree(folder / "run")
    shutil.rmtree(folder)
    return found


def side_by_side(sizes: list[int], work: Path) -> dict[str, object]:
    """Time training steps of all sizes in turn, so that a slow machine slows all of them down."""
    steps: dict[str, Run] = {}
    batch_nodes = {}
    for num_rows in sizes:
        folder = work / f"rows-{num_rows}"
        packed = PackedTable(folder / "packed")
        neighbors = NeighborTable(next(iter(sorted((folder / "run").glob("table-*")))))
        steps[str(num_rows)] = step_of(packed, neighbors)
        nodes = torch.randint(0, num_rows, (20 * BATCH_SIZE,))
        loader = table_loader(packed, neighbors, nodes, (10, 10), batch_size=BATCH_SIZE)
        batch_nodes[str(num_rows)] = statistics.fmean(batch.num_nodes for batch in loader)
    # Pages of a mapped file cost most when a process touches them first; how much, is kept, too.
    cold = times_side_by_side(steps, 20)
    for step in steps.values():
        for _ in range(NUM_WARM_STEPS):
            step()
    seconds = times_side_by_side(steps, 60)
    base = seconds[str(sizes[0])]
    return {
        "nodes_per_second": {
            name: BATCH_SIZE / statistics.median(times) for name, times in seconds.items()
        },
        "time_against_smallest": {
            name: median_ratio(times, base) for name, times in seconds.items()
        },
        "nodes_of_a_batch": batch_nodes,
        "time_against_smallest_at_first": {
            name: median_ratio(times, cold[str(sizes[0])]) for name, times in cold.items()
        },
        "seconds": {
            name: [round(second, 5) for second in times] for name, times in seconds.items()
        },
    }


def step_of(packed: PackedTable, neighbors: NeighborTable) -> Run:
    """Return a function that takes one training step on nodes drawn at random."""
    model = make_model(packed)
    optimizer = torch.optim.Adam(model.parameters())
    nodes = Split.of(packed.y, num_train=NUM_LABELS, num_val=NUM_LABELS).train
    batches: Iterator[Any] = iter(())

    def step() -> None:
        nonlocal batches
        batch = next(batches, None)
        if batch is None:
            loader = table_loader(
                packed, neighbors, nodes, (10, 10), batch_size=BATCH_SIZE, shuffle=True
            )
            batches = iter(loader)
            batch = next(batches)
        out = forward_batch(model, batch)
        loss = cross_entropy(out.logits, batch.y[: batch.batch_size])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def plot(found: list[dict[str, Any]], path: Path) -> None:
    """Draw what every size took."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    rows = [one["rows"] for one in found]
    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(9, 2.8), layout="constrained")
    left.loglog(rows, [one["search_seconds"] / one["tables"] for one in found], "o-", label="table")
    passes = [one["infer_seconds"] / (one["tables"] + 1) for one in found]
    left.loglog(rows, passes, "s-", label="all classes")
    left.set_title("seconds")
    left.legend()
    middle.semilogx(rows, [one["nodes_per_second"] for one in found], "o-")
    middle.set_ylim(bottom=0)
    middle.set_title("nodes trained on a second")
    right.loglog(rows, [one["peak_bytes"] / 2**30 for one in found], "o-")
    right.set_title("peak memory, GiB")
    for axis in (left, middle, right):
        axis.set_xlabel("rows")
    figure.savefig(path, dpi=120)


def main() -> None:
    """Run what is missing, and print all of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 300_000, 1_000_000])
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--keep", action="store_true", help="keep the large files")
    parser.add_argument(
        "--side-by-side",
        action="store_true",
        help="only train, on all sizes that were kept, in turn",
    )
    parser.add_argument("--seeds", type=int, help="only train, as often, and keep accuracies")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--plot", type=Path, help="draw the figures here")
    parser.add_argument("--work", type=Path, required=True, help="a folder for large files")
    parser.add_argument("--out", type=Path, default=Path("results/scale"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    config = BatchConfig(epochs=args.epochs, batch_size=BATCH_SIZE, lr=0.01)
    if args.side_by_side:
        speeds = in_own_process(side_by_side, args.rows, args.work, num_threads=args.threads)
        settings = {"threads": args.threads, "rank": RANK, "hidden": HIDDEN}
        write_json(args.out / "side_by_side.json", asdict(config) | settings, speeds)
        print(speeds)
        return
    if args.seeds:
        accuracies: dict[str, object] = {
            str(num_rows): in_own_process(
                over_seeds, num_rows, args.seeds, args.work, config, num_threads=args.threads
            )
            for num_rows in args.rows
        }
        settings = {"rank": RANK, "hidden": HIDDEN, "labels": NUM_LABELS}
        write_json(args.out / "seeds.json", asdict(config) | settings, accuracies)
        print(accuracies)
        return
    found = []
    for num_rows in args.rows:
        name = f"batches-{num_rows}" + (f"-{args.features}" if args.features != 64 else "")
        path = args.out / f"{name}.json"
        if not path.exists():
            print(f"{num_rows:,} rows …", flush=True)
            figures = in_own_process(
                measure,
                num_rows,
                args.features,
                args.work,
                config,
                args.keep,
                num_threads=args.threads,
            )
            settings = asdict(config) | {"rank": RANK, "hidden": HIDDEN, "labels": NUM_LABELS}
            document = {"settings": settings, "results": figures, "environment": versions()}
            path.write_text(json.dumps(document, indent=2) + "\n")
        found.append(json.loads(path.read_text())["results"])
    columns = (
        *("rows", "search_seconds", "infer_seconds", "nodes_per_second", "tables"),
        *("test_accuracy", "peak_bytes"),
    )
    print(table(list(columns), [[str(one[name]) for name in columns] for one in found]))
    if args.plot:
        plot(found, args.plot)
    if len(found) > 1:
        sizes = [one["rows"] for one in found]
        built = [one["search_seconds"] / one["tables"] for one in found]
        print(f"a table takes rows^{growth_exponent(sizes, built):.2f}")


if __name__ == "__main__":
    main()
