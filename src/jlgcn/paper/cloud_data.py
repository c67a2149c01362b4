"""Data for classification of point clouds: coordinates, labels, split."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class CloudData:
    """Point clouds of equal size for classification, with their split.

    Attributes:
        name (str): name of the data set.
        points (Tensor): coordinates, (B, N, 3), float32.
        y (Tensor): classes, (B,), int64.
        train (Tensor): training clouds, int64.
        val (Tensor): validation clouds, for model selection.
        test (Tensor): test clouds, evaluated once, after selection.
        sha256 (str): hash of the source files.
        class_names (tuple of str or None): names of the classes, if the source has any.
    """

    name: str
    points: Tensor
    y: Tensor
    train: Tensor
    val: Tensor
    test: Tensor
    sha256: str
    class_names: tuple[str, ...] | None = None

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return int(self.y.max()) + 1

    def to(self, device: torch.device | str) -> CloudData:
        """Return a copy with all tensors on a device."""
        names = ("points", "y", "train", "val", "test")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})

    def __repr__(self) -> str:
        return (
            f"CloudData({self.name}, {len(self.points):,} clouds of {self.points.shape[1]:,} "
            f"points, {self.num_classes} classes, train {len(self.train):,}, "
            f"val {len(self.val):,}, test {len(self.test):,})"
        )
