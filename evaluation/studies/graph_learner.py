"""Compare a GCN on a fixed kNN graph and on that of a `GraphLearner`, trained jointly by gradients.

Data sets, draws and network are those of :mod:`evaluation.studies.learn_graph`. 5 labels a class
are drawn for training and 5 for validation; where a class of Wine or another has fewer rows, all.
Validation accuracy selects the epoch of each run, and then the learned graph, or the fixed one
unless the learned one is better ("refused"). Test rows are scored once a run, after selection.

- unweighted: the symmetrised 20-NN graph of the features as `LearnGraph` scales them, weights 1.
- fixed: `GraphLearner(metric_init="euclidean")` at R = 0, frozen: the same graph, with weights.
- learned: R has a learning rate and a decay of its own, and is regressed on the predicted classes
  of all rows before epochs 60, 100 and 140. The regression is not trained through.
- chosen: learned, or fixed if validation refused it.

A line for every data set and draw goes to one file, and a run goes on where the file ends; `--show`
prints mean gains, standard errors and refusals.

    OMP_NUM_THREADS=1 python -m evaluation.studies.graph_learner --data /path/to/data
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.data import Data

from evaluation.studies.learn_graph import (
    EPOCHS,
    NUM_NEIGHBORS,
    SPARSE,
    Network,
    draw,
    fixed_graph,
    load,
    operator,
)
from evaluation.suite.run import append_line
from jlgcn import SparseGraph
from jlgcn.closed_form import FeatureScaler
from jlgcn.nn import GraphLearner
from jlgcn.nn.features import Features
from jlgcn.ops import SparseFeatures
from jlgcn.paper.records import read_lines

DATASETS = ("newsgroups", "wordnet", "digits", "wine", "cora")
LABELS = 5  # a class, for training and as many for validation
METRIC_EPOCHS = (60, 100, 140)
METRIC_VARIANCE = 1.0
METRIC_LR = 1e-3
METRIC_DECAY = 1e-4
CHECK_EVERY = 5  # epochs between two looks at the validation rows
OUT = Path("results/studies/graph_learner.jsonl")


def split(y: Tensor, seed: int) -> tuple[Tensor, Tensor]:  # (N,), bool, twice
    """Return the masks of training and validation rows: the first and the next of one draw."""
    train = draw(y, LABELS, seed)
    return train, draw(y, 2 * LABELS, seed) & ~train


def learned_graph(learner: GraphLearner, data: Data, points: Tensor) -> SparseGraph:
    """Return the matrix that layers multiply with, from the learner's edges and weights."""
    edges, weight = learner.edges(points, keep=True)
    learned = Data(x=data.x, edge_index=edges, edge_weight=weight)
    return operator("gcn", learned)


def run(
    data: Data, points: Tensor | None, train: Tensor, val: Tensor, seed: int, *, learns: bool
) -> dict[str, float]:
    """Train a GCN, and return validation and test accuracy at the epoch validation selects.

    Args:
        data: features, classes, and the fixed graph that `points` of None uses.
        points: features of the learner; None for the graph of `data`.
        train: training rows.
        val: validation rows.
        seed: seed of the network.
        learns: train the metric; else it is 0.
    """
    torch.manual_seed(seed)
    num_classes = int(data.y.max()) + 1
    x: Features = data.x
    if float((data.x != 0).float().mean()) < SPARSE:
        x = SparseFeatures.from_dense(data.x)
    model = Network("gcn", data.x.shape[1], num_classes)
    groups: list[dict[str, Any]] = [{"params": model.parameters()}]
    learner, graph = None, operator("gcn", data)
    if points is not None:
        learner = GraphLearner(
            points.shape[1], num_classes, metric_init="euclidean", num_neighbors=NUM_NEIGHBORS
        ).calibrate(points)
        if learns:
            metric = {"lr": METRIC_LR, "weight_decay": METRIC_DECAY}
            groups.append({"params": learner.parameters(), **metric})
        else:
            learner.metric.weight.data.zero_()
            learner.requires_grad_(requires_grad=False)
            graph = learned_graph(learner, data, points)
    optimizer = torch.optim.Adam(groups, lr=0.01, weight_decay=5e-4)
    best, kept = -1.0, torch.empty(0)
    for epoch in range(EPOCHS):
        if learns and learner is not None and points is not None:
            if epoch in METRIC_EPOCHS:
                regress(model, learner, x, points, graph, data.y, train)
            graph = learned_graph(learner, data, points)
        loss = functional.cross_entropy(model(x, graph)[train], data.y[train])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (epoch + 1) % CHECK_EVERY == 0:
            with torch.no_grad():
                if learns and learner is not None and points is not None:
                    graph = learned_graph(learner, data, points)
                predicted = model.eval()(x, graph).argmax(-1)
                model.train()
            found = float((predicted == data.y)[val].float().mean())
            if found >= best:  # the latest of equal epochs
                best, kept = found, predicted
    test = ~train & ~val & (data.y >= 0)
    return {"val": best, "test": float((kept == data.y)[test].float().mean())}


