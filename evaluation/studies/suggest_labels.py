"""Are the labels that `suggest_labels` asks for worth more than labels drawn at random?

    JLGCN_DATA=… python -m evaluation.studies.suggest_labels --json FILE

Begins with two labels of each class, asks for as many again, and counts what is right among the
rows without a label; ten draws of the first labels, for which both ways are paired.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits

from benchmarks.measure import table, write_json
from jlgcn import JLGCNClassifier
from jlgcn._stats import mean_and_interval
from jlgcn.paper import load_planetoid


def problems() -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
    """Return features, classes and edges."""
    digits, classes = load_digits(return_X_y=True)
    cora = load_planetoid("cora")
    x, y = cora.x.numpy(), cora.y.numpy()
    return {
        "digits": (digits, classes, None),
        "cora, no graph": (x, y, None),
        "cora, given graph": (x, y, cora.edge_index.numpy()),
    }


def accuracies(
    x: np.ndarray, y: np.ndarray, edges: np.ndarray | None, seed: int
) -> dict[str, float]:
    """Return the accuracy with the first labels, with more by chance, and with those asked for."""
    generator = np.random.default_rng(seed)
    classes = np.unique(y)
    first = np.concatenate(
        [generator.choice(np.flatnonzero(y == label), 2, replace=False) for label in classes]
    )
    others = np.setdiff1d(np.arange(len(y)), first)
    by_chance = generator.choice(others, len(first), replace=False)
    model, begun = _fit(x, y, edges, first)
    suggested = model.suggest_labels(len(first))
    return {
        "first": begun,
        "by chance": _fit(x, y, edges, np.concatenate([first, by_chance]))[1],
        "suggested": _fit(x, y, edges, np.concatenate([first, suggested]))[1],
    }


def _fit(
    x: np.ndarray, y: np.ndarray, edges: np.ndarray | None, known: np.ndarray
) -> tuple[JLGCNClassifier, float]:
    few = np.full(len(y), -1)
    few[known] = y[known]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = JLGCNClassifier().fit(x, few, edges)
    return model, float((model.transduction_ == y)[few == -1].mean())


def main() -> None:
    """Parse the command line, measure, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path, help="write the figures here")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    results: dict[str, object] = {}
    rows = []
    for name, problem in problems().items():
        # Other draws than those that the penalty was chosen on.
        found = [accuracies(*problem, 100 + seed) for seed in range(args.seeds)]
        gain = mean_and_interval([one["suggested"] - one["by chance"] for one in found])
        means = {way: float(np.mean([one[way] for one in found])) for way in found[0]}
        results[name] = means | {"gain": gain, "by_seed": found}
        interval = f"{100 * gain['low']:.1f} to {100 * gain['high']:.1f}"
        shown = [f"{100 * mean:.1f}" for mean in means.values()]
        rows.append([name, *shown, f"{100 * gain['mean']:+.1f} ({interval})"])
        print(rows[-1], flush=True)
    print(table(["", "first labels", "twice as many by chance", "suggested", "gain"], rows))
    if args.json:
        settings = {key: value for key, value in vars(args).items() if key != "json"}
        write_json(args.json, settings, results)


if __name__ == "__main__":
    main()
