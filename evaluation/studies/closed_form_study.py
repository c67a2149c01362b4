"""Choose the defaults of the closed form, by validation nodes of fresh splits alone.

Two studies, of data with a graph and of data without one. A trial is a set of options; its value
is the mean accuracy over data sets and splits on validation nodes, none of which is a public test
node. All trials go to one file, so that anyone can see what was tried, and a study goes on where
its file ends.

    python -m evaluation.studies.closed_form_study --kind nograph --trials 40

A third compares powers of the weights of words, with the defaults, on the one set whose words come
weighted:

    python -m evaluation.studies.closed_form_study --kind words --splits 5
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, replace
from pathlib import Path

import optuna
import torch
from optuna.distributions import BaseDistribution, CategoricalDistribution

from evaluation.claim_data import load_claim
from evaluation.claim_experiment import scaled
from jlgcn.closed_form import ClosedFormOptions, FeatureScaler, fit_closed_form
from jlgcn.ops import SparseFeatures
from jlgcn.paper.node_data import NodeData

KINDS = {
    "given": (("given", "cora"), ("given", "citeseer"), ("edges25", "cora"), ("labels25", "cora")),
    "nograph": (
        ("nograph", "cora"),
        ("nograph", "citeseer"),
        ("tables", "digits"),
        ("tables", "wine"),
    ),
}
WEIGHTED = (("given", "pubmed"), ("nograph", "pubmed"))
POWERS = (1.0, 0.5)
SPACE = {
    "n_layers": (2, 3, 4, 6),
    "n_candidates": (50, 100, 200),
    "metric_weight": (0.05, 0.1, 0.2, 0.5, 1.0),
    "restart": (0.005, 0.01, 0.02, 0.05, 0.1),
    "n_components": (128, 256, 512),
    "component_power": (0.5, 0.75, 1.0),
}


def accuracy(data: NodeData, x: torch.Tensor | SparseFeatures, options: ClosedFormOptions) -> float:
    """Return the accuracy on validation nodes, which choose nothing here: labels left out do."""
    graph = data.graph() if data.edge_index.shape[1] else None
    model = fit_closed_form(x, data.y, graph, train=data.train, options=options)
    return float((model.logits[data.val].argmax(-1) == data.y[data.val]).float().mean())


def compare_powers(num_splits: int, path: Path) -> None:
    """Write a line for every power, data set and split that the file does not have."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = [(line["claim"], line["split"], line["power"]) for line in lines]
    for split in range(num_splits):
        for setting, dataset in WEIGHTED:
            claim = f"{setting}/{dataset}"
            data = load_claim(setting, dataset, seed=split, develops=True)
            scaler = FeatureScaler.fit(data.x)
            for power in POWERS:
                if (claim, split, power) in done:
                    continue
                x = replace(scaler, power=power)(data.x)
                value = accuracy(data, x, ClosedFormOptions())
                line = {"claim": claim, "split": split, "power": power, "val_accuracy": value}
                with path.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                print(json.dumps(line), flush=True)


def main() -> None:
    """Run, or go on with, one study."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=(*KINDS, "words"), required=True)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--splits", type=int, default=2, help="fresh splits of each data set")
    parser.add_argument("--out", type=Path, default=Path("results/studies"))
    args = parser.parse_args()
    torch.set_flush_denormal(True)
    path = args.out / f"closed_form_{args.kind}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    if args.kind == "words":
        compare_powers(args.splits, path)
        return
    problems = [
        (f"{setting}/{dataset}", load_claim(setting, dataset, seed=seed, develops=True))
        for setting, dataset in KINDS[args.kind]
        for seed in range(args.splits)
    ]
    features = [scaled(data.x) for _, data in problems]
    space: dict[str, BaseDistribution] = {
        name: CategoricalDistribution(values) for name, values in SPACE.items()
    }
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    done = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    for line in done:
        study.add_trial(
            optuna.trial.create_trial(
                params={name: line["options"][name] for name in SPACE},
                distributions=space,
                value=line["value"],
            )
        )
    if not done:  # the defaults first, so that everything is compared with them
        defaults = asdict(ClosedFormOptions())
        study.enqueue_trial({name: defaults[name] for name in SPACE})
    for _ in range(len(done), args.trials):
        trial = study.ask(space)
        options = ClosedFormOptions(**trial.params)
        started = time.perf_counter()
        found: dict[str, list[float]] = {}
        for (name, data), x in zip(problems, features, strict=True):
            found.setdefault(name, []).append(accuracy(data, x, options))
        value = sum(sum(f) / len(f) for f in found.values()) / len(found)
        study.tell(trial, value)
        seconds = round(time.perf_counter() - started, 1)
        line = {"value": value, "options": trial.params, "val_accuracy": found, "seconds": seconds}
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
