"""Compare `DecoupledJLGCN` with its ablation and with GCN, on development splits.

Cora and Citeseer with all edges, half of them, and none; three fresh splits without any published
test node (20 labels a class, 500 to validate by), three seeds each. Validation selects the epoch,
and the split's own test nodes are scored once a run. Features are the words of `FeatureScaler` for
all networks.

- *decoupled*: `DecoupledConfig` with its defaults;
- *fixed graph*: the same without a metric, on the Euclidean kNN graph and the given edges;
- *gcn*: on the given edges; without any, on the same kNN graph.

A line a run goes to one file, and a run goes on where the file ends; `--show` prints the means.

    OMP_NUM_THREADS=1 python -m evaluation.studies.decoupled --data /path/to/data
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from evaluation.claim_data import load_claim
from evaluation.study_tables import decoupled_table
from evaluation.suite.run import append_line
from jlgcn.closed_form import FeatureScaler
from jlgcn.graphs import Graph
from jlgcn.nn import DecoupledJLGCN
from jlgcn.paper.baselines import GCN
from jlgcn.paper.node_data import NodeData
from jlgcn.paper.records import read_lines
from jlgcn.paper.table2 import GCN_TRAIN
from jlgcn.training import DecoupledConfig, FitResult, fit_nodes

SETTINGS = {"given": ("cora", "citeseer"), "nograph": ("cora", "citeseer"), "edges50": ("cora",)}
VARIANTS = ("decoupled", "fixed graph", "gcn")
NUM_SPLITS = NUM_SEEDS = 3
HIDDEN = 64
OUT = Path("results/studies/decoupled.jsonl")


def run(variant: str, data: NodeData, seed: int) -> FitResult:
    """Train one network and evaluate it once."""
    x = FeatureScaler.fit(data.x, "words")(data.x)
    torch.manual_seed(seed)
    network = DecoupledJLGCN(x.shape[1], HIDDEN, data.num_classes)
    graph: Graph = data.graph()
    split: dict[str, Any] = {"train": data.train, "val": data.val, "test": data.test}
    if variant != "gcn":
        config = DecoupledConfig() if variant == "decoupled" else DecoupledConfig(metric_epochs=())
        return fit_nodes(network, x, data.y, graph, config=config, **split)
    if graph.has_no_edges:
        graph = network.learn(x)[0].detach()
    gcn = GCN(x.shape[1], data.num_classes, HIDDEN)
    return fit_nodes(gcn, x, data.y, graph, config=GCN_TRAIN, **split)


def main() -> None:
    """Run what the file does not have."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    lines = read_lines(options.out)
    if options.show:
        print(decoupled_table(lines))
        return
    names = ("setting", "data", "variant", "split", "seed")
    done = {tuple(line[name] for name in names) for line in lines}
    warnings.simplefilter("ignore")
    runs = [
        (setting, dataset, variant, split, seed)
        for seed in range(NUM_SEEDS)
        for split in range(NUM_SPLITS)
        for setting, datasets in SETTINGS.items()
        for dataset in datasets
        for variant in VARIANTS
    ]
    for found in runs:
        if found in done:
            continue
        setting, dataset, variant, split, seed = found
        data = load_claim(setting, dataset, seed=split, root=options.data, develops=True)
        started = time.process_time()
        result = run(variant, data, seed)
        line = dict(zip(names, found, strict=True)) | {
            "val": round(result.val_accuracy, 4),
            "test": round(result.test_accuracy, 4),
            "epoch": result.best_epoch,
            "cpu_seconds": round(time.process_time() - started, 1),
        }
        append_line(options.out, line)


if __name__ == "__main__":
    main()
