"""Nodes with features, labels, a graph and a split."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from jlgcn.graphs import SparseGraph
from jlgcn.ops.csr import symmetric_pattern


@dataclass(frozen=True, eq=False)
class NodeData:
    """One graph whose nodes are to be classified.

    Attributes:
        name: what it is called.
        x: features, (N, in_channels), float32.
        y: classes, (N,), int64; -1 where the class is not known to anybody.
        edge_index: given edges, (2, E), both directions, no self-loops, no repetition.
        train: nodes whose labels may be learned from, int64.
        val: nodes whose labels select.
        test: nodes whose labels are looked at once, after selection.
        sha256: hash over the files it was read from.
        names: an id for each node, where the source has one.
        class_names: names of the classes, where the source has them.
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
        """Return the given edges as a graph."""
        return SparseGraph(self.edge_index, num_nodes=self.num_nodes)

    def to(self, device: torch.device | str) -> NodeData:
        """Return the data with all tensors on a device."""
        names = ("x", "y", "edge_index", "train", "val", "test")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})

    def subset(self, nodes: Tensor) -> NodeData:
        """Return the part of the data on these nodes, which are numbered anew in this order.

        Edges with one end outside are dropped, and so are nodes of the split.
        """
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
    """Return each edge of a list, (2, E), once in each direction, sorted, without self-loops.

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
