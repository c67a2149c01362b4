"""A training step on kNN graphs: against an earlier commit, and as the number of nodes grows.

    git worktree add --detach ../old 0a9b330
    python -m benchmarks.scale_knn_step --old ../old/src --out results/scale
    python -m benchmarks.scale_knn_step --nodes 20000 50000 100000 200000 500000

- `--old`: steps on Pubmed (all nodes and features, 16 neighbours; forward pass, backward pass,
  regularizer and Adam as in fit_nodes), of the commit there and of this one by turns, each in a
  process of its own. The first loss without dropout must agree, where candidates are the same.
- `--nodes`: steps on synthetic features around fifty centres, beside those of SGFormer, and of a
  linear attention with the same width; the search for neighbours is timed on its own.

Times are CPU seconds of one thread.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.measure import growth_exponent, in_own_process, table, write_json

HIDDEN, NUM_CLASSES, NUM_FEATURES, NUM_NEIGHBORS, PROBES = 16, 10, 64, 16, 16

# Runs under both commits: it uses nothing but the constructor, the forward pass and the
# regularizer, and reads the inputs from a file.
WORKER = """
import inspect, json, sys, time
import torch
from torch.nn.functional import cross_entropy
from jlgcn.nn import JLGCN
torch.set_num_threads(1)
data = torch.load(sys.argv[1], weights_only=True)
x, y, edges, train = data["x"], data["y"], data["edges"], data["train"]
lr = float(sys.argv[2])
from jlgcn import as_graph
graph = as_graph(edges, len(x))
extra = "probes" in inspect.signature(JLGCN.forward).parameters

def network(dropout):
    torch.manual_seed(0)
    return JLGCN(x.shape[1], 16, 3, backend="knn", num_neighbors=16, dropout=dropout)

def loss_of(model, exact):
    probes = None if exact else 16
    more = {"probes": probes} if extra else {}
    out = model(x, graph, train, **more)
    loss = cross_entropy(out.logits, y[train])
    return loss + 1e-4 * model.regularizer(out, x, probes=probes)

def send(**what):
    print(json.dumps(what), flush=True)

model = network(0.0)
send(loss=float(loss_of(model, True).detach()))
model = network(0.5)
adam = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=5e-4)
for line in sys.stdin:
    model.train()
    start = time.process_time()
    loss = loss_of(model, False)
    adam.zero_grad()
    loss.backward()
    adam.step()
    seconds = time.process_time() - start
    kept = getattr(model, "neighbors", None)
    send(loss=float(loss.detach()), seconds=seconds,
         searches=kept.num_searches if kept else 0)
"""


class Worker:
    """A process that does training steps of one commit."""

    def __init__(self, source: Path, inputs: Path, lr: float) -> None:
        command = [sys.executable, "-W", "ignore", "-c", WORKER, str(inputs), str(lr)]
        environment = {"PYTHONPATH": str(source.resolve()), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.first_loss = float(self.read()["loss"])

    def read(self) -> dict[str, Any]:
        """Return the next line it prints."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process ended with {self.process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def step(self) -> dict[str, Any]:
        """Do one step."""
        assert self.process.stdin is not None
        self.process.stdin.write("step\n")
        self.process.stdin.flush()
        return self.read()

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def against(old: Path, steps: int, lr: float, folder: Path) -> dict[str, Any]:
    """Return the times of steps on Pubmed, of both commits by turns."""
    from jlgcn.paper import load_planetoid

    data = load_planetoid("pubmed")
    inputs = folder / "pubmed.pt"
    tensors = {"x": data.x, "y": data.y, "edges": data.edge_index, "train": data.train}
    torch.save(tensors, inputs)
    new = Path(__file__).parents[1] / "src"
    workers = {"old": Worker(old, inputs, lr), "new": Worker(new, inputs, lr)}
    difference = abs(workers["new"].first_loss / workers["old"].first_loss - 1)
    lines: dict[str, list[dict[str, Any]]] = {"old": [], "new": []}
    for number in range(steps):
        for name in ("old", "new") if number % 2 else ("new", "old"):
            lines[name].append(workers[name].step())
            print(name, lines[name][-1], flush=True)
    for worker in workers.values():
        worker.close()
    seconds = {name: [line["seconds"] for line in of] for name, of in lines.items()}
    searches = [0, *(line["searches"] for line in lines["new"])]
    pairs = zip(seconds["new"], pairwise(searches), strict=True)
    kept = [taken for taken, (before, after) in pairs if before == after]
    old_mean = statistics.fmean(seconds["old"])
    return {
        "first loss, relative difference": difference,
        "steps": steps,
        "lr": lr,
        "searches": searches[-1],
        "seconds": seconds,
        "all steps, times faster": old_mean / statistics.fmean(seconds["new"]),
        "steps without a search, times faster": old_mean / statistics.fmean(kept),
    }


