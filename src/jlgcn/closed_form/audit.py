"""Which given edges look wrong, and which pairs without an edge look like one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from jlgcn.closed_form.pairs import TERMS, PairHead, PairTerms
from jlgcn.ops import nearest_neighbors

if TYPE_CHECKING:
    from jlgcn.closed_form.model import ClosedFormModel

NUM_FOLDS = 5

# Decay of given weights with the learned distance while given edges are scored. 1 is the learned
# graph's own kernel: many wrong edges together must not make each other look right, however much
# the classifier trusts them.
GIVEN_DECAY = 1.0

# Neighbours by similarity of each node that are scored as missing edges, besides those in the
# learned graph.
_NUM_SIMILAR = 30

# Random pairs, and at most so many edges, that the logistic regression learns from.
_MAX_EXAMPLES = 200_000

# Quantiles of the random pairs' scores, below which edges are counted to estimate how many are
# wrong.
_LOW_QUANTILES = tuple(step / 20 for step in range(4, 17))


class ScoredPairs(NamedTuple):
    """Pairs of nodes, the highest score first.

    Attributes:
        source: the node of smaller number, (P,), int64.
        target: the other node, (P,), int64.
        score: of suspicious edges the probability of a random pair, of missing edges that of an
            edge, both at even odds, (P,), float64.
        log_odds: log-odds of an edge against a random pair, (P,), float64.
        contributions: what each term adds to them, (P, 4); the rest is the bias.
        fold: the fold of edges without which a pair was scored, (P,), int64; -1 for none.
    """

    source: Tensor
    target: Tensor
    score: Tensor
    log_odds: Tensor
    contributions: Tensor
    fold: Tensor


@dataclass(frozen=True, eq=False)
class PairExplanation:
    """The additive decomposition of a pair's log-odds of being an edge, on the CPU.

    `bias`, `euclidean`, `learned`, `similarity` and `shared` sum to `log_odds`.

    Attributes:
        log_odds: log-odds of an edge against a random pair.
        bias: the part that is equal for all pairs.
        euclidean: contribution of each feature through the Euclidean distance, (in_channels,).
        learned: contribution of each feature through what the metric adds to it, (in_channels,).
        similarity: contribution of each feature through the similarity of the two neighbourhoods,
            (in_channels,).
        neighbors: common given neighbours, (K,), int64.
        shared: contribution of each of them, (K,).
    """

    log_odds: float
    bias: float
    euclidean: Tensor
    learned: Tensor
    similarity: Tensor
    neighbors: Tensor
    shared: Tensor

    @property
    def features(self) -> Tensor:
        """Contribution of each feature through all three, (in_channels,)."""
        return self.euclidean + self.learned + self.similarity

    def __repr__(self) -> str:
        each = (self.euclidean, self.learned, self.similarity, self.shared)
        parts = (float(part.sum()) for part in each)
        named = ", ".join(f"{name} {part:+.3g}" for name, part in zip(TERMS, parts, strict=True))
        return f"PairExplanation(log-odds {self.log_odds:+.3g}: bias {self.bias:+.3g}, {named})"


@dataclass(frozen=True, eq=False)
class GraphAudit:
    """Suspicious and missing edges of a given graph; :func:`audit_graph` returns it.

    Attributes:
        suspicious: all given edges, the most suspicious first.
        missing: pairs without a given edge, the likeliest edges first.
        num_wrong: estimated number of given edges that are no better than random pairs.
        terms: terms of pairs without each fold of edges; those with all edges last.
        heads: the logistic regression for each of them.
    """

    suspicious: ScoredPairs
    missing: ScoredPairs
    num_wrong: int
    terms: tuple[PairTerms, ...]
    heads: tuple[PairHead, ...]

    def __repr__(self) -> str:
        return (
            f"GraphAudit({len(self.suspicious.source):,} given edges, about {self.num_wrong:,} of "
            f"them wrong; {len(self.missing.source):,} missing edges)"
        )

    @torch.no_grad()
    def explain(self, pair: int, *, missing: bool = False) -> PairExplanation:
        """Decompose the log-odds of a pair by feature and by common neighbour.

        Args:
            pair: place in the table.
            missing (bool, default False): of the missing edges, instead of the suspicious ones.
        """
        table = self.missing if missing else self.suspicious
        first, second, fold = (
            int(column[pair]) for column in (table.source, table.target, table.fold)
        )
        terms, head = self.terms[fold], self.heads[fold]
        of_neighbors = float(head.weight[-1])
        by_feature = head.weight[:-1].unsqueeze(-1) * terms.by_feature(first, second).cpu()
        euclidean, learned, similarity = by_feature
        neighbors, weight = (part.cpu() for part in terms.common_neighbors(first, second))
        # The logarithm is shared out in proportion, so that parts sum to it.
        total = weight.sum()
        shared = of_neighbors * weight * (total.log1p() / total.clamp(min=1e-30))
        return PairExplanation(
            float(table.log_odds[pair]),
            head.bias,
            euclidean,
            learned,
            similarity,
            neighbors,
            shared,
        )


@torch.no_grad()
def audit_graph(model: ClosedFormModel, *, num_missing: int | None = None) -> GraphAudit:
    r"""Score the given edges, and likely pairs without an edge, of a fitted model.

    A logistic regression tells edges from random pairs by four terms
    (:class:`jlgcn.closed_form.pairs.PairTerms`): Euclidean distance, what the metric adds to it,
    PageRank similarity and common neighbours. It needs no label of wrongness: its examples are the
    given edges and as many random pairs, and it is cross-fitted on five folds of edges. An edge's
    own presence must not make it look right, so the terms of a fold are computed without its edges,
    and by a regression fitted to the other folds. Nor must many wrong edges make each other look
    right: meanwhile the weights of given edges are discounted by the kernel of the learned graph,
    exp(-d²), whatever the classifier trusts. Metric, learned graph and hyperparameters stay those
    of the fit.

    If a share π of the edges are random pairs, among those with a low score they are at least so
    frequent, so π is estimated by the smallest ratio of the cumulated shares of edges and of random
    pairs (the mixture proportion of positive-unlabelled learning).

    Missing edges are searched among the neighbours in the learned graph and the 30 nodes of largest
    similarity.

    Deterministic.

    Args:
        model: a model that was fitted with a given graph of at least ten edges.
        num_missing (int ≥ 0 or None, default None): number of missing edges; None for as many as
            there are given edges.

    Cost: six diffusions of `n_components` columns at a restart probability of 0.1, a search for 30
    neighbours of each node, and memory for six matrices N × n_components.
    """
    given = model.given
    if given is None:
        raise ValueError(
            "an audit needs the given graph, but the model was fitted without one; pass the known "
            "edges to fit"
        )
    row, col = given.edge_index
    is_edge = (row < col) & (given.weight > 0)
    first, second = row[is_edge], col[is_edge]
    if len(first) < 2 * NUM_FOLDS:
        raise ValueError(
            f"an audit needs at least {2 * NUM_FOLDS} given edges to learn from, but there are "
            f"{len(first)}; pass more known edges to fit"
        )
    if num_missing is not None and num_missing < 0:
        raise ValueError(f"num_missing must be at least 0, but it is {num_missing}")
    generator = torch.Generator("cpu").manual_seed(0)
    fold = _folds(len(first), generator).to(row.device)
    fold_of_entry = torch.full_like(row, -1)
    fold_of_entry[is_edge] = fold
    fold_of_entry[given.pattern.reverse[is_edge]] = fold
    others = _random_pairs(model, min(len(first), _MAX_EXAMPLES), generator)
    if others.shape[1] < 2 * NUM_FOLDS:
        raise ValueError(
            "an audit needs pairs without a given edge to compare with, but nearly all pairs of "
            f"{given.num_nodes} nodes have one; pass a sparse graph to fit"
        )
    other_fold = _folds(others.shape[1], generator).to(row.device)
    edge_terms = torch.empty(len(first), len(TERMS), dtype=torch.float64, device=row.device)
    other_terms = edge_terms.new_empty(others.shape[1], len(TERMS))
    all_terms = []
    for k in range(NUM_FOLDS):
        terms = PairTerms.of(model, fold_of_entry != k, GIVEN_DECAY)
        edge_terms[fold == k] = terms(first[fold == k], second[fold == k])
        other_terms[other_fold == k] = terms(*others[:, other_fold == k])
        all_terms.append(terms)
    place = torch.randperm(len(first), generator=generator, device="cpu")
    is_example = place.to(row.device) < _MAX_EXAMPLES
    heads = []
    for k in range(NUM_FOLDS + 1):  # the last one sees all folds
        of_edges = edge_terms[is_example & (fold != k)]
        heads.append(PairHead.fit(of_edges, other_terms[other_fold != k]))
    log_odds, other_log_odds = edge_terms.new_zeros(len(first)), edge_terms.new_zeros(len(others.T))
    contributions = torch.empty_like(edge_terms)
    for k, head in enumerate(heads[:NUM_FOLDS]):
        log_odds[fold == k] = head(edge_terms[fold == k])
        other_log_odds[other_fold == k] = head(other_terms[other_fold == k])
        contributions[fold == k] = edge_terms[fold == k] * head.weight.to(row.device)
    order = log_odds.argsort(stable=True)
    suspicious = ScoredPairs(
        first[order],
        second[order],
        torch.sigmoid(-log_odds[order]),
        log_odds[order],
        contributions[order],
        fold[order],
    )
    is_kept = torch.ones_like(fold_of_entry, dtype=torch.bool)
    terms = PairTerms.of(model, is_kept, model.options.given_decay)
    all_terms.append(terms)
    missing = _missing(terms, heads[-1], len(first) if num_missing is None else num_missing)
    num_wrong = round(_share_wrong(log_odds, other_log_odds) * len(first))
    return GraphAudit(
        ScoredPairs(*(column.cpu() for column in suspicious)),
        ScoredPairs(*(column.cpu() for column in missing)),
        num_wrong,
        tuple(all_terms),
        tuple(heads),
    )


def _missing(terms: PairTerms, head: PairHead, num: int) -> ScoredPairs:
    """Return the likeliest pairs without a given edge."""
    model, pattern = terms.model, terms.given.pattern
    num_nodes = pattern.num_nodes
    near = nearest_neighbors(terms.direction, _NUM_SIMILAR)
    row = torch.arange(num_nodes, device=near.device).repeat_interleave(near.shape[1])
    learned, col = model.layers[-1].learned.pattern, near.flatten()
    row, col = torch.cat([row, learned.row]), torch.cat([col, learned.col])
    is_pair = (col >= 0) & (row != col)
    row, col = row[is_pair], col[is_pair]
    keys = torch.unique(torch.minimum(row, col) * num_nodes + torch.maximum(row, col))
    keys = keys[~torch.isin(keys, pattern.row * num_nodes + pattern.col)]
    first, second = keys // num_nodes, keys % num_nodes
    found = terms(first, second)
    log_odds = head(found)
    order = log_odds.argsort(descending=True, stable=True)[:num]
    return ScoredPairs(
        first[order],
        second[order],
        log_odds[order].sigmoid(),
        log_odds[order],
        found[order] * head.weight.to(found.device),
        torch.full_like(order, -1),
    )


def _folds(size: int, generator: torch.Generator) -> Tensor:  # (size,), int64
    return torch.randperm(size, generator=generator, device="cpu") % NUM_FOLDS


def _random_pairs(model: ClosedFormModel, num: int, generator: torch.Generator) -> Tensor:
    """Return pairs of different nodes without a given edge, (2, at most num), int64."""
    assert model.given is not None
    pattern = model.given.pattern
    pairs = torch.randint(pattern.num_nodes, (2, num), generator=generator, device="cpu")
    pairs = pairs.to(pattern.row.device)
    keys = pairs[0] * pattern.num_nodes + pairs[1]
    is_edge = torch.isin(keys, pattern.row * pattern.num_nodes + pattern.col)
    return pairs[:, ~is_edge & (pairs[0] != pairs[1])]


def _share_wrong(edges: Tensor, others: Tensor) -> float:
    """Return the estimated share of edges that are random pairs, from log-odds of both."""
    levels = others.quantile(others.new_tensor(_LOW_QUANTILES))
    share = torch.searchsorted(edges.sort().values, levels).double() / len(edges)
    return float((share / share.new_tensor(_LOW_QUANTILES)).min().clamp(max=1))
