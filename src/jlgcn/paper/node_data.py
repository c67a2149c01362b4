"""Data for node classification: features, labels, graph, split."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from jlgcn.graphs import SparseGraph
from jlgcn.ops.csr import symmetric_pattern


@dataclass(frozen=True, eq=False)
class NodeData:
    """A graph for transductive node classification, with its split.

    Attributes:
        name (str): name of the data set.
        x (Tensor): features, (N, in_channels), float32.
        y (Tensor): classes, (N,), int64; -1 if unknown.
        edge_index (Tensor): given edges, (2, E), int64, in both directions, without self-loops and
            duplicates.
        train (Tensor): training nodes, int64.
        val (Tensor): validation nodes, for model selection.
        test (Tensor): test nodes, evaluated once, after selection.
        sha256 (str): hash of the source files.
        names (tuple of str or None): ids of the nodes, if the source has any.
        class_names (tuple of str or None): names of the classes, if the source has any.
    """

    name: str
    x: Tensor
    y: Tensor
    edge_index: Tensor
    train: Tensor
    val: Tensor
    test: Tensor
    sha256: str
    names: tuple[str, ...] | None = None
    class_names: tuple[str, ...] | None = None

    @property
    def num_nodes(self) -> int:
        """Number of nodes, N."""
        return self.x.shape[0]

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return int(self.y.max()) + 1

    def graph(self) -> SparseGraph:
        """Return the given graph."""
        return SparseGraph(self.edge_index, num_nodes=self.num_nodes)

    def to(self, device: torch.device | str) -> NodeData:
        """Return a copy with all tensors on a device."""
        names = ("x", "y", "edge_index", "train", "val", "test")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})

    def subset(self, nodes: Tensor) -> NodeData:
        """Return the induced subgraph of these nodes, renumbered in this order, and its split."""
        place = torch.full_like(self.y, -1, dtype=torch.int64)
        place[nodes] = torch.arange(nodes.shape[0], device=place.device)
        edges = place[self.edge_index]
        return replace(
            self,
            x=self.x[nodes],
            y=self.y[nodes],
            edge_index=edges[:, (edges >= 0).all(0)],
            train=_kept(place[self.train]),
            val=_kept(place[self.val]),
            test=_kept(place[self.test]),
            names=None if self.names is None else tuple(self.names[i] for i in nodes.tolist()),
        )

    def __repr__(self) -> str:
        return (
            f"NodeData({self.name}: {self.num_nodes:,} nodes, {self.edge_index.shape[1] // 2:,} "
            f"edges, {self.x.shape[1]:,} features, {self.num_classes} classes, "
            f"{len(self.train):,} / {len(self.val):,} / {len(self.test):,} train / val / test)"
        )


def both_directions(edges: Tensor, num_nodes: int) -> Tensor:
    """Symmetrise an edge list, (2, E): sorted, without duplicates and self-loops.

    Example:
        >>> both_directions(torch.tensor([[2, 0, 1], [1, 1, 1]]), 3)
        tensor([[0, 1, 1, 2],
                [1, 0, 2, 1]])
    """
    row, col = edges[:, edges[0] != edges[1]]
    pattern = symmetric_pattern(row, col, num_nodes)
    return torch.stack([pattern.row, pattern.col])


def _kept(place: Tensor) -> Tensor:
    return place[place >= 0]
