"""What sampling costs in accuracy: drawn neighbours against all, and packages by mini-batches.

    python benchmarks/scale_sampling.py bias --work /data/scratch --out results/scale
    JLGCN_DATA=… python benchmarks/scale_sampling.py packages --work /data/scratch

``bias`` trains on 20,000 planted rows and then draws the neighbours of every node again and again:
how far are means of degrees and logits from those of the whole table, by decile of degree?
``packages`` is the problem of benchmarks/packages.py with the same labels and edges, of which a
fifth of the labels selects the epoch, as there; the words are spread over 256 directions first.
With ``--all-neighbors`` a step takes all labels and all neighbours of all neighbours: the same
network without sampling, and as many steps.
"""

from __future__ import annotations

import argparse
import shutil
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import torch
from measure import in_own_process, status_bytes, write_json
from packages import NUM_LABELS, load

from jlgcn.data import FeatureScaler
from jlgcn.nn import JLGCN, PRESETS
from jlgcn.ops import SparseFeatures, principal_directions
from jlgcn.scale import (
    BatchConfig,
    NeighborTable,
    PackedTable,
    Split,
    fit_batches,
    forward_batch,
    pack,
    table_loader,
    write_planted,
)

OPTIONS = replace(PRESETS["paper"], metric_init="median", bias=True)


def bias(work: Path, num_rows: int, num_draws: int, fanouts: tuple[int, ...]) -> dict[str, object]:
    """Compare drawn neighbours with all of them."""
    folder = work / "bias"
    shutil.rmtree(folder, ignore_errors=True)
    write_planted(folder / "parquet", num_rows)
    pack(folder / "parquet", folder / "packed", label="kind")
    packed = PackedTable(folder / "packed")
    split = Split.of(packed.y, num_train=2000, num_val=2000)
    config = BatchConfig(epochs=10, batch_size=256, fanouts=fanouts)
    model, logits, result = fit_batches(
        lambda: JLGCN(packed.num_features, 32, packed.num_classes, rank=8, options=OPTIONS),
        packed,
        split,
        config,
        folder=folder / "run",
        seed=0,
    )
    number = int(result.history[result.best_epoch]["table"])
    table = NeighborTable(folder / "run" / f"table-{number}")
    model.eval()
    loader = table_loader(packed, table, torch.arange(num_rows), fanouts, batch_size=1000)
    total, squares, degree, right = torch.zeros_like(logits), 0.0, torch.zeros(num_rows), []
    with torch.no_grad():
        for _ in range(num_draws):
            drawn, degrees = [], []
            for batch in loader:
                out = forward_batch(model, batch)
                drawn.append(out.logits)
                degrees.append(out.degrees[0][: batch.batch_size])
            total += torch.cat(drawn)
            degree += torch.cat(degrees)
            squares += float((torch.cat(drawn) - logits).square().mean())
            is_right = (torch.cat(drawn).argmax(-1) == packed.y)[split.test]
            right.append(float(is_right.double().mean()))
    exact = table.degree[:, 0]
    relative = (degree / num_draws - exact) / exact
    spread = float(logits.std())
    shift = (total / num_draws - logits).mean(-1).abs() / spread
    order = exact.argsort()
    deciles = [
        {
            "mean_degree": float(exact[part].mean()),
            "degree_bias": float(relative[part].mean()),
            "logit_bias": float(((total / num_draws - logits)[part]).mean() / spread),
            "mean_logit_shift": float(shift[part].mean()),
        }
        for part in order.chunk(10)
    ]
    shutil.rmtree(folder)
    return {
        "rows": num_rows,
        "draws": num_draws,
        "fanouts": list(fanouts),
        "accuracy_all_neighbours": result.test_accuracy,
        "accuracy_drawn": sum(right) / len(right),
        "logit_noise": (squares / num_draws) ** 0.5 / spread,
        "deciles": deciles,
    }


def packages(work: Path, seed: int, config: BatchConfig) -> dict[str, object]:
    """Train on packages by mini-batches, and say how they do."""
    folder = work / "packages"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    problem = load(seed)
    started = time.perf_counter()
    counts = SparseFeatures.from_scipy(problem.x)
    words = FeatureScaler.fit(counts, "words")(counts)
    x = (words @ principal_directions(words, 256)).numpy()
    x /= np.sqrt((x**2).sum(1).mean())  # rows of length 1 on average
    columns = {f"x{i}": x[:, i] for i in range(x.shape[1])} | {"kind": problem.y}
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "rows.parquet")
    ends = {"a": problem.edges[0], "b": problem.edges[1]}
    pyarrow.parquet.write_table(pyarrow.table(ends), folder / "edges.parquet")
    pack(folder / "rows.parquet", folder / "packed", label="kind", edges=folder / "edges.parquet")
    packed = PackedTable(folder / "packed")
    known = torch.from_numpy(np.flatnonzero(problem.few >= 0))
    known = known[torch.randperm(NUM_LABELS, generator=torch.Generator().manual_seed(0))]
    hidden = torch.from_numpy(np.flatnonzero(problem.few == -1))
    split = Split(known[NUM_LABELS // 5 :], known[: NUM_LABELS // 5], hidden)
    _, _, result = fit_batches(
        lambda: JLGCN(256, 64, packed.num_classes, rank=16, options=OPTIONS),
        packed,
        split,
        config,
        folder=folder / "run",
        seed=seed,
    )
    seconds = time.perf_counter() - started
    shutil.rmtree(folder)
    return {
        "seed": seed,
        "val_accuracy": result.val_accuracy,
        "test_accuracy": result.test_accuracy,
        "best_epoch": result.best_epoch,
        "tables": int(result.history[-1]["table"]) + 1,
        "recall": [round(row["recall"], 3) for row in result.history],
        "seconds": round(seconds, 1),
        "peak_bytes": status_bytes("VmHWM"),
    }


def main() -> None:
    """Parse the command line, measure, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["bias", "packages"])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--all-neighbors", action="store_true", help="draw nothing")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--work", type=Path, required=True, help="a folder for large files")
    parser.add_argument("--out", type=Path, default=Path("results/scale"))
    args = parser.parse_args()
    settings: dict[str, object] = {"threads": args.threads}
    if args.what == "bias":
        found = in_own_process(
            bias, args.work, args.rows, args.draws, (10, 10), num_threads=args.threads
        )
        write_json(args.out / "sampling.json", settings, found)
    else:
        config = BatchConfig(epochs=args.epochs, batch_size=100, fanouts=(15, 15), lr=args.lr)
        if args.all_neighbors:
            batches = 4 * NUM_LABELS // 5 // config.batch_size
            config = replace(
                config,
                epochs=config.epochs * batches,
                batch_size=config.batch_size * batches,
                fanouts=(-1, -1),
            )
        found = in_own_process(packages, args.work, args.seed, config, num_threads=args.threads)
        how = "-all-neighbors" if args.all_neighbors else ""
        name = f"packages{how}-seed-{args.seed}.json"
        write_json(args.out / name, settings | asdict(config), found)
    print(found)


if __name__ == "__main__":
    main()
