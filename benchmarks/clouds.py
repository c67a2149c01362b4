"""A training step of the paper's network for clouds beside kNN-GCN, PointNet and DGCNN, in one run.

    python -m benchmarks.clouds --clouds 32 --points 1024

Forward and backward pass of 32 random clouds of 1,024 points and a step of Adam: seconds, clouds a
second, peak memory, and the size of the parameters. JLGCN by both ways to hold its graphs.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from benchmarks.measure import Run, median_ratio, peak_bytes, table, times_side_by_side, write_json
from jlgcn.nn import GraphLevelJLGCN
from jlgcn.paper.cloud_baselines import DGCNN, KnnGCN, PointNet

NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "jlgcn, exact": lambda: GraphLevelJLGCN(3, 40, backend="exact"),
    "jlgcn, dense": lambda: GraphLevelJLGCN(3, 40, backend="dense"),
    "knn-gcn": lambda: KnnGCN(3, 40),
    "pointnet": lambda: PointNet(3, 40),
    "dgcnn": lambda: DGCNN(3, 40),
}


def prepare(name: str, num_clouds: int, num_points: int) -> Run:
    """Return a function that runs one step of a network."""
    torch.manual_seed(0)
    model = NETWORKS[name]()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    points = nn.functional.normalize(torch.randn(num_clouds, num_points, 3), dim=-1)
    y = torch.arange(num_clouds) % 40

    def run() -> None:
        loss = cross_entropy(model(points).logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return run


def main() -> None:
    """Parse the command line, measure, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clouds", type=int, default=32)
    parser.add_argument("--points", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path, help="write the figures here")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    sizes = (args.clouds, args.points)
    seconds = times_side_by_side({name: prepare(name, *sizes) for name in NETWORKS}, args.repeats)
    results = {}
    for name, make in NETWORKS.items():
        print(f"peak of {name} …", flush=True)
        results[name] = {
            "seconds": statistics.median(seconds[name]),
            "ratio_to_dgcnn": median_ratio(seconds[name], seconds["dgcnn"]),
            "clouds_per_second": args.clouds / statistics.median(seconds[name]),
            "peak_bytes": peak_bytes(prepare, name, *sizes, num_threads=args.threads),
            "model_bytes": sum(p.numel() * p.element_size() for p in make().parameters()),
        }
    rows = [
        [
            name,
            f"{r['seconds']:.2f} s",
            f"{r['ratio_to_dgcnn']:.2f}",
            f"{r['clouds_per_second']:.1f}",
            f"{r['peak_bytes'] / 2**20:,.0f} MiB",
            f"{r['model_bytes'] / 1e6:.1f} MB",
        ]
        for name, r in results.items()
    ]
    print(f"\n{args.clouds} clouds of {args.points} points, {args.threads} threads\n")
    print(table(["", "step", "× dgcnn", "clouds a second", "peak", "size"], rows))
    if args.json:
        settings = {key: value for key, value in vars(args).items() if key != "json"}
        write_json(args.json, settings, {"cases": results})


if __name__ == "__main__":
    main()
