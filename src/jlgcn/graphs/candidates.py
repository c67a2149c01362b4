"""Candidate edges by nearest-neighbour search, and the graphs that a metric builds from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from jlgcn.graphs.sparse import SparseGraph
from jlgcn.ops import SparseFeatures, nearest_neighbors
from jlgcn.ops.csr import Pattern, symmetric_pattern
from jlgcn.ops.knn import NeighborIndex
from jlgcn.ops.sparse_matrix import pair_distances

Features = Tensor | SparseFeatures

#: Squared distances are in units of the median over this many nearest neighbours.
UNIT_NEIGHBORS = 20

# Differences of projected features that are in memory at a time.
_CHUNK_ENTRIES = 2**18


class JoinedGraph(NamedTuple):
    """A learned graph, and its sum with the given graph.

    Attributes:
        learned: the learned graph, not scaled.
        scale: factor of its weights in the sum.
        total: the scaled learned graph, the given one and self-loops of weight 1.
    """

    learned: SparseGraph
    scale: float
    total: SparseGraph


@dataclass(frozen=True, eq=False)
class Candidates:
    r"""Nearest neighbours in the Euclidean metric, which a learned metric R ranks.

    .. math:: d_{ij}^2 = \|f_i - f_j\|^2 / u + \|R^\top (f_i - f_j)\|^2, \qquad a_{ij} = \exp(-d_{ij}^2)

    Attributes:
        x: features, (N, in_channels).
        unit: u, the median squared distance to a near neighbour.
        index: nearest neighbours of each node, (N, n_candidates), int64; -1 where there are fewer.
        distance: their squared distances in units of u, (N, n_candidates); inf where there are
            fewer.
        given: the given graph, or None.
        given_distance: squared distances of its edges in units of u, (E,); None without one.
    """  # noqa: E501

    x: Features
    unit: float
    index: Tensor
    distance: Tensor
    given: SparseGraph | None
    given_distance: Tensor | None

    @classmethod
    def find(cls, x: Features, num_candidates: int, given: SparseGraph | None) -> Candidates:
        """Search the nearest neighbours of every node."""
        index = nearest_neighbors(x, num_candidates)
        distance = _distances(x, x, index)
        near = distance.topk(min(UNIT_NEIGHBORS, index.shape[1]), largest=False).values
        near = near[near.isfinite()]
        unit = float(near.median()) if near.numel() else 0.0
        unit = unit if unit > 0 else 1.0  # all rows are equal
        given_distance = None
        if given is not None:
            given_distance = pair_distances(x, given.pattern.row, given.pattern.col) / unit
        return cls(x, unit, index, distance / unit, given, given_distance)

    def join(
        self,
        metric: Tensor,  # (in_channels, rank)
        *,
        num_neighbors: int,
        learned_degree: float,
        given_decay: float = 0.0,
        order: Tensor | None = None,  # (N,), int64
    ) -> JoinedGraph:
        """Return the learned graph under a metric, and its sum with the given one.

        Args:
            metric: R.
            num_neighbors: nearest candidates of a node that are joined to it.
            learned_degree: mean weighted degree of the learned graph in the sum.
            given_decay: ρ in the weight exp(-ρ·d²) of a given edge.
            order: permutation of the nodes of the learned graph; None for none.
        """
        z = self.x @ metric
        num_nodes = self.index.shape[0]
        row, col, weight = nearest_edges(self.index, self._learned_distance(z), num_neighbors)
        if order is not None:
            row, col = order[row], order[col]
        pattern = symmetric_pattern(row, col, num_nodes)
        entries = weight.new_zeros(pattern.num_edges)
        entries[pattern.find(row, col)] = weight
        entries = torch.maximum(entries, entries[pattern.reverse])
        total = float(entries.sum())
        scale = learned_degree * num_nodes / total if total > 0 else 1.0
        parts = [(pattern, scale * entries)]
        if self.given is not None:
            parts.append((self.given.pattern, self._given_weight(z, given_decay)))
        learned = SparseGraph.from_pattern(pattern, entries)
        return JoinedGraph(learned, scale, sum_with_loops(parts, num_nodes))

    def select(self, metric: Tensor, num_neighbors: int) -> tuple[Pattern, Tensor]:  # …, (E,)
        """Return the symmetric pattern of each node's nearest candidates under a metric R.

        With the squared Euclidean distance of every entry, in units of u.
        """
        learned = self._learned_distance(self.x @ metric)
        nearest, place = learned.topk(min(num_neighbors, learned.shape[1]), largest=False)
        is_edge = nearest.flatten().isfinite()
        row = _row_numbers(nearest)[is_edge]
        col = self.index.gather(1, place).flatten()[is_edge]
        pattern = symmetric_pattern(row, col, self.index.shape[0])
        distance = self.distance.new_zeros(pattern.num_edges)
        distance[pattern.find(row, col)] = self.distance.gather(1, place).flatten()[is_edge]
        return pattern, torch.maximum(distance, distance[pattern.reverse])

    def attach(
        self,
        x: Features,  # (M, in_channels)
        metric: Tensor,
        scale: float,
        edges: tuple[Tensor, Tensor] | None,  # (2, E), int64, and (E,)
        *,
        num_neighbors: int,
        given_decay: float = 0.0,
    ) -> tuple[Tensor, Tensor, Tensor]:  # each (E',)
        """Return new node, fitted node and weight of every edge that attaches new nodes."""
        index = self._search.search(min(self.index.shape[1], len(self.index)), x)
        return self.attach_to(
            index, x, metric, scale, edges, num_neighbors=num_neighbors, given_decay=given_decay
        )

    def attach_to(
        self,
        index: Tensor,  # (M, K), int64
        x: Features,  # (M, in_channels)
        metric: Tensor,
        scale: float,
        edges: tuple[Tensor, Tensor] | None,  # (2, E), int64, and (E,)
        *,
        num_neighbors: int,
        given_decay: float = 0.0,
    ) -> tuple[Tensor, Tensor, Tensor]:  # each (E',)
        """Return :meth:`attach` for candidates that were searched already, -1 where fewer."""
        near = index.flatten().clamp(min=0)
        distance = _distances(x, self.x, index) / self.unit
        new = x @ metric
        if bool(metric.any()):
            place, projected = self._projected(near, metric)
            distance = distance + _dense_distances(new, projected, place.view(index.shape))
        row, col, weight = nearest_edges(index, distance, num_neighbors)
        weight = scale * weight
        if edges is not None:
            (first, second), given = edges
            known = pair_distances(x, first, second, self.x) / self.unit
            known = known + pair_distances(new, first, *self._projected(second, metric))
            row, col = torch.cat([row, first]), torch.cat([col, second])
            given = given.to(weight.dtype) * (-given_decay * known).exp()
            weight = torch.cat([weight, given])
        return row, col, weight

    @cached_property
    def _search(self) -> NeighborIndex:
        return NeighborIndex(self.x)

    def _projected(self, nodes: Tensor, metric: Tensor) -> tuple[Tensor, Tensor]:
        """Return places of nodes in a matrix of projected features, and that matrix.

        Of few nodes it holds their rows alone, of many the rows of all.
        """
        if len(nodes) >= len(self.index):
            return nodes, self.x @ metric
        return torch.arange(len(nodes), device=nodes.device), self.features_of(nodes) @ metric

    def weighted_given(self, metric: Tensor, decay: float) -> SparseGraph | None:
        """Return the given graph with weights discounted by learned distance, or None."""
        if self.given is None:
            return None
        weight = self._given_weight(self.x @ metric, decay)
        return SparseGraph.from_pattern(self.given.pattern, weight)

    def features_of(self, nodes: Tensor) -> Tensor:  # (K, in_channels)
        """Return the dense features of some nodes."""
        if isinstance(self.x, Tensor):
            return self.x[nodes]
        rows = self.x.to_scipy()[nodes.cpu().numpy()].toarray()
        return torch.from_numpy(rows).to(self.x.device)

    def _learned_distance(self, z: Tensor) -> Tensor:
        """Return squared distances of the candidates under a metric, in chunks of rows."""
        if not bool(z.any()):  # R = 0
            return self.distance
        return self.distance + _dense_distances(z, z, self.index)

    def _given_weight(self, z: Tensor, decay: float) -> Tensor:
        assert self.given is not None
        assert self.given_distance is not None
        weight = self.given.weight.to(z.dtype)
        if decay == 0:
            return weight
        added = pair_distances(z, self.given.pattern.row, self.given.pattern.col)
        return weight * (-decay * (self.given_distance + added)).exp()


def _distances(x: Features, among: Features, index: Tensor) -> Tensor:  # (N, K)
    """Return squared distances of rows to their neighbours, inf where there is none (-1)."""
    if isinstance(x, Tensor) and isinstance(among, Tensor):
        return _dense_distances(x, among, index).masked_fill(index < 0, torch.inf)
    distance = pair_distances(x, _row_numbers(index), index.flatten().clamp(min=0), among)
    assert isinstance(x, SparseFeatures)
    is_empty = x.crow.diff() == 0  # a row of zeros has no neighbours
    return distance.view(index.shape).masked_fill((index < 0) | is_empty.unsqueeze(-1), torch.inf)


def _dense_distances(x: Tensor, among: Tensor, index: Tensor) -> Tensor:  # (N, K)
    """Return squared distances of rows to others, in chunks that stay in the processor's cache."""
    size = max(1, _CHUNK_ENTRIES // max(1, index.shape[1] * x.shape[1]))
    parts = [
        (among[near] - rows.unsqueeze(1)).square().sum(-1)
        for rows, near in zip(x.split(size), index.split(size), strict=True)
    ]
    return torch.cat(parts) if parts else x.new_empty(index.shape)


def nearest_edges(
    index: Tensor, distance: Tensor, num_neighbors: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return row, column and Gaussian weight of the nearest candidates of each row."""
    nearest, place = distance.topk(min(num_neighbors, index.shape[1]), largest=False)
    col = index.gather(1, place).flatten()
    weight = (-nearest.flatten()).exp()
    is_edge = weight > 0
    return _row_numbers(nearest)[is_edge], col[is_edge], weight[is_edge]


def _row_numbers(matrix: Tensor) -> Tensor:  # (N · K,), int64
    """Return the row of every entry of a matrix, (N, K)."""
    return torch.arange(len(matrix), device=matrix.device).repeat_interleave(matrix.shape[1])


def sum_with_loops(parts: list[tuple[Pattern, Tensor]], num_nodes: int) -> SparseGraph:
    """Return the sum of sparse graphs and the identity, merged: one product instead of several."""
    loops = torch.arange(num_nodes, device=parts[0][1].device)
    row = torch.cat([loops, *(pattern.row for pattern, _ in parts)])
    col = torch.cat([loops, *(pattern.col for pattern, _ in parts)])
    ones = parts[0][1].new_ones(num_nodes)
    weight = torch.cat([ones, *(weight for _, weight in parts)])
    pattern = symmetric_pattern(row, col, num_nodes)
    entries = weight.new_zeros(pattern.num_edges).index_add(0, pattern.find(row, col), weight)
    return SparseGraph.from_pattern(pattern, entries)
