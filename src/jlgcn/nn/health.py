"""Notices learned graphs that say nothing: no edges at all, or all edges alike."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from jlgcn.errors import GraphHealthWarning
from jlgcn.graphs import Graph, SparseGraph

#: A graph is dead if its nodes have, on average, less weight than this beside their own.
DEAD_DEGREE = 1e-3

#: A graph is complete if pairs of nodes have, on average, more weight than this.
COMPLETE_WEIGHT = 0.95

#: So few nodes are not judged: a handful may well be far apart, or alike.
MIN_NODES = 16

# Pairs of rows from which means are estimated.
_NUM_SAMPLED_PAIRS = 10_000


class GraphHealth:
    r"""Warns once, if the graph of a learner is dead or complete.

    Neither is an error that anything else would show. Where all weights beside the diagonal
    underflow, the graph is the identity and the metric gets no gradient; where all are near 1, the
    graph is one large average.

    .. math:: \frac{1}{N} \sum_{i \ne j} a_{ij} < 10^{-3}, \qquad
        \frac{1}{N (N - 1)} \sum_{i \ne j} a_{ij} > 0.95

    It looks at calls 1, 2, 4, 8 and so on, at ten thousand evenly spread pairs; only if these have
    no weight does it ask the graph for its degrees.
    """

    def __init__(self) -> None:
        self.num_calls = 0
        self.has_warned = False
        self.together = [self]

    @torch.no_grad()
    def look(
        self,
        z: Tensor,  # (*batch, N, rank)
        graph: Graph,
    ) -> None:
        """Look at a learned graph and at the points it was made of."""
        self.num_calls += 1
        is_due = self.num_calls.bit_count() == 1  # 1, 2, 4, 8, …
        if self.has_warned or not is_due or z.shape[-2] < MIN_NODES:
            return
        mean = sampled_weight(z)
        if mean > COMPLETE_WEIGHT:
            self._warn(
                f"the learned graph is complete: pairs of its {z.shape[-2]} nodes have a mean "
                f"weight of {mean:.3f}, so that it averages over all nodes alike"
            )
        elif mean * (z.shape[-2] - 1) < DEAD_DEGREE:
            degree = _mean_degree(graph)
            if degree < DEAD_DEGREE:
                self._warn(
                    f"the learned graph is dead: its {z.shape[-2]} nodes have a mean weight of "
                    f"{degree:.1e} beside their own, so that it joins nothing and its metric "
                    "cannot be trained"
                )

    def _warn(self, what: str) -> None:
        for health in self.together:
            health.has_warned = True
        warnings.warn(
            f'{what}; scale the features, or start with metric_init="median" and calibrate(x)',
            GraphHealthWarning,
            stacklevel=4,
        )


def warn_together(healths: list[GraphHealth]) -> None:
    """Let the layers of one network warn once between them."""
    for health in healths:
        health.together = healths


def sampled_weight(
    z: Tensor,  # (*batch, N, rank)
) -> float:
    """Return the mean weight of evenly spread pairs of nodes, of the first graph of a batch."""
    rows = z.detach().reshape(-1, *z.shape[-2:])[0].float()
    distances = torch.cat(sampled_distances(rows))
    return float((-distances).exp().mean())


def sampled_distances(
    rows: Tensor,  # (N, rank)
) -> list[Tensor]:
    """Return squared distances of evenly spread pairs, drawn without touching the random state."""
    num_nodes = rows.shape[0]
    shifts = range(1, num_nodes)[: max(1, _NUM_SAMPLED_PAIRS // max(1, num_nodes))]
    return [(rows - rows.roll(shift, 0)).square().sum(-1) for shift in shifts]


def _mean_degree(graph: Graph) -> float:
    """Return the mean degree without the diagonal, whose entries are 1."""
    if isinstance(graph, SparseGraph):
        row, col = graph.pattern.row, graph.pattern.col
        return float(graph.weight.double()[row != col].sum()) / graph.num_nodes
    return float(graph.detach().degree().double().mean()) - 1
