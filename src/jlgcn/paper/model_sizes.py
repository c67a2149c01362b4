"""Sizes of the networks for point clouds beside the published ones."""

from __future__ import annotations

import torch

from jlgcn.paper.cloud_experiment import make_model
from jlgcn.paper.clouds import PUBLISHED_MB, modelnet40

#: Numbers that Adam keeps for each parameter: itself and two moments.
_WITH_MOMENTS = 3

_NUM_CLASSES = 40
_FLOAT32_BYTES = 4


def size_table() -> list[tuple[str, ...]]:
    """Return the sizes of all networks of the point cloud table, with and without Adam's moments.

    Example:
        >>> size_table()[1][:2]
        ('knn-gcn', '10')
    """
    lines: list[tuple[str, ...]] = [
        ("network, 40 classes", "published MB", "parameters", "MB", "MB with Adam's moments")
    ]
    variants = sorted(modelnet40().variants, key=lambda v: v.experiment.model != "knn-gcn")
    for variant in variants:
        with torch.random.fork_rng(devices=[]):
            model = make_model(variant.experiment, _NUM_CLASSES)
        count = sum(p.numel() for p in model.parameters())
        megabytes = count * _FLOAT32_BYTES / 1e6
        lines.append(
            (
                variant.name,
                f"{PUBLISHED_MB[variant.experiment.model]}",
                f"{count:,}",
                f"{megabytes:.1f}",
                f"{_WITH_MOMENTS * megabytes:.1f}",
            )
        )
    return lines
