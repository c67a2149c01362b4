"""Where other methods stop, and how long they take where they do not.

    python -m benchmarks.scale_peers --nodes 2000 10000 50000 200000 --out results/scale

Each method and size in a process of its own, one thread, memory limited. A network takes one
training step; label spreading takes a whole fit, which is all it has. Rows are random, 64 features,
ten classes, a tenth of the rows labelled; no edges are known, so SGFormer sees only its attention.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.measure import in_own_process, status_bytes, table, write_json
from jlgcn.graphs import DenseGraph
from jlgcn.nn import JLGCN
from jlgcn.nn.learner import Backend
from jlgcn.ops.blocks import kernel_matrix

NUM_FEATURES, HIDDEN, NUM_CLASSES, RANK = 64, 16, 10, 16


def inputs(num_nodes: int) -> tuple[Tensor, Tensor]:
    """Return rows around ten centres, and their classes."""
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(0, NUM_CLASSES, (num_nodes,), generator=generator)
    centers = torch.randn(NUM_CLASSES, NUM_FEATURES, generator=generator)
    return centers[y] + torch.randn(num_nodes, NUM_FEATURES, generator=generator), y


def step(forward: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> None:
    """Do one training step on a tenth of the rows."""
    labelled = slice(len(x) // 10)
    cross_entropy(forward(x)[labelled], y[labelled]).backward()


def ours(backend: Backend, num_nodes: int) -> None:
    """Two layers, each of which learns a graph."""
    model = JLGCN(NUM_FEATURES, HIDDEN, NUM_CLASSES, rank=RANK, options="paper", backend=backend)
    step(lambda x: model(x).logits, *inputs(num_nodes))


def dense_layer(num_nodes: int) -> None:
    """The same two layers, written with the matrix of all weights."""
    first, second = nn.Linear(NUM_FEATURES, HIDDEN), nn.Linear(HIDDEN, NUM_CLASSES)
    metric, later = nn.Linear(NUM_FEATURES, RANK, bias=False), nn.Linear(HIDDEN, RANK, bias=False)

    def forward(x: Tensor) -> Tensor:
        learned = DenseGraph(kernel_matrix(metric(x))).normalized()
        hidden = (learned @ first(x)).relu()
        both = DenseGraph(learned.to_dense() + kernel_matrix(later(hidden))).normalized()
        logits: Tensor = both @ second(hidden)
        return logits

    step(forward, *inputs(num_nodes))


def sgformer(num_nodes: int) -> None:
    """SGFormer of PyTorch Geometric, with two layers of attention, as by default."""
    from torch_geometric.nn.models import SGFormer

    model = SGFormer(NUM_FEATURES, HIDDEN, NUM_CLASSES)
    edges = torch.empty(2, 0, dtype=torch.int64)
    batch = torch.zeros(num_nodes, dtype=torch.int64)
    step(lambda x: model(x, edges, batch), *inputs(num_nodes))


def label_spreading(kernel: str, num_nodes: int) -> None:
    """Label spreading of scikit-learn, to its end."""
    from sklearn.semi_supervised import LabelSpreading

    x, y = inputs(num_nodes)
    y[num_nodes // 10 :] = -1
    LabelSpreading(kernel=kernel, gamma=0.01, n_neighbors=16).fit(x.numpy(), y.numpy())


METHODS: dict[str, Callable[[int], None]] = {
    "jlgcn, exact": partial(ours, "exact"),
    "jlgcn, kNN": partial(ours, "knn"),
    "the matrix of all weights": dense_layer,
    "SGFormer": sgformer,
    "LabelSpreading, rbf": partial(label_spreading, "rbf"),
    "LabelSpreading, knn": partial(label_spreading, "knn"),
}


def measured(name: str, num_nodes: int, limit: int) -> dict[str, Any]:
    """Run a method once more than once, and return its time and peak, or how it stopped."""
    METHODS[name](200)  # what is loaded at first use does not count
    before = status_bytes("VmRSS")
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    start = time.perf_counter()
    try:
        METHODS[name](num_nodes)
    except (MemoryError, RuntimeError, ValueError) as problem:
        text = str(problem).splitlines()[0]
        if not isinstance(problem, MemoryError) and "allocate" not in text and "GiB" not in text:
            raise
        return {"stopped": text[:120]}
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "peak bytes": status_bytes("VmHWM") - before}


def main() -> None:
    """Measure all methods at all sizes; one that takes too long, or stops, gets no larger one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, nargs="+", default=[2_000, 10_000, 50_000, 200_000])
    parser.add_argument("--gib", type=float, default=12, help="memory of each")
    parser.add_argument("--seconds", type=float, default=60, help="no larger size after so many")
    parser.add_argument("--out", type=Path, default=Path("results/scale"))
    args = parser.parse_args()
    found: dict[str, Any] = {}
    rows = []
    for name in METHODS:
        found[name] = {}
        for size in args.nodes:
            limit = int(args.gib * 2**30)
            found[name][str(size)] = in_own_process(measured, name, size, limit, num_threads=1)
            result = found[name][str(size)]
            text = result.get("stopped") or f"{result['seconds']:.2f} s"
            rows.append([name, f"{size:,}", text, f"{result.get('peak bytes', 0) / 2**20:.0f} MiB"])
            if result.get("seconds", args.seconds) >= args.seconds:
                break
    write_json(args.out / "peers.json", {"gib": args.gib, "seconds": args.seconds}, found)
    print(table(["", "nodes", "", "memory"], rows))


if __name__ == "__main__":
    main()