def inputs(num_nodes: int) -> tuple[Tensor, Tensor]:
    """Return features around fifty centres, and classes."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(50, NUM_FEATURES, generator=generator)
    label = torch.randint(0, 50, (num_nodes,), generator=generator)
    noise = 0.5 * torch.randn(num_nodes, NUM_FEATURES, generator=generator)
    return centres[label] + noise, label % NUM_CLASSES


class LinearAttention(nn.Module):
    """Two layers of linear attention as SGFormer defines them, of the width of our network.

    With Q and K divided by their Frobenius norms, ``D⁻¹ (V + Q (Kᵀ V) / N)`` with
    ``D = 1 + Q (Kᵀ 1) / N``, between a first and a last linear map.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(NUM_FEATURES, HIDDEN), nn.Linear(HIDDEN, NUM_CLASSES)
        self.maps = nn.ModuleList(nn.Linear(HIDDEN, 3 * HIDDEN) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        h = self.first(x).relu()
        for one in self.maps:
            query, key, value = one(h).chunk(3, -1)
            query, key = query / query.norm(), key / key.norm()
            size = len(h)
            degree = 1 + query @ key.sum(0, keepdim=True).mT / size
            h = ((value + query @ (key.mT @ value) / size) / degree + h) / 2
        logits: Tensor = self.last(h)
        return logits


def repeated(step: Callable[[], None], repeats: int) -> float:
    """Return the median CPU seconds of a step, after two that do not count."""
    seconds = []
    for _ in range(repeats + 2):
        start = time.process_time()
        step()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds[2:])


def growth(num_nodes: int, repeats: int) -> dict[str, float]:
    """Return the times of one size."""
    from torch_geometric.nn.models import SGFormer

    from jlgcn.nn import JLGCN, JLGCNOptions

    x, y = inputs(num_nodes)
    train = torch.arange(0, num_nodes, 10)
    torch.manual_seed(0)
    options = JLGCNOptions(metric_init="median")
    model = JLGCN(
        NUM_FEATURES, HIDDEN, NUM_CLASSES, options=options, backend="knn", min_recall=0.0
    ).calibrate(x[:2000])

    def ours() -> None:
        out = model(x, None, train, probes=PROBES)
        loss = cross_entropy(out.logits, y[train]) + 1e-4 * model.regularizer(out, x, probes=PROBES)
        loss.backward()

    start = time.process_time()
    ours()  # searches, by FAISS above 50,000 nodes
    first = time.process_time() - start
    found = {"our step": repeated(ours, repeats)}
    found["search for both layers"] = first - found["our step"]
    attention = LinearAttention()
    found["linear attention"] = repeated(
        lambda: cross_entropy(attention(x)[train], y[train]).backward(), repeats
    )
    sgformer = SGFormer(NUM_FEATURES, HIDDEN, NUM_CLASSES)
    edges, batch = torch.empty(2, 0, dtype=torch.int64), torch.zeros(num_nodes, dtype=torch.int64)
    found["SGFormer"] = repeated(
        lambda: cross_entropy(sgformer(x, edges, batch)[train], y[train]).backward(), repeats
    )
    return found


def main() -> None:
    """Measure what is asked for, write and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--old", type=Path, help="src folder of an earlier commit")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--nodes", type=int, nargs="*", default=[])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("results/scale"))
    args = parser.parse_args()
    settings: dict[str, object] = {"repeats": args.repeats, "threads": 1}
    if args.old is not None:
        with tempfile.TemporaryDirectory() as folder:
            found = against(args.old, args.steps, args.lr, Path(folder))
        write_json(args.out / "kept_step.json", {"threads": 1}, found)
        print(json.dumps({k: v for k, v in found.items() if k != "seconds"}, indent=2))
    if args.nodes:
        sizes: dict[str, dict[str, float]] = {}
        for size in args.nodes:
            sizes[str(size)] = in_own_process(growth, size, args.repeats, num_threads=1)
            print(size, sizes[str(size)], flush=True)
        names = list(sizes[str(args.nodes[0])])
        exponents = {
            name: growth_exponent(args.nodes, [sizes[str(size)][name] for size in args.nodes])
            for name in names
        }
        results: dict[str, object] = {"seconds": sizes, "exponents": exponents}
        write_json(args.out / "knn_growth.json", settings, results)
        rows = [[f"{n:,}", *(f"{sizes[str(n)][name]:.2f} s" for name in names)] for n in args.nodes]
        rows.append(["exponent", *(f"{exponents[name]:.2f}" for name in names)])
        print(table(["nodes", *names], rows))


if __name__ == "__main__":
    main()
