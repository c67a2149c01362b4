"""`torch.compile` of a whole training step of JLGCN on a CPU, beside the same step without it.

    python -m benchmarks.compile_step --json results/benchmarks/compile_step.json

Forward pass, loss and backward pass on random nodes; both in one process, in turn. A step that does
not compile is recorded with its error.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import time
import warnings
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor
from torch._dynamo.utils import counters
from torch.nn.functional import cross_entropy

from benchmarks.measure import in_own_process, median_ratio, times_side_by_side, write_json
from jlgcn import as_graph
from jlgcn.nn import JLGCN

NUM_NODES, NUM_CHANNELS, NUM_CLASSES, NUM_EDGES = 2_708, 256, 7, 5_278


def side_by_side(backend: Literal["exact", "knn"], repeats: int) -> dict[str, object]:
    """Return CPU and wall seconds of a step, compiled and not, and by how much losses differ."""
    torch.manual_seed(0)
    logging.disable()
    x = torch.randn(NUM_NODES, NUM_CHANNELS) / NUM_CHANNELS**0.5
    y = torch.randint(NUM_CLASSES, (NUM_NODES,))
    ends = torch.randint(NUM_NODES, (2, NUM_EDGES))
    graph = as_graph(torch.cat([ends, ends.flip(0)], 1), NUM_NODES)
    train = torch.arange(140)
    # Dropout draws other numbers when compiled.
    model = JLGCN(NUM_CHANNELS, 16, NUM_CLASSES, dropout=0.0, backend=backend)
    model.calibrate(x, graph)

    def step() -> Tensor:
        loss = cross_entropy(model(x, graph).logits[train], y[train])
        loss.backward()
        return loss.detach()

    compiled = torch.compile(step)
    start = time.perf_counter()
    try:
        difference = abs(float(compiled()) - float(step()))
    except Exception as error:
        return {"error": f"{type(error).__name__}: {str(error)[:500]}"}
    first = time.perf_counter() - start
    seconds = times_side_by_side({"compiled": compiled, "eager": step}, repeats)
    return {
        "compiled / eager": round(median_ratio(seconds["compiled"], seconds["eager"]), 3),
        "eager, seconds": round(statistics.median(seconds["eager"]), 4),
        "compiled, seconds": round(statistics.median(seconds["compiled"]), 4),
        "first compiled step and an eager one, seconds": round(first, 1),
        "difference of losses": difference,
        "graph breaks": sum(counters["graph_break"].values()),
        "reasons": {reason.splitlines()[0]: n for reason, n in counters["graph_break"].items()},
    }


def main() -> None:
    """Measure both backends, each in a fresh process with one thread."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results: dict[str, object] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for backend in ("exact", "knn"):
            results[backend] = in_own_process(
                side_by_side, backend, arguments.repeats, num_threads=1
            )
            print(backend, results[backend], flush=True)
    if arguments.json is not None:
        settings: dict[str, object] = {
            "nodes": NUM_NODES,
            "features": NUM_CHANNELS,
            "edges": NUM_EDGES,
            "repeats": arguments.repeats,
            "threads": 1,
        }
        write_json(arguments.json, settings, results)


if __name__ == "__main__":
    main()
