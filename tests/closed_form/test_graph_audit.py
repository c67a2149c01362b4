from __future__ import annotations

import networkx
import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from jlgcn import SparseGraph
from jlgcn.closed_form import ClosedFormModel, ClosedFormOptions, fit_closed_form
from jlgcn.closed_form.audit import GraphAudit, audit_graph
from jlgcn.closed_form.pairs import PairTerms
from jlgcn.ops import SparseFeatures
from tests.brute import largest_difference

OPTIONS = ClosedFormOptions(n_neighbors=10, learned_degree=1.0, restart=0.05, metric_weight=1.0)


def planted(num_wrong: int = 60) -> tuple[ClosedFormModel, set[tuple[int, int]]]:
    """Return a fit of 200 nodes of four classes with 600 edges within them, and wrong ones."""
    rng = np.random.default_rng(0)
    y = np.arange(200) % 4
    x = np.abs(rng.normal(size=(200, 12)) * 0.4)
    x[np.arange(200), y] += 1
    x[x < 0.3] = 0
    edges: set[tuple[int, int]] = set()
    while len(edges) < 600:
        i, j = sorted(rng.integers(200, size=2).tolist())
        if y[i] == y[j] and i != j:
            edges.add((i, j))
    wrong: set[tuple[int, int]] = set()
    while len(wrong) < num_wrong:
        i, j = sorted(rng.integers(200, size=2).tolist())
        if y[i] != y[j]:
            wrong.add((i, j))
    pairs = torch.tensor(sorted(edges | wrong)).mT
    graph = SparseGraph(torch.cat([pairs, pairs.flip(0)], -1), num_nodes=200)
    features = SparseFeatures.from_dense(torch.from_numpy(x))
    labels = torch.from_numpy(y)
    model = fit_closed_form(features, labels, graph, train=torch.arange(20), options=OPTIONS)
    return model, wrong


@pytest.fixture(scope="module")
def found() -> tuple[ClosedFormModel, set[tuple[int, int]], GraphAudit]:
    model, wrong = planted()
    return model, wrong, audit_graph(model)


def test_edges_between_classes_are_suspicious_and_counted(
    found: tuple[ClosedFormModel, set[tuple[int, int]], GraphAudit],
) -> None:
    _, wrong, audit = found
    table = audit.suspicious
    pairs = zip(table.source.tolist(), table.target.tolist(), strict=True)
    is_wrong = [pair in wrong for pair in pairs]
    assert len(is_wrong) == 660
    assert sum(is_wrong) == 60
    # Edges join all nodes of a class alike, so features and classes alone tell them apart.
    assert roc_auc_score(is_wrong, table.score) > 0.9
    assert bool((table.score.diff() <= 0).all())
    assert 30 < audit.num_wrong < 90


def test_an_edge_is_scored_without_itself(
    found: tuple[ClosedFormModel, set[tuple[int, int]], GraphAudit],
) -> None:
    model, _, audit = found
    assert model.given is not None
    table, pattern = audit.suspicious, model.given.pattern
    for pair in range(0, 660, 50):
        ends = table.source[pair : pair + 1], table.target[pair : pair + 1]
        terms = audit.terms[int(table.fold[pair])]
        assert not terms.is_kept[pattern.find(*ends)]
        assert not terms.is_kept[pattern.find(*ends[::-1])]
        head = audit.heads[int(table.fold[pair])]
        assert float(head(terms(*ends)) - table.log_odds[pair]) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("missing", [False, True])
def test_an_explanation_sums_to_the_log_odds(
    found: tuple[ClosedFormModel, set[tuple[int, int]], GraphAudit], missing: bool
) -> None:
    model, _, audit = found
    table = audit.missing if missing else audit.suspicious
    for pair in (0, 100, 500):
        explained = audit.explain(pair, missing=missing)
        assert explained.features.shape == (12,)
        total = explained.bias + float(explained.features.sum() + explained.shared.sum())
        # The projection is orthonormal to the float64 it was computed in.
        assert total == pytest.approx(explained.log_odds, abs=1e-6)
        parts = [explained.euclidean, explained.learned, explained.similarity, explained.shared]
        sums = torch.stack([part.sum() for part in parts])
        assert largest_difference(sums, table.contributions[pair]) < 1e-6
        assert model.given is not None
        known = [set(model.given.row(int(end[pair]))[0].tolist()) for end in table[:2]]
        assert set(explained.neighbors.tolist()) <= known[0] & known[1]


