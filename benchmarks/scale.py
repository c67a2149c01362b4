"""Mini-batches from 100,000 to 10 million rows with planted classes: throughput, memory, accuracy.

    python benchmarks/scale.py --rows 100000 300000 1000000 --work /data/scratch --out results/scale

Every size runs in a process of its own and has a file of its own; a size whose file is there is not
run again. Labels, batches and steps are the same at all sizes: 10,000 training nodes, 10,000 to
validate, all others are looked at once. Building is timed apart from training.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import time
from dataclasses import asdict, replace
from pathlib import Path

import torch
from measure import growth_exponent, in_own_process, status_bytes, table

from jlgcn.nn import JLGCN, PRESETS
from jlgcn.scale import (
    BatchConfig,
    NeighborTable,
    PackedTable,
    Split,
    fit_batches,
    pack,
    training,
    write_planted,
)
from jlgcn.train.environment import versions

NUM_LABELS = 10_000
RANK = 8
HIDDEN = 32


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


def measure(num_rows: int, work: str, config: BatchConfig) -> dict[str, object]:
    """Write, pack, train on and infer one size."""
    folder = Path(work) / f"rows-{num_rows}"
    shutil.rmtree(folder, ignore_errors=True)
    write_planted(folder / "parquet", num_rows)
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
    split = Split.of(packed.y, num_train=NUM_LABELS, num_val=NUM_LABELS)
    _, _, result = fit_batches(
        lambda: make_model(packed), packed, split, config, folder=folder / "run", seed=0
    )
    seconds = time.perf_counter() - started
    speeds = [row["nodes_per_second"] for row in result.history]
    on_disk = sum(path.stat().st_size for path in folder.rglob("*.npy"))
    shutil.rmtree(folder)
    return {
        "rows": num_rows,
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


def main() -> None:
    """Run what is missing, and print all of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 300_000, 1_000_000])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--work", type=Path, required=True, help="a folder for large files")
    parser.add_argument("--out", type=Path, default=Path("results/scale"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    config = BatchConfig(epochs=args.epochs, batch_size=256, lr=0.01)
    found = []
    for num_rows in args.rows:
        path = args.out / f"batches-{num_rows}.json"
        if not path.exists():
            print(f"{num_rows:,} rows …", flush=True)
            figures = in_own_process(
                measure, num_rows, str(args.work), config, num_threads=args.threads
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
    if len(found) > 1:
        sizes = [one["rows"] for one in found]
        built = [one["search_seconds"] / one["tables"] for one in found]
        print(f"a table takes rows^{growth_exponent(sizes, built):.2f}")


if __name__ == "__main__":
    main()
