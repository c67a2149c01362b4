"""The estimator on 60,506 packages with 500 labels and half of their dependencies, beside others.

    JLGCN_DATA=… python -m evaluation.studies.packages --seeds 3 --out results/packages

Every seed draws labels and edges, and has a file of its own; a seed whose file is there is not run
again. All methods learn from the same labels with their defaults: networks stop by a fifth of the
labels, logistic regression chooses its penalty by five folds. Each runs in a process of its own,
so that its peak memory is its own.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse
import torch
from sklearn.linear_model import LogisticRegressionCV
from sklearn.semi_supervised import LabelSpreading
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout

from benchmarks.measure import in_own_process, status_bytes, table
from jlgcn import JLGCNClassifier
from jlgcn._stats import mean_and_interval
from jlgcn.graphs import Graph, SparseGraph, as_graph
from jlgcn.io.files import data_root
from jlgcn.ops import SparseFeatures, nearest_neighbors
from jlgcn.ops.csr import symmetric_pattern
from jlgcn.training.environment import versions

NUM_LABELS = 500
SHARE_OF_EDGES = 0.5


@dataclass(frozen=True)
class Problem:
    """Packages, the labels of some, and some of their dependencies."""

    x: scipy.sparse.csr_matrix
    y: np.ndarray
    few: np.ndarray  # -1 where hidden
    edges: np.ndarray
    names: np.ndarray
    words: np.ndarray
    all_edges: np.ndarray


def load(seed: int) -> Problem:
    """Draw labels and edges."""
    with np.load(data_root(None) / "graphs/debian_packages.npz") as file:
        parts = tuple(file[f"x_{name}"] for name in ("data", "indices", "indptr"))
        y, edges = file["y"].astype(np.int64), file["edge_index"].astype(np.int64)
        names, words = file["names"], file["words"]
    x = scipy.sparse.csr_matrix(parts, shape=(len(y), len(words)), dtype=np.float32)
    generator = np.random.default_rng(seed)
    few = np.full(len(y), -1)
    known = generator.choice(len(y), NUM_LABELS, replace=False)
    few[known] = y[known]
    kept = edges[:, generator.random(edges.shape[1]) < SHARE_OF_EDGES]
    return Problem(x, y, few, kept, names, words, edges)


def by_closed_form(problem: Problem) -> np.ndarray:
    """Return the classes of all rows, by the estimator's defaults."""
    transduction: np.ndarray = fit_estimator(problem).transduction_
    return transduction


def fit_estimator(problem: Problem) -> JLGCNClassifier:
    """Return the estimator, fitted with its defaults."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # each edge is listed once
        return JLGCNClassifier().fit(problem.x, problem.few, problem.edges)


def explained_edges(problem: Problem, num: int) -> list[dict[str, object]]:
    """Return learned edges of packages drawn at random, none of them a dependency, explained.

    Of each package it is the heaviest edge to one with another beginning of its name: that two
    parts of the same program are alike surprises nobody.
    """
    model = fit_estimator(problem)
    graph = model.learned_graph()
    depends = {frozenset(pair) for pair in problem.all_edges.T.tolist()}
    found: list[dict[str, object]] = []
    for i in np.random.default_rng(0).permutation(len(problem.y)).tolist():
        neighbors, weight = graph.row(i)
        for place in weight.argsort(descending=True).tolist():
            j = int(neighbors[place])
            first, second = str(problem.names[i]), str(problem.names[j])
            if first[:5] == second[:5] or frozenset((i, j)) in depends:
                continue
            explained = model.explain_edge(i, j)
            shared = problem.x[[i]].multiply(problem.x[[j]]).toarray()[0]
            apart = explained.features.topk(3)
            found.append(
                {
                    "packages": [first, second],
                    "weight": round(explained.weight, 3),
                    "in_common": [
                        str(problem.words[k]) for k in (-shared).argsort()[:5] if shared[k]
                    ],
                    "apart": {
                        str(problem.words[k]): round(value, 3)
                        for k, value in zip(
                            apart.indices.tolist(), apart.values.tolist(), strict=True
                        )
                    },
                    "sections_agree": bool(problem.y[i] == problem.y[j]),
                }
            )
            break
        if len(found) == num:
            break
    return found


def by_logistic_regression(problem: Problem) -> np.ndarray:
    """Return the classes of all rows, by words alone."""
    known = problem.few >= 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # classes with fewer labels than folds, attributes to come
        model = LogisticRegressionCV(Cs=8, cv=5, max_iter=1000, scoring="accuracy", l1_ratios=(0,))
        model.fit(problem.x[known], problem.few[known])
    predicted: np.ndarray = model.predict(problem.x)
    return predicted


def by_label_spreading(problem: Problem) -> np.ndarray:
    """Return the classes of all rows, by their nearest ones."""
    model = LabelSpreading(kernel="knn", n_neighbors=7)
    predicted: np.ndarray = model.fit(problem.x, problem.few).transduction_
    return predicted


class TwoLayers(nn.Module):
    """A GCN, or GraphSAGE with its mean, on words without their zeros."""

    def __init__(
        self, x: SparseFeatures, graph: Graph, num_classes: int, *, keeps_self: bool
    ) -> None:
        super().__init__()
        self.x, self.graph, self.keeps_self = x, graph, keeps_self
        factor = 2 if keeps_self else 1
        self.first = nn.Linear(x.shape[1], 64 * factor, bias=False)
        self.second = nn.Linear(64, num_classes * factor)

    def forward(self) -> Tensor:
        """Return logits of all nodes."""
        keep = dropout(torch.ones_like(self.x.value), 0.5, self.training)
        hidden = self._join(self.x.map(lambda value: value * keep) @ self.first.weight.T).relu()
        return self._join(self.second(dropout(hidden, 0.5, self.training)))

    def _join(self, h: Tensor) -> Tensor:
        if not self.keeps_self:
            return self.graph @ h
        own, others = h.chunk(2, -1)
        return own + self.graph @ others


def train(problem: Problem, graph: Graph, *, keeps_self: bool) -> np.ndarray:
    """Return the classes of all rows, by the epoch that a fifth of the labels likes best."""
    torch.manual_seed(0)
    known = torch.from_numpy(np.flatnonzero(problem.few >= 0))[torch.randperm(NUM_LABELS)]
    val, learn = known[: NUM_LABELS // 5], known[NUM_LABELS // 5 :]
    y = torch.from_numpy(problem.few)
    x = SparseFeatures.from_scipy(problem.x)
    model = TwoLayers(x, graph, int(problem.y.max()) + 1, keeps_self=keeps_self)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    best, predicted = -1.0, torch.empty(0)
    for _ in range(200):
        model.train()
        optimizer.zero_grad()
        cross_entropy(model()[learn], y[learn]).backward()
        optimizer.step()
        model.train(False)
        with torch.no_grad():
            logits = model()
        accuracy = float((logits[val].argmax(-1) == y[val]).float().mean())
        if accuracy > best:
            best, predicted = accuracy, logits.argmax(-1)
    classes: np.ndarray = predicted.numpy()
    return classes


def by_gcn(problem: Problem) -> np.ndarray:
    """Return the classes of all rows, by a GCN on the dependencies that are known."""
    num_nodes = problem.x.shape[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        loops = np.arange(num_nodes)
        given = as_graph(np.hstack([problem.edges, [loops, loops]]), num_nodes)
    return train(problem, given.normalized(), keeps_self=False)


def by_knn_sage(problem: Problem) -> np.ndarray:
    """Return the classes of all rows, by GraphSAGE over each row's twenty nearest."""
    x = SparseFeatures.from_scipy(problem.x)
    neighbors = nearest_neighbors(x, 20)
    row = torch.arange(x.shape[0]).repeat_interleave(neighbors.shape[1])
    is_edge = neighbors.flatten() >= 0
    pattern = symmetric_pattern(row[is_edge], neighbors.flatten()[is_edge], x.shape[0])
    graph = SparseGraph.from_pattern(pattern, torch.ones(pattern.num_edges))
    return train(problem, graph.normalized(), keeps_self=True)