def test_missing_edges_are_not_given_and_join_a_class(
    found: tuple[ClosedFormModel, set[tuple[int, int]], GraphAudit],
) -> None:
    model, _, audit = found
    table = audit.missing
    assert model.given is not None
    given = set(map(tuple, model.given.edge_index.mT.tolist()))
    pairs = list(zip(table.source.tolist(), table.target.tolist(), strict=True))
    assert len(pairs) == len(set(pairs)) == 660
    assert all(i < j and (i, j) not in given for i, j in pairs)
    assert bool((table.log_odds.diff() <= 0).all())
    same = (table.source % 4 == table.target % 4)[:100].double()
    assert float(same.mean()) > 0.95
    assert len(audit_graph(model, num_missing=7).missing.source) == 7


def test_common_neighbors_are_those_of_adamic_and_adar_without_the_edges_taken_out(
    found: tuple[ClosedFormModel, set[tuple[int, int]], GraphAudit],
) -> None:
    audit = found[-1]
    terms = audit.terms[2]
    kept = terms.given.edge_index[:, terms.is_kept].mT.tolist()
    graph = networkx.Graph(kept)
    graph.add_nodes_from(range(200))
    first, second = torch.randint(200, (2, 300))
    is_pair = first != second
    first, second = first[is_pair], second[is_pair]
    pairs = list(zip(first.tolist(), second.tolist(), strict=True))
    right = torch.tensor([score for *_, score in networkx.adamic_adar_index(graph, pairs)])
    assert right.max() > 0
    assert largest_difference(terms(first, second)[:, -1], right.double().log1p()) < 1e-6


def test_terms_are_distances_and_a_cosine(
    found: tuple[ClosedFormModel, set[tuple[int, int]], GraphAudit],
) -> None:
    model, _, audit = found
    terms = audit.terms[-1]
    first, second = torch.tensor([3, 8]), torch.tensor([4, 8])
    euclidean, learned, similarity, _ = terms(first, second).unbind(-1)
    ends = model.features_of(torch.tensor([3, 4]), -1)
    right = model.explain_edge(ends[0], ends[1]).squared_distance
    assert float(euclidean[0] + learned[0]) == pytest.approx(right, rel=1e-6)
    own = float((ends[0] - ends[1]).square().sum()) / model.candidates.unit
    assert float(euclidean[0]) == pytest.approx(own, rel=1e-6)
    assert euclidean[1] == learned[1] == 0
    assert float(similarity[1]) == pytest.approx(1, rel=1e-6)
    everything = torch.ones(terms.given.pattern.num_edges, dtype=torch.bool)
    again = PairTerms.of(model, everything, model.options.given_decay)
    assert largest_difference(again.direction, terms.direction) == 0


def test_an_audit_needs_edges() -> None:
    x, y = torch.randn(30, 3), torch.arange(30) % 2
    train = torch.arange(10)
    with pytest.raises(ValueError, match="fitted without one; pass the known edges"):
        audit_graph(fit_closed_form(x, y, train=train))
    graph = SparseGraph(torch.tensor([[0, 1], [1, 0]]), num_nodes=30)
    with pytest.raises(ValueError, match="at least 10 given edges to learn from, but there are 1"):
        audit_graph(fit_closed_form(x, y, graph, train=train))
    everyone = torch.ones(30, 30).nonzero().mT
    complete = SparseGraph(everyone[:, everyone[0] != everyone[1]], num_nodes=30)
    with pytest.raises(ValueError, match="nearly all pairs of 30 nodes have one"):
        audit_graph(fit_closed_form(x, y, complete, train=train))


def test_no_pairs_have_no_terms(
    found: tuple[ClosedFormModel, set[tuple[int, int]], GraphAudit],
) -> None:
    none = torch.arange(0)
    assert found[-1].terms[0](none, none).shape == (0, 4)
    with pytest.raises(ValueError, match="num_missing must be at least 0, but it is -1"):
        audit_graph(found[0], num_missing=-1)
