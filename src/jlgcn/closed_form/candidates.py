"""Pairs of nodes that a metric may join, found once; and the graphs that metrics make of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from jlgcn.closed_form.options import SelectedOptions
from jlgcn.graphs import SparseGraph
from jlgcn.ops import SparseFeatures, nearest_neighbors
from jlgcn.ops.csr import Pattern, symmetric_pattern
from jlgcn.ops.sparse_matrix import pair_distances

Features = Tensor | SparseFeatures

# The unit of distances is the median distance of this many neighbours.
_UNIT_NEIGHBORS = 20

# Differences that are held at a time where candidates are compared under a metric.
_CHUNK_ENTRIES = 2**22


class JoinedGraph(NamedTuple):
    """A learned graph, and its sum with what is given.

    Attributes:
        learned: the learned graph, not scaled.
        scale: what it is multiplied by in the sum.
        total: the scaled learned graph, the given one and self-loops of weight 1.
    """

    learned: SparseGraph
    scale: float
    total: SparseGraph


@dataclass(frozen=True, eq=False)
class Candidates:
    r"""Each node's nearest rows, among which a metric chooses.

    .. math:: d_{ij}^2 = \|f_i - f_j\|^2 / u + \|R^\top (f_i - f_j)\|^2, \qquad a_{ij} = \exp(-d_{ij}^2)

    Attributes:
        x: features, (N, in_channels).
        unit: u, the median squared distance of features to a near neighbour.
        index: the nearest rows of each, (N, num_candidates), int64; -1 for none.
        distance: of their features, squared, in units of u; inf for none.
        given: the given graph; None for none.
        given_distance: the same for the ends of its entries.
    """  # noqa: E501

    x: Features
    unit: float
    index: Tensor
    distance: Tensor
    given: SparseGraph | None
    given_distance: Tensor | None

    @classmethod
    def find(cls, x: Features, num_candidates: int, given: SparseGraph | None) -> Candidates:
        """Search every row's nearest ones."""
        index, distance = _nearest(x, x, num_candidates, is_same=True)
        near = distance.topk(min(_UNIT_NEIGHBORS, index.shape[1]), largest=False).values
        near = near[near.isfinite()]
        unit = float(near.median()) if near.numel() else 0.0
        unit = unit if unit > 0 else 1.0  # all rows alike
        given_distance = None
        if given is not None:
            given_distance = pair_distances(x, given.pattern.row, given.pattern.col) / unit
        return cls(x, unit, index, distance / unit, given, given_distance)

    def join(
        self, metric: Tensor, options: SelectedOptions, order: Tensor | None = None
    ) -> JoinedGraph:
        """Return the graphs under a metric, (in_channels, rank).

        Args:
            metric: R.
            options: how to build the graph.
            order: the node whose place in the learned graph each takes, (N,); None for its own.
        """
        z = self.x @ metric
        num_nodes = self.index.shape[0]
        row, col, weight = _choose(self.index, self._learned_distance(z), options.n_neighbors)
        if order is not None:
            row, col = order[row], order[col]
        pattern = symmetric_pattern(row, col, num_nodes)
        entries = weight.new_zeros(pattern.num_edges)
        entries[pattern.find(row, col)] = weight
        entries = torch.maximum(entries, entries[pattern.reverse])
        total = float(entries.sum())
        scale = options.learned_degree * num_nodes / total if total > 0 else 1.0
        parts = [(pattern, scale * entries)]
        if self.given is not None:
            parts.append((self.given.pattern, self._given_weight(z, options.given_decay)))
        learned = SparseGraph.from_pattern(pattern, entries)
        return JoinedGraph(learned, scale, _sum_with_loops(parts, num_nodes))

    def attach(
        self,
        x: Features,  # (M, in_channels)
        metric: Tensor,
        options: SelectedOptions,
        scale: float,
        edges: tuple[Tensor, Tensor] | None,  # (2, E), int64, and (E,)
    ) -> tuple[Tensor, Tensor, Tensor]:  # each (E',)
        """Return the new node, the old one and the weight of each edge of new nodes."""
        index, distance = _nearest(x, self.x, self.index.shape[1], is_same=False)
        new, old = x @ metric, self.x @ metric
        row = torch.arange(len(new)).repeat_interleave(index.shape[1])
        added = pair_distances(new, row, index.flatten().clamp(min=0), old)
        distance = distance / self.unit + added.view(index.shape)
        row, col, weight = _choose(index, distance, options.n_neighbors)
        weight = scale * weight
        if edges is not None:
            (first, second), given = edges
            known = pair_distances(x, first, second, self.x) / self.unit
            known = known + pair_distances(new, first, second, old)
            row, col = torch.cat([row, first]), torch.cat([col, second])
            given = given.to(weight.dtype) * (-options.given_decay * known).exp()
            weight = torch.cat([weight, given])
        return row, col, weight

    def weighted_given(self, metric: Tensor, decay: float) -> SparseGraph | None:
        """Return the given graph with the weights it has under a metric, if there is one."""
        if self.given is None:
            return None
        weight = self._given_weight(self.x @ metric, decay)
        return SparseGraph.from_pattern(self.given.pattern, weight)

    def features_of(self, nodes: Tensor) -> Tensor:  # (K, in_channels)
        """Return the features of some nodes, dense."""
        if isinstance(self.x, Tensor):
            return self.x[nodes]
        return torch.from_numpy(self.x.to_scipy()[nodes.numpy()].toarray())

    def _learned_distance(self, z: Tensor) -> Tensor:
        """Return the candidates' distances under a metric, some rows at a time."""
        size = max(1, _CHUNK_ENTRIES // max(1, self.index.shape[1] * z.shape[1]))
        parts = [
            distance + (z[rows].unsqueeze(1) - z[index]).square().sum(-1)
            for rows, index, distance in zip(
                torch.arange(len(z)).split(size),
                self.index.split(size),
                self.distance.split(size),
                strict=True,
            )
        ]
        return torch.cat(parts)

    def _given_weight(self, z: Tensor, decay: float) -> Tensor:
        assert self.given is not None
        assert self.given_distance is not None
        weight = self.given.weight.to(z.dtype)
        if decay == 0:
            return weight
        added = pair_distances(z, self.given.pattern.row, self.given.pattern.col)
        return weight * (-decay * (self.given_distance + added)).exp()


def _nearest(
    x: Features, among: Features, num_candidates: int, *, is_same: bool
) -> tuple[Tensor, Tensor]:
    """Return rows of `among` near to those of x, and their squared distances, inf for none."""
    index = nearest_neighbors(among, num_candidates, queries=None if is_same else x)
    row = torch.arange(x.shape[0]).repeat_interleave(index.shape[1])
    distance = pair_distances(x, row, index.flatten().clamp(min=0), among).view(index.shape)
    distance = distance.masked_fill(index < 0, torch.inf)
    if isinstance(x, SparseFeatures):  # a row without entries says nothing about its neighbours
        distance = distance.masked_fill((x.crow.diff() == 0).unsqueeze(-1), torch.inf)
    return index, distance


def _choose(index: Tensor, distance: Tensor, num_neighbors: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return row, column and weight of the heaviest candidates of each row."""
    near, place = distance.topk(min(num_neighbors, index.shape[1]), largest=False)
    row = torch.arange(len(index)).repeat_interleave(near.shape[1])
    col = index.gather(1, place).flatten()
    weight = (-near.flatten()).exp()
    is_edge = weight > 0
    return row[is_edge], col[is_edge], weight[is_edge]


def _sum_with_loops(parts: list[tuple[Pattern, Tensor]], num_nodes: int) -> SparseGraph:
    """Return the sum of sparse graphs and the identity, as one graph: products are faster then."""
    loops = torch.arange(num_nodes)
    row = torch.cat([loops, *(pattern.row for pattern, _ in parts)])
    col = torch.cat([loops, *(pattern.col for pattern, _ in parts)])
    ones = parts[0][1].new_ones(num_nodes)
    weight = torch.cat([ones, *(weight for _, weight in parts)])
    pattern = symmetric_pattern(row, col, num_nodes)
    entries = weight.new_zeros(pattern.num_edges).index_add(0, pattern.find(row, col), weight)
    return SparseGraph.from_pattern(pattern, entries)