METHODS: dict[str, Callable[[Problem], np.ndarray]] = {
    "closed form": by_closed_form,
    "gcn": by_gcn,
    "knn-sage": by_knn_sage,
    "logistic regression": by_logistic_regression,
    "label spreading": by_label_spreading,
}


def measure(name: str, seed: int) -> dict[str, float]:
    """Run a method, and say how it did."""
    torch.set_flush_denormal(True)
    problem = load(seed)
    started = time.perf_counter()
    predicted = METHODS[name](problem)
    seconds = time.perf_counter() - started
    hidden = problem.few == -1
    accuracy = float((predicted[hidden] == problem.y[hidden]).mean())
    peak = status_bytes("VmHWM")
    return {
        "accuracy": accuracy,
        "seconds": round(seconds, 1),
        "threads": torch.get_num_threads(),
        "peak_bytes": peak,
    }


def main() -> None:
    """Run what is missing, and print all of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path, default=Path("results/packages"))
    parser.add_argument("--explain", type=int, help="only explain so many learned edges of seed 0")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(args.threads)
    if args.explain:
        text = json.dumps(explained_edges(load(0), args.explain), indent=2)
        (args.out / "edges.json").write_text(text + "\n")
        print(text)
        return
    results = []
    for seed in range(args.seeds):
        path = args.out / f"seed-{seed}.json"
        found = json.loads(path.read_text())["methods"] if path.exists() else {}
        for name in METHODS:
            if name in found:
                continue
            print(f"seed {seed}, {name} …", flush=True)
            found[name] = in_own_process(measure, name, seed, num_threads=args.threads)
            found = {known: found[known] for known in METHODS if known in found}  # in their order
            document = {"seed": seed, "methods": found}
            path.write_text(json.dumps(document | {"environment": versions()}, indent=2) + "\n")
        results.append(found)
    rows = []
    for name in METHODS:
        mean = mean_and_interval([found[name]["accuracy"] for found in results])
        ahead = mean_and_interval(
            [found["closed form"]["accuracy"] - found[name]["accuracy"] for found in results]
        )
        rows.append(
            [
                name,
                f"{100 * mean['mean']:.1f}",
                "" if name == "closed form" or ahead["low"] is None else _points(ahead),
                f"{max(found[name]['seconds'] for found in results):.0f} s",
                f"{max(found[name]['peak_bytes'] for found in results) / 2**30:.2f} GiB",
            ]
        )
    print(table(["", "accuracy", "closed form ahead by", "longest", "highest peak"], rows))


def _points(row: dict[str, float]) -> str:
    return f"{100 * row['mean']:+.1f} ({100 * row['low']:.1f} to {100 * row['high']:.1f})"


if __name__ == "__main__":
    main()