@torch.no_grad()
def regress(
    model: Network,
    learner: GraphLearner,
    x: Features,
    points: Tensor,
    graph: SparseGraph,
    y: Tensor,
    train: Tensor,
) -> None:
    """Set the metric to the regression on predicted classes, and on those of training rows."""
    probability = model.eval()(x, graph).softmax(-1)
    model.train()
    probability[train] = functional.one_hot(y[train], probability.shape[1]).to(probability)
    learner.regress_metric(points, probability, variance=METRIC_VARIANCE)


def compare(data: Data, points: Tensor, seed: int) -> dict[str, Any]:
    """Return accuracies of all graphs on one draw."""
    train, val = split(data.y, seed)
    started = time.process_time()
    unweighted = run(data, None, train, val, seed, learns=False)
    fixed = run(data, points, train, val, seed, learns=False)
    learned = run(data, points, train, val, seed, learns=True)
    is_refused = fixed["val"] >= learned["val"]
    line = {"unweighted": unweighted["test"], "fixed": fixed["test"], "learned": learned["test"]}
    line["chosen"] = line["fixed" if is_refused else "learned"]
    line |= {"fixed_val": fixed["val"], "learned_val": learned["val"]}
    rounded = {name: round(value, 4) for name, value in line.items()}
    seconds = round(time.process_time() - started, 1)
    return rounded | {"refused": is_refused, "seconds": seconds}


def show(lines: list[dict[str, Any]]) -> None:
    """Print accuracies, gains paired by draw with standard errors, and refusals."""
    for name in DATASETS:
        own = [line for line in lines if line["data"] == name]
        if len(own) < 2:
            continue
        means = {key: 100 * np.array([line[key] for line in own]) for key in _ACCURACIES}
        text = ", ".join(f"{key} {value.mean():.1f}" for key, value in means.items())
        print(f"{name} ({len(own)} draws): {text}; {sum(line['refused'] for line in own)} refused")
        for key, base in (("learned", "fixed"), ("chosen", "fixed"), ("chosen", "unweighted")):
            gain = means[key] - means[base]
            error = gain.std(ddof=1) / len(own) ** 0.5
            print(f"    {key} - {base}: {gain.mean():+.2f} ± {error:.2f}")


_ACCURACIES = ("unweighted", "fixed", "learned", "chosen")


def main() -> None:
    """Run what the file does not have."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--only", nargs="*", default=DATASETS)
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    lines = read_lines(options.out)
    if options.show:
        show(lines)
        return
    done = {(line["data"], line["draw"]) for line in lines}
    warnings.simplefilter("ignore")
    found = {name: fixed_graph(load(name, options.data)) for name in options.only}
    points = {name: cast(Tensor, FeatureScaler.fit(data.x)(data.x)) for name, data in found.items()}
    for seed in range(options.draws):
        for name in options.only:
            if (name, seed) not in done:
                line = {"data": name, "draw": seed} | compare(found[name], points[name], seed)
                append_line(options.out, line)


if __name__ == "__main__":
    main()
