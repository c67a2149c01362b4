"""How the network for clouds should begin, by its first epochs and validation clouds alone.

The paper leaves open how R and W begin and how large they are. A trial trains on the clouds of 69
classes for a few epochs of the recipe's budget with one choice changed, and writes the losses of
training and validation and the validation accuracy of every epoch, and what remains of the selected
one when points are missing. No test cloud is looked at. All trials go to one file, and the study
goes on where its file ends.

    python -m evaluation.studies.cloud_start_study --threads 1
    python -m evaluation.studies.cloud_start_study --threads 1 --epochs 20 --distance 0

The second line trains the network without a metric as long as the recipe trains the others.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from evaluation.suite.run import append_line
from jlgcn.graphs import DenseGraph
from jlgcn.nn import PRESETS, GraphLearner, GraphLevelJLGCN, JLGCNConv
from jlgcn.nn.conv import CONTRAST
from jlgcn.paper import load_clouds
from jlgcn.paper.cloud_baselines import KnnGCN
from jlgcn.paper.cloud_data import CloudData
from jlgcn.paper.clouds import BUDGET
from jlgcn.paper.records import read_lines
from jlgcn.training import fit_graphs


@dataclass(frozen=True)
class Trial:
    """What is changed.

    Attributes:
        model: JLGCN, or GCN on a fixed kNN graph.
        contrast: how much larger the weights of A f - f begin than those of f; None to draw those
            of f and A f alike.
        distance: median squared distance in every layer at the beginning; 0 for metrics of zeros,
            which training leaves so: every point is joined with all others alike.
        rank: rank of every metric; None for that of its input.
        normalize_learned: normalise the learned graph before it is added, as the authors do.
        regularizer_weight: λ.
        num_neighbors: keep only so many largest weights of every point, and those of the points
            that keep it; None to keep all pairs.
    """

    model: str = "jlgcn"
    contrast: float | None = CONTRAST
    distance: float = 1.0
    rank: int | None = 16
    normalize_learned: bool = False
    regularizer_weight: float = 0.01
    num_neighbors: int | None = None


TRIALS = (
    Trial(),
    Trial(distance=0.3),
    Trial(contrast=None),
    Trial(model="knn-gcn", regularizer_weight=0.0),
    Trial(model="knn-gcn", regularizer_weight=0.0, contrast=None),
    Trial(distance=0.1),
    Trial(distance=0.0),
    Trial(distance=3.0),
    Trial(distance=10.0),
    Trial(distance=10.0, contrast=None),
    Trial(contrast=2 * CONTRAST),
    Trial(contrast=0.5 * CONTRAST),
    Trial(normalize_learned=True),
    Trial(regularizer_weight=0.0),
    Trial(rank=None),
    Trial(num_neighbors=20),
    Trial(num_neighbors=20, distance=0.1),
)


def make_model(trial: Trial, data: CloudData) -> nn.Module:
    """Return a network that begins as a trial says."""
    if trial.model == "knn-gcn":
        model: nn.Module = KnnGCN(3, data.num_classes)
    else:
        options = replace(
            PRESETS["paper"],
            metric_init="median",
            median_distance=trial.distance or 1.0,
            normalize_learned=trial.normalize_learned,
        )
        model = GraphLevelJLGCN(3, data.num_classes, rank=trial.rank, options=options)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, GraphLearner) and trial.distance == 0:
                module.metric.weight.zero_()
            if isinstance(module, GraphLearner) and trial.num_neighbors is not None:
                module.register_forward_hook(partial(_nearest, trial.num_neighbors))
            if isinstance(module, JLGCNConv):
                own, neighbors = module.lin.weight.split(module.in_channels, dim=1)
                own += neighbors
                neighbors *= (trial.contrast or 1.0) / CONTRAST
                if trial.contrast is not None:
                    own -= neighbors
    return model


def _nearest(num_neighbors: int, _: nn.Module, __: object, graph: DenseGraph) -> DenseGraph:
    weight = graph.to_dense()
    kept = torch.zeros_like(weight)
    # A point's largest weight is its own.
    kept.scatter_(-1, weight.detach().topk(num_neighbors + 1, dim=-1).indices, 1)
    return DenseGraph(weight * torch.maximum(kept, kept.mT))


def main() -> None:
    """Run, or go on with, the study."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", default="shapes69_hdf5_1024")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--distance", type=float, help="only the trial that changes it to this")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path, default=Path("results/studies/cloud_start.jsonl"))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    data = load_clouds(args.dataset)
    data = replace(data, test=data.val)
    rows = read_lines(args.out)
    done = [(Trial(**row["trial"]), row["dataset"], len(row["history"])) for row in rows]
    for trial in TRIALS:
        if (trial, args.dataset, args.epochs) in done:
            continue
        if args.distance is not None and trial != Trial(distance=args.distance):
            continue
        started = time.perf_counter()
        config = replace(BUDGET, epochs=args.epochs, regularizer_weight=trial.regularizer_weight)
        torch.manual_seed(0)
        result = fit_graphs(
            make_model(trial, data),
            data.points,
            data.y,
            train=data.train,
            val=data.val,
            test=data.test,
            config=config,
            points_missing=(0.75, 0.9),
        )
        line = {
            "trial": asdict(trial),
            "dataset": args.dataset,
            "history": result.history,
            "val_accuracy_missing": result.measured["accuracy_missing"],
            "seconds": round(time.perf_counter() - started, 1),
        }
        append_line(args.out, line)
        last = result.history[-1]
        print(trial, {name: round(value, 4) for name, value in last.items()}, flush=True)


if __name__ == "__main__":
    main()
