"""Figures behind docs/reliability.md that are measured, not counted.

python -m benchmarks.reliability validation --json results/reliability/validation.json

- validation: what the checks of inputs cost beside an epoch on Pubmed;
- determinism: how many of so many runs of one seed, each in a process of its own, end in the same
  bits;
- soak: how memory grows over ten thousand steps;
- memory: what the dense graph takes beside what it is refused by;
- coverage: what ``coverage run -m pytest`` has left in this folder.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.measure import Run, in_own_process, peak_bytes, status_bytes, write_json
from jlgcn import _validation
from jlgcn.nn import JLGCN, GraphLearner
from jlgcn.nn.learner import dense_bytes
from jlgcn.paper import load_planetoid
from jlgcn.paper.citation import normalize_rows
from jlgcn.paper.node_data import NodeData, both_directions
from jlgcn.training import RunOptions, TrainConfig, fit_nodes


def small_problem(num_nodes: int = 200) -> NodeData:
    """Return two classes of nodes, with some edges within each."""
    generator = torch.Generator().manual_seed(7)
    y = torch.arange(num_nodes) % 2
    x = torch.randn(num_nodes, 6, generator=generator) + 1.5 * y.unsqueeze(-1)
    edges = torch.randint(0, num_nodes, (2, 2 * num_nodes), generator=generator)
    edges = edges[:, y[edges[0]] == y[edges[1]]]
    return NodeData(
        name="two classes",
        x=x,
        y=y,
        edge_index=both_directions(edges, num_nodes),
        train=torch.arange(20),
        val=torch.arange(20, 60),
        test=torch.arange(60, num_nodes),
        sha256="generated",
    )


def validation(repeats: int) -> dict[str, Any]:
    """Time all checks of one epoch's calls on Pubmed, and the epoch."""
    data = load_planetoid("pubmed")
    x, graph = normalize_rows(data.x), data.graph()
    torch.manual_seed(0)
    model = JLGCN(x.shape[1], 16, 3, backend="exact")
    optimizer = torch.optim.Adam(model.parameters())
    points = [learner.metric(x[:, : learner.in_channels]) for learner in model.learners[:1]]
    hidden = torch.randn(len(x), 16)

    def epoch() -> None:
        for is_training in (True, False):
            model.train(is_training)
            with torch.set_grad_enabled(is_training):
                out = model(x, graph, data.train if is_training else data.val)
                loss = cross_entropy(out.logits, data.y[data.train if is_training else data.val])
            if is_training:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

    def checks() -> None:
        first, second = model.learners
        for _ in range(2):  # the call that trains, and the one that validates
            _validation.as_input(x, first.metric.weight, x.shape[1])
            for learner, features in ((first, x), (second, hidden)):
                _validation.as_input(features, learner.metric.weight, features.shape[1])
                _validation.check_projection(points[0], features)
                learner.health.num_calls, learner.health.has_warned = 0, False  # the dear case
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    learner.health.look(points[0], model.learners[0](x[:1]))

    seconds = {"epoch": _median(epoch, repeats), "checks": _median(checks, max(3, repeats))}
    return seconds | {"share": seconds["checks"] / seconds["epoch"], "nodes": len(x)}


def _median(action: Callable[[], None], repeats: int) -> float:
    action()
    taken = []
    for _ in range(repeats):
        start = time.process_time()  # of this process: others may keep the machine busy
        action()
        taken.append(time.process_time() - start)
    return statistics.median(taken)


def one_run(seed: int) -> str:
    """Train with deterministic=True and return the hash of the parameters."""
    warnings.simplefilter("ignore", UserWarning)
    data = small_problem()
    torch.manual_seed(seed)
    return fit_nodes(
        JLGCN(6, 16, 2, rank=4),
        data.x,
        data.y,
        data.graph(),
        train=data.train,
        val=data.val,
        test=data.test,
        config=TrainConfig(epochs=30, lr=0.02),
        options=RunOptions(deterministic=True),
    ).parameter_sha256


def determinism(runs: int) -> dict[str, Any]:
    """Run one seed in fresh processes, and another one to see that they can differ."""
    hashes = [in_own_process(one_run, 0, num_threads=2) for _ in range(runs)]
    other = in_own_process(one_run, 1, num_threads=2)
    same = sum(found == hashes[0] for found in hashes)
    return {"runs": runs, "identical": same, "another seed differs": other != hashes[0]}


def soak(steps: int) -> dict[str, Any]:
    """Train for many steps and look at the memory after every thousand."""
    warnings.simplefilter("ignore", UserWarning)
    data = small_problem(60)
    model = JLGCN(6, 8, 2, rank=3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    graph = data.graph()
    after = []
    for step in range(1, steps + 1):
        out = model(data.x, graph)
        loss = cross_entropy(out.logits[data.train], data.y[data.train])
        loss = loss + 1e-4 * model.regularizer(out, data.x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % (steps // 10) == 0:
            after.append(status_bytes("VmRSS"))
    # The first tenth warms up what is allocated once.
    growth = (after[-1] - after[0]) / (steps * 0.9 / 1000)
    return {"steps": steps, "bytes after each tenth": after, "growth per 1,000 steps": growth}


def dense_step(num_nodes: int) -> Run:
    """Return a forward and backward pass of the dense learned graph."""
    x = torch.randn(num_nodes, 8)
    learner = GraphLearner(8, 4, backend="dense").calibrate(x)

    def run() -> None:
        product: Tensor = learner(x) @ x
        product.sum().backward()

    return run


def memory(sizes: list[int]) -> dict[str, Any]:
    """Compare peaks with what `backend="dense"` would be refused by."""
    found = {}
    for size in sizes:
        measured = peak_bytes(dense_step, size, num_threads=1)
        estimate = dense_bytes((size,), 4)
        found[str(size)] = {
            "estimate": estimate,
            "measured": measured,
            "ratio": estimate / measured,
        }
    return found


def coverage() -> dict[str, Any]:
    """Return how many lines and branches tests run, of those that are not excluded."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "coverage.json"
        command = [sys.executable, "-m", "coverage", "json", "-q", "-o", str(path)]
        subprocess.run(command, check=True)  # noqa: S603
        totals = json.loads(path.read_text())["totals"]
    return {
        "percent": totals["percent_covered"],
        "percent of lines": totals["percent_statements_covered"],
        "percent of branches": totals["percent_branches_covered"],
        "lines excluded": totals["excluded_lines"],
    }


def main() -> None:
    """Measure one of the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["validation", "determinism", "soak", "memory", "coverage"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[2000, 3000, 4000, 6000, 8000])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    match arguments.what:
        case "validation":
            results = validation(arguments.repeats)
        case "determinism":
            results = determinism(arguments.runs)
        case "soak":
            results = soak(arguments.steps)
        case "memory":
            results = memory(arguments.sizes)
        case _:
            results = coverage()
    print(results)
    if arguments.json is not None:
        write_json(arguments.json, {"what": arguments.what}, results)


if __name__ == "__main__":
    main()
