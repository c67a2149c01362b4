"""Does it cost accuracy to keep neighbour candidates over training steps, instead of searching?

The network with the authors' options and kNN graphs is trained on development splits of Cora, which
contain no published test node, once with `min_recall` and once with a search in every pass; split
and initial parameters are the same. Results of settings that are not run stay in the file.

    python -m evaluation.studies.kept_neighbors_study --threads 1 --settings given nograph
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import torch

from evaluation.claim_data import load_claim
from jlgcn.nn import JLGCN
from jlgcn.training import TrainConfig, fit_nodes
from jlgcn.training.environment import versions


def train(setting: str, seed: int, epochs: int, min_recall: float | None) -> dict[str, Any]:
    """Train one network, and return accuracies in percent and time."""
    data = load_claim(setting, "cora", seed=seed, develops=True)
    torch.manual_seed(seed)
    model = JLGCN(data.x.shape[1], 16, int(data.y.max()) + 1, backend="knn", min_recall=min_recall)
    result = fit_nodes(
        model,
        data.x,
        data.y,
        data.graph(),
        train=data.train,
        val=data.val,
        test=data.test,
        config=TrainConfig(epochs=epochs),
        seed=seed,
    )
    return {
        "setting": setting,
        "seed": seed,
        "min_recall": min_recall,
        "test": 100 * result.test_accuracy,
        "val": 100 * result.val_accuracy,
        "seconds": result.seconds,
    }


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return mean accuracies by setting, and how far kept candidates are ahead."""
    found: dict[str, Any] = {}
    for setting in sorted({run["setting"] for run in runs}):
        for split in ("test", "val"):
            kept, fresh = (
                {
                    r["seed"]: r[split]
                    for r in runs
                    if is_fresh == (r["min_recall"] is None) and r["setting"] == setting
                }
                for is_fresh in (False, True)
            )
            gains = [kept[seed] - fresh[seed] for seed in sorted(kept.keys() & fresh.keys())]
            if not gains:
                continue
            spread = statistics.stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else None
            found[f"{setting}, {split}"] = {
                "kept": statistics.fmean(kept.values()),
                "fresh": statistics.fmean(fresh.values()),
                "gain": statistics.fmean(gains),
                "standard error of gain": spread,
                "seeds": len(gains),
            }
    return found


def main() -> None:
    """Run what is asked for, and write it after every run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--settings", nargs="+", default=["given", "nograph"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=500)
    parser.add_argument("--min-recall", type=float, default=0.9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results/scale/kept_neighbors.json"))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    before: list[dict[str, Any]] = []
    if args.out.exists():
        before = json.loads(args.out.read_text())["results"]["runs"]
    runs = [run for run in before if run["setting"] not in args.settings]
    for seed in range(args.seeds):
        for setting in args.settings:
            for min_recall in (args.min_recall, None):
                runs.append(train(setting, seed, args.epochs, min_recall))
                print(runs[-1], flush=True)
                document = {
                    "settings": {"epochs": args.epochs, "threads": args.threads},
                    "results": {"summary": summary(runs), "runs": runs},
                    "environment": versions(),
                }
                args.out.parent.mkdir(parents=True, exist_ok=True)
                args.out.write_text(json.dumps(document, indent=2) + "\n")
    print(json.dumps(summary(runs), indent=2))


if __name__ == "__main__":
    main()
