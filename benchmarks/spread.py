"""How many features to spread at a time: the same walk on all at once, and on some after others.

    python -m benchmarks.spread --json results/benchmarks/spread.json

Nodes in a ring, each joined with twenty of the 3,000 next; 1,024 features, one thread. Times are
side by side in one process, as ratios to all features at once; peaks are of processes of their own.
"""

from __future__ import annotations

import argparse
import statistics
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.measure import Run, median_ratio, peak_bytes, table, times_side_by_side, write_json
from jlgcn import SparseGraph
from jlgcn.graphs import Graph, personalized_pagerank

NUM_FEATURES = 1024
RESTART = 0.2


def make(num_nodes: int) -> tuple[Graph, Tensor]:
    """Return a graph and what is to be spread over it."""
    generator = torch.Generator().manual_seed(0)
    row = torch.arange(num_nodes).repeat_interleave(20)
    step = torch.randint(1, min(num_nodes // 2, 3000), row.shape, generator=generator)
    pairs = torch.stack([row, (row + step) % num_nodes])
    graph = SparseGraph(torch.cat([pairs, pairs.flip(0)], 1).unique(dim=1), num_nodes=num_nodes)
    return graph.normalized(), torch.randn(num_nodes, NUM_FEATURES, generator=generator)


def spread(graph: Graph, x: Tensor, width: int) -> Tensor:
    """Return all features, spread some at a time."""
    parts = [
        personalized_pagerank(graph, part.contiguous(), RESTART) for part in x.split(width, -1)
    ]
    return torch.cat(parts, -1)


def prepare(num_nodes: int, width: int) -> Run:
    """Return a run whose memory is to be measured."""
    return partial(spread, *make(num_nodes), width)


def main() -> None:
    """Parse the command line, measure, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, nargs="+", default=[2_700, 20_000, 60_000])
    parser.add_argument("--widths", type=int, nargs="+", default=[256, 64, 16])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the figures here")
    args = parser.parse_args()
    torch.set_num_threads(1)
    widths = [NUM_FEATURES, *args.widths]
    found: list[dict[str, Any]] = []
    for num_nodes in args.nodes:
        graph, x = make(num_nodes)
        cases: dict[str, Run] = {str(width): partial(spread, graph, x, width) for width in widths}
        seconds = times_side_by_side(cases, args.repeats)
        del graph, x, cases
        for width in widths:
            own, base = seconds[str(width)], seconds[str(NUM_FEATURES)]
            peak = peak_bytes(prepare, num_nodes, width, num_threads=1)
            found.append(
                {
                    "nodes": num_nodes,
                    "features_at_a_time": width,
                    "seconds": statistics.median(own),
                    "ratio": median_ratio(own, base),
                    "peak_bytes": peak,
                }
            )
    rows = [
        [
            f"{one['nodes']:,}",
            f"{one['features_at_a_time']}",
            f"{one['seconds']:.2f} s",
            f"{one['ratio']:.2f}",
            f"{one['peak_bytes'] / 2**20:,.0f} MiB",
        ]
        for one in found
    ]
    print(table(["nodes", "at a time", "time", "× all at once", "peak"], rows))
    if args.json:
        settings = {"restart": RESTART, "features": NUM_FEATURES, "repeats": args.repeats}
        write_json(args.json, settings, {"runs": found})


if __name__ == "__main__":
    main()
