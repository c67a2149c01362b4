"""A small problem of two classes, and a program that trains on it: what is killed in the tests."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from jlgcn.nn import JLGCN
from jlgcn.paper.cloud_data import CloudData
from jlgcn.paper.node_data import NodeData, both_directions
from jlgcn.training import FitResult, RunOptions, TrainConfig, fit_graphs, fit_nodes
from jlgcn.training.points import unit_sphere


def small_data(num_nodes: int = 120) -> NodeData:
    generator = torch.Generator().manual_seed(7)
    y = torch.arange(num_nodes) % 2
    x = torch.randn(num_nodes, 6, generator=generator) + 1.5 * y.unsqueeze(-1)
    edges = torch.randint(0, num_nodes, (2, 2 * num_nodes), generator=generator)
    edges = edges[:, y[edges[0]] == y[edges[1]]]
    return NodeData(
        name="small",
        x=x,
        y=y,
        edge_index=both_directions(edges, num_nodes),
        train=torch.arange(10),
        val=torch.arange(10, 40),
        test=torch.arange(40, num_nodes),
        sha256="small",
    )


def small_clouds(count: int = 66) -> CloudData:
    """Spheres, sticks and plates."""
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(count, 40, 3, generator=generator)
    y = torch.arange(count) % 3
    points[y == 1] *= torch.tensor([0.05, 0.05, 1.0])
    points[y == 2] *= torch.tensor([1.0, 0.05, 1.0])
    part = count // 3
    return CloudData(
        name="shapes",
        points=unit_sphere(points),
        y=y,
        train=torch.arange(part),
        val=torch.arange(part, 2 * part),
        test=torch.arange(2 * part, count),
        sha256="shapes",
    )


def fit_data(model: nn.Module, data: NodeData, **keywords: Any) -> FitResult:  # noqa: ANN401
    """Train on the data, parts of which keywords may replace."""
    parts: dict[str, Any] = {name: getattr(data, name) for name in ("x", "train", "val", "test")}
    return fit_nodes(model, y=data.y, graph=data.graph(), **parts | keywords)


def fit_clouds(make: Callable[[], nn.Module], data: CloudData, **keywords: Any) -> FitResult:  # noqa: ANN401
    """Make a network by the seed, as recipes do, and train it on clouds."""
    seed = keywords.pop("seed", 0)
    parts: dict[str, Any] = {name: getattr(data, name) for name in ("train", "val", "test")}
    torch.manual_seed(seed)
    return fit_graphs(make(), data.points, data.y, **parts | keywords)


def train_small(
    seed: int, epochs: int, checkpoints: Path | None = None, *, trace_test: bool = False
) -> tuple[JLGCN, FitResult]:
    torch.manual_seed(seed)
    model = JLGCN(6, 8, 2, rank=3)
    result = fit_data(
        model,
        small_data(),
        config=TrainConfig(epochs=epochs, lr=0.02, lr_step=20),
        trace_test=trace_test,
        options=RunOptions(checkpoints=checkpoints, checkpoint_seconds=0),
    )
    return model, result


if __name__ == "__main__":
    torch.set_num_threads(1)
    try:
        _, result = train_small(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
    except KeyboardInterrupt:  # which Python would turn into 130, or 1, by what else is imported
        sys.exit(130)
    print(result.parameter_sha256)
