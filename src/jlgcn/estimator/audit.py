"""The audit of a fitted estimator's given graph, with the user's ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from jlgcn.closed_form.audit import GraphAudit, PairExplanation, ScoredPairs, audit_graph
from jlgcn.closed_form.model import ClosedFormModel
from jlgcn.graphs import EdgeList, SparseGraph


class EdgeTable(NamedTuple):
    """Edges, the highest score first; ``pandas.DataFrame(table._asdict())`` is a data frame.

    Attributes:
        source: id of one end, (E,).
        target: id of the other end, (E,).
        score: probability at even odds, of suspicious edges that the pair is a random one, of
            missing edges that it is an edge, (E,), float64.
    """

    source: NDArray[Any]
    target: NDArray[Any]
    score: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Audit:
    """Which edges of a given graph look wrong, and which look missing.

    :meth:`JLGCNClassifier.audit` returns it. See :func:`jlgcn.closed_form.audit.audit_graph`.

    Attributes:
        suspicious: all given edges, the most suspicious first.
        missing: pairs without a given edge, the likeliest edges first.
        num_wrong: estimated number of given edges that are no better than random pairs.
        pairs: the same tables by row number, with log-odds and their terms.
    """

    suspicious: EdgeTable
    missing: EdgeTable
    num_wrong: int
    pairs: GraphAudit

    def __repr__(self) -> str:
        return repr(self.pairs).replace("GraphAudit", "Audit", 1)

    def explain(self, edge: int, *, missing: bool = False) -> PairExplanation:
        """Decompose the log-odds of an edge by feature and by common neighbour.

        Exact: bias, features and common neighbours sum to the log-odds of an edge against a random
        pair.

        Args:
            edge: place in the table, from 0.
            missing (bool, default False): in `missing`, instead of `suspicious`.
        """
        table = self.missing if missing else self.suspicious
        if not 0 <= edge < len(table.source):
            raise ValueError(
                f"an edge must be a place from 0 to {len(table.source) - 1} in the table, but it "
                f"is {edge}"
            )
        return self.pairs.explain(edge, missing=missing)

    def reasons(
        self, edge: int, *, missing: bool = False, number: int = 3
    ) -> tuple[list[tuple[int, float]], list[int]]:
        """Return what speaks for listing an edge: features with their contributions, neighbours.

        Args:
            edge: place in the table, from 0.
            missing (bool, default False): in `missing`, instead of `suspicious`.
            number (int, default 3): features to return: those that speak most for a missing edge,
                or against a suspicious one.

        Returns:
            Column and contribution to the log-odds of each feature; common given neighbours, the
            largest contribution first, by row number.
        """
        found = self.explain(edge, missing=missing)
        order = found.features.argsort(descending=missing, stable=True)[:number].tolist()
        neighbors = found.neighbors[found.shared.abs().argsort(descending=True, stable=True)]
        return [(k, float(found.features[k])) for k in order], neighbors.tolist()

    def edge_list(self, *, missing: bool = False) -> EdgeList:
        """Return a table as an edge list by row number, with scores as weights, for export.

        Args:
            missing (bool, default False): `missing`, instead of `suspicious`.
        """
        found = self.pairs.missing if missing else self.pairs.suspicious
        num_nodes = self.pairs.terms[-1].given.num_nodes
        return EdgeList(found.source, found.target, found.score, num_nodes)

    def cleaned(self, num_removed: int | None = None, num_added: int | None = None) -> EdgeList:
        """Return the given graph without suspicious edges and with missing ones.

        Args:
            num_removed (int ≥ 0 or None, default None): most suspicious edges to leave out; None
                for `num_wrong`.
            num_added (int ≥ 0 or None, default None): likeliest missing edges to add, with the mean
                weight of given ones; None for as many as are left out, if so many were found.

        Returns:
            Edges with their given weights.
        """
        found, given = self.pairs, self.pairs.terms[-1].given
        num_removed = self.num_wrong if num_removed is None else num_removed
        if num_added is None:
            num_added = min(num_removed, len(found.missing.source))
        for name, number, table in (
            ("num_removed", num_removed, found.suspicious),
            ("num_added", num_added, found.missing),
        ):
            if not 0 <= number <= len(table.source):
                raise ValueError(
                    f"{name} must be between 0 and {len(table.source):,}, but it is {number}; of "
                    "missing edges, audit finds as many as num_missing says"
                )
        weights = _weights(given, found.suspicious)
        kept, added = slice(num_removed, None), slice(num_added)
        ends = (
            torch.cat([getattr(found.suspicious, end)[kept], getattr(found.missing, end)[added]])
            for end in ("source", "target")
        )
        source, target = ends
        weight = torch.cat([weights[kept], weights.mean().expand(num_added)])
        order = np.lexsort((target.numpy(), source.numpy(), -weight.numpy()))
        return EdgeList(source[order], target[order], weight[order], given.num_nodes)


def audit(
    model: Any,  # noqa: ANN401
    ids: Sequence[Any] | None,
    num_missing: int | None,
) -> Audit:
    """Audit a fitted model of either solver; of the network, raise a ValueError."""
    if not isinstance(model, ClosedFormModel):
        raise ValueError(
            'an audit needs the closed form, but the model was fitted with solver="gradient"; fit '
            'with solver="closed_form"'
        )
    num_rows = len(model.logits)
    if ids is not None and len(ids) != num_rows:
        raise ValueError(f"ids must have a name for each of {num_rows} rows, but has {len(ids)}")
    found = audit_graph(model, num_missing=num_missing)
    names = np.arange(num_rows) if ids is None else np.asarray(ids)
    suspicious, missing = (
        EdgeTable(
            names[table.source.numpy()], names[table.target.numpy()], table.score.double().numpy()
        )
        for table in (found.suspicious, found.missing)
    )
    return Audit(suspicious, missing, found.num_wrong, found)


def _weights(given: SparseGraph, pairs: ScoredPairs) -> torch.Tensor:
    """Return the given weights of edges, on the CPU."""
    ends = (end.to(given.device) for end in (pairs.source, pairs.target))
    return given.weight[given.pattern.find(*ends)].cpu()
