"""Detection of degenerate learned graphs: without edges, or complete."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from jlgcn._validation import caller_level
from jlgcn.errors import GraphHealthWarning
from jlgcn.graphs import Graph, SparseGraph

#: A graph is dead if its mean degree, without self-loops, is below this.
DEAD_DEGREE = 1e-3

#: A graph is complete if the mean weight of its pairs of nodes is above this.
COMPLETE_WEIGHT = 0.95

#: Smaller graphs are not checked: a few nodes may well be far apart, or alike.
MIN_NODES = 16

# Pairs of rows that means and medians are estimated from.
_NUM_SAMPLED_PAIRS = 10_000


class GraphHealth:
    r"""Warns once if a learned graph is dead or complete.

    Both fail silently. If all off-diagonal weights underflow, the graph is the identity and the
    metric gets no gradient; if all are close to 1, the layer averages over all nodes.

    .. math:: \frac{1}{N} \sum_{i \ne j} a_{ij} < 10^{-3}, \qquad
        \frac{1}{N (N - 1)} \sum_{i \ne j} a_{ij} > 0.95

    A complete graph that is normalised by itself, and added to given edges, does no harm: all its
    edges of a node weigh as much as one given edge. So the preset "authors" begins.

    Checked at calls 1, 2, 4, 8, …, on a sample of ten thousand evenly spaced pairs; degrees are
    computed only if the sample has no weight.
    """

    def __init__(self) -> None:
        self.is_normalized = False
        self.num_calls = 0
        self.has_warned = False
        self.together = [self]

    @torch.no_grad()
    def look(
        self,
        z: Tensor,  # (*batch, N, rank)
        graph: Graph,
        given: Graph | None = None,
    ) -> None:
        """Check a learned graph.

        Args:
            z: projected features that the graph was learned from.
            graph: the graph.
            given: the graph that it is added to; None for none.
        """
        self.num_calls += 1
        is_due = self.num_calls.bit_count() == 1  # 1, 2, 4, 8, …
        if self.has_warned or not is_due or z.shape[-2] < MIN_NODES:
            return
        mean = sampled_weight(z)
        if mean > COMPLETE_WEIGHT:
            if self.is_normalized and given is not None and not given.has_no_edges:
                return
            self._warn(
                f"the learned graph is complete: pairs of its {z.shape[-2]} nodes have a mean "
                f"weight of {mean:.3f}, so that the layer averages over all nodes alike"
            )
        elif mean * (z.shape[-2] - 1) < DEAD_DEGREE:
            degree = _mean_degree(graph)
            if degree < DEAD_DEGREE:
                self._warn(
                    f"the learned graph is dead: its {z.shape[-2]} nodes have a mean degree of "
                    f"{degree:.1e} without self-loops, so that the metric gets no gradient"
                )

    def _warn(self, what: str) -> None:
        for health in self.together:
            health.has_warned = True
        warnings.warn(
            f'{what}; scale the features, or set metric_init="median" and call calibrate(x) (of a '
            'JLGCNConv: options=JLGCNOptions(metric_init="median"), conv.learner.calibrate(x))',
            GraphHealthWarning,
            stacklevel=caller_level(),
        )


def warn_together(healths: list[GraphHealth]) -> None:
    """Let the layers of a network warn once in total."""
    for health in healths:
        health.together = healths


def sampled_weight(
    z: Tensor,  # (*batch, N, rank)
) -> float:
    """Return the mean weight of a sample of pairs of nodes, in the first graph of a batch."""
    rows = z.detach().reshape(-1, *z.shape[-2:])[0].float()
    distances = torch.cat(sampled_distances(rows))
    return float((-distances).exp().mean())


def sampled_distances(
    rows: Tensor,  # (N, rank)
) -> list[Tensor]:
    """Return squared distances of evenly spaced pairs, which need no random numbers."""
    num_nodes = rows.shape[0]
    shifts = range(1, num_nodes)[: max(1, _NUM_SAMPLED_PAIRS // max(1, num_nodes))]
    return [(rows - rows.roll(shift, 0)).square().sum(-1) for shift in shifts]


def _mean_degree(graph: Graph) -> float:
    """Return the mean degree without self-loops, whose weights are 1."""
    if isinstance(graph, SparseGraph):
        row, col = graph.pattern.row, graph.pattern.col
        return float(graph.weight.double()[row != col].sum()) / graph.num_nodes
    return float(graph.detach().degree().double().mean()) - 1
