"""What tells an edge from a random pair: distances, PageRank similarity, common neighbours.

A pair is scored by a logistic regression on these terms, which is trained on the graph itself
(:func:`jlgcn.closed_form.audit.audit_graph`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from jlgcn.closed_form.layer import DIFFUSED_COLUMNS, unit_rows
from jlgcn.graphs import SparseGraph, personalized_pagerank
from jlgcn.graphs.candidates import sum_with_loops
from jlgcn.ops.sparse_matrix import pair_distances

if TYPE_CHECKING:
    from jlgcn.closed_form.model import ClosedFormModel

#: Names of the terms, in their order.
TERMS = ("Euclidean", "learned", "similarity", "neighbours")

# Restart probability of the similarity: it sees further than a few steps, and not the whole graph.
_RESTART = 0.1

# Neighbours of pairs, and rows of features, that are in memory at a time.
_CHUNK_ENTRIES = 2**22


@dataclass(frozen=True, eq=False)
class PairTerms:
    r"""The terms of pairs of nodes, with some given edges taken out of the graph.

    - Euclidean: the squared distance :math:`\|f_i - f_j\|^2 / u`;
    - learned: what the metric adds to it, :math:`\|R^\top (f_i - f_j)\|^2`;
    - similarity: the cosine of diffused features (personalized PageRank, restart probability 0.1)
      of unit norm, after their mean over all nodes is subtracted;
    - neighbours: :math:`\log(1 + \sum_k 1 / \log d_k)` over common given neighbours k of degree d_k
      (`Adamic & Adar, 2003 <https://doi.org/10.1016/S0378-8733(03)00009-1>`_).

    Attributes:
        model: the fitted model, whose metric and learned graph stay as they are.
        is_kept: whether an entry of the given graph is in the graph, (E,), bool.
        direction: centred diffused features of unit norm, (N, n_components).
        degree: number of kept given edges of each node, (N,).
    """

    model: ClosedFormModel
    is_kept: Tensor
    direction: Tensor
    degree: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, model: ClosedFormModel, is_kept: Tensor, given_decay: float) -> PairTerms:
        """Diffuse the features over the kept edges and the learned graph.

        Args:
            model: the fitted model.
            is_kept: whether an entry of the given graph stays, (E,), bool.
            given_decay: decay of the given weights with the learned distance.

        Cost: a diffusion of `n_components` columns.
        """
        layer = model.layers[-1]
        given, learned = model.candidates.weighted_given(layer.metric, given_decay), layer.learned
        assert given is not None
        parts = [
            (learned.pattern, model.learned_scale * learned.weight),
            (given.pattern, given.weight * is_kept),
        ]
        graph = sum_with_loops(parts, given.num_nodes).normalized()
        tolerance = model.options.tolerance
        diffused = [
            personalized_pagerank(graph, columns.contiguous(), _RESTART, tolerance=tolerance)
            for columns in model.features.split(DIFFUSED_COLUMNS, dim=-1)
        ]
        direction = unit_rows(torch.cat(diffused, -1))
        degree = torch.bincount(given.pattern.row[is_kept], minlength=given.num_nodes)
        return cls(model, is_kept, unit_rows(direction - direction.mean(0)), degree)

    @property
    def given(self) -> SparseGraph:
        """The given graph, with all edges."""
        assert self.model.given is not None
        return self.model.given

    def __call__(self, first: Tensor, second: Tensor) -> Tensor:  # (P,), (P,) to (P, 4)
        """Return the terms of pairs of nodes, in float64."""
        z = self.model.x @ self.model.layers[-1].metric
        euclidean = pair_distances(self.model.x, first, second) / self.model.candidates.unit
        learned = pair_distances(z, first, second)
        size = max(1, _CHUNK_ENTRIES // max(1, self.direction.shape[1]))
        similarity = [
            (self.direction[i] * self.direction[j]).sum(-1)
            for i, j in zip(first.split(size), second.split(size), strict=True)
        ]
        common = self._adamic_adar(first, second).log1p()
        terms = (euclidean, learned, torch.cat(similarity), common)
        return torch.stack([term.double() for term in terms], -1)

    def common_neighbors(self, first: int, second: int) -> tuple[Tensor, Tensor]:  # (K,), (K,)
        """Return the common neighbours of two nodes, and their weights 1 / log d."""
        ends = torch.tensor([first, second], device=self.degree.device)
        _, found, weight = self._common(ends[:1], ends[1:])
        return found, weight

    def _adamic_adar(self, first: Tensor, second: Tensor) -> Tensor:  # (P,)
        total = torch.zeros(len(first), dtype=torch.float64, device=first.device)
        smaller = torch.minimum(self._num_entries[first], self._num_entries[second])
        chunk = smaller.cumsum(0) // _CHUNK_ENTRIES
        starts = torch.searchsorted(chunk, torch.unique(chunk)).tolist()
        for start, stop in zip(starts, [*starts, len(first)][1:], strict=True):
            pair, _, weight = self._common(first[start:stop], second[start:stop])
            total[start:stop].index_add_(0, pair, weight)
        return total

    @property
    def _num_entries(self) -> Tensor:  # (N,)
        return self.given.pattern.crow.diff()

    def _common(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return pair, node and weight of each common neighbour, found from the smaller side."""
        pattern, count = self.given.pattern, self._num_entries
        is_swapped = count[second] < count[first]
        small = torch.where(is_swapped, second, first)
        large = torch.where(is_swapped, first, second)
        num_entries = count[small]
        pair = torch.arange(len(small), device=small.device).repeat_interleave(num_entries)
        before = (num_entries.cumsum(0) - num_entries)[pair]
        place = pattern.crow[small][pair] + torch.arange(len(pair), device=small.device) - before
        node = pattern.col[place]
        keys = pattern.row * pattern.num_nodes + pattern.col
        wanted = large[pair] * pattern.num_nodes + node
        other = torch.searchsorted(keys, wanted).clamp(max=max(0, len(keys) - 1))
        is_common = (keys[other] == wanted) & self.is_kept[place] & self.is_kept[other]
        is_common &= (node != first[pair]) & (node != second[pair])  # of given self-loops
        pair, node = pair[is_common], node[is_common]
        return pair, node, 1 / self.degree[node].double().clamp(min=2).log()

    def by_feature(self, first: int, second: int) -> Tensor:  # (3, F)
        r"""Return the contributions of features to both distances and the similarity, in float64.

        All are exact. With P the principal directions, which are orthonormal, and g the centred
        diffused features of unit norm, the similarity is :math:`\sum_k (P g_i)_k (P g_j)_k`.
        """
        ends = torch.tensor([first, second], device=self.direction.device)
        both = self.model.contributions(ends[:1], ends[1:])[0]
        x = self.model.candidates.features_of(ends).double()
        euclidean = (x[0] - x[1]).square() / self.model.candidates.unit
        in_features = self.direction[ends].double() @ self.model.projection.double().mT
        return torch.stack([euclidean, both - euclidean, in_features[0] * in_features[1]])


class PairHead(NamedTuple):
    """A logistic regression on the terms: log-odds of an edge against a random pair.

    Attributes:
        bias: log-odds where all terms are 0.
        weight: weights of the terms, (4,), float64.
    """

    bias: float
    weight: Tensor

    @classmethod
    def fit(cls, edges: Tensor, others: Tensor) -> PairHead:  # (P, 4), (Q, 4)
        """Fit to the terms of edges and of random pairs, both of the same total weight."""
        from sklearn.linear_model import LogisticRegression  # a fifth of a second, for audits only

        terms = torch.cat([edges, others]).cpu()
        center, scale = terms.mean(0), terms.std(0).clamp(min=1e-12)
        is_edge = torch.arange(len(terms)) < len(edges)
        head = LogisticRegression(class_weight="balanced")
        head.fit(((terms - center) / scale).numpy(), is_edge.numpy())
        weight = torch.from_numpy(head.coef_[0]) / scale
        return cls(float(head.intercept_[0]) - float(center @ weight), weight)

    def __call__(self, terms: Tensor) -> Tensor:  # (P, 4) to (P,)
        """Return the log-odds of pairs."""
        return self.bias + terms @ self.weight.to(terms.device)
