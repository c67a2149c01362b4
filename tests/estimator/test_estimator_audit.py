from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_wine

from jlgcn import JLGCNClassifier
from jlgcn.estimator.audit import Audit
from jlgcn.io import to_networkx, to_pyg, to_scipy

IDS = [f"wine-{i}" for i in range(178)]


def wines() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return wines, thirty of their labels, and neighbours within a class with 20 wrong edges."""
    x, y = load_wine(return_X_y=True)
    pairs = [(i, j) for i in range(178) for j in range(i + 1, min(178, i + 4)) if y[i] == y[j]]
    pairs += [(i, 130 + i) for i in range(20)]
    known = np.full(178, -1)
    rows = np.random.default_rng(0).permutation(178)[:30]
    known[rows] = y[rows]
    return x, known, np.array(pairs).T


@pytest.fixture(scope="module")
def model() -> JLGCNClassifier:
    x, y, pairs = wines()
    return JLGCNClassifier().fit(x, y, np.concatenate([pairs, pairs[::-1]], 1))


@pytest.fixture(scope="module")
def found(model: JLGCNClassifier) -> Audit:
    return model.audit(IDS, num_missing=200)


def test_wrong_edges_come_first_by_their_ids(found: Audit) -> None:
    wrong = {(f"wine-{i}", f"wine-{130 + i}") for i in range(20)}
    table = found.suspicious
    pairs = list(zip(table.source.tolist(), table.target.tolist(), strict=True))
    assert len(wrong & set(pairs[:25])) >= 18
    assert table._asdict().keys() == {"source", "target", "score"}
    assert 10 <= found.num_wrong <= 40
    assert "about" in repr(found)
    assert found.explain(0).log_odds < found.explain(0, missing=True).log_odds


def test_a_cleaned_graph_has_other_edges_and_the_given_weights(
    model: JLGCNClassifier, found: Audit
) -> None:
    pairs = wines()[2]
    cleaned = found.cleaned(20, 30)
    assert len(cleaned) == pairs.shape[1] + 10
    assert bool((cleaned.weight == 1).all())
    edges = set(zip(cleaned.source.tolist(), cleaned.target.tolist(), strict=True))
    removed, added = found.pairs.suspicious, found.pairs.missing
    assert edges.isdisjoint(zip(*(end[:20].tolist() for end in removed[:2]), strict=True))
    assert edges.issuperset(zip(*(end[:30].tolist() for end in added[:2]), strict=True))
    assert to_scipy(cleaned).nnz == to_pyg(cleaned).num_edges == 2 * len(cleaned)
    assert to_networkx(cleaned, IDS).number_of_edges() == len(cleaned)
    again = model.cleaned_graph()
    assert len(again) == pairs.shape[1]
    with pytest.raises(ValueError, match="num_added must be between 0 and 200, but it is 201"):
        found.cleaned(0, 201)
    with pytest.raises(ValueError, match="place from 0 to 199 in the table, but it is 200"):
        found.explain(200, missing=True)


def test_doubtful_labels_have_a_low_probability_out_of_fold() -> None:
    x, y, _ = wines()
    truth = load_wine().target
    wrong = np.flatnonzero(y >= 0)[:2]
    y[wrong] = (truth[wrong] + 1) % 3
    model = JLGCNClassifier().fit(x, y)
    rows, labels, probability = model.held_out_labels()
    assert (model.classes_[labels] == y[rows]).all()
    assert probability.sum(-1) == pytest.approx(1, abs=1e-5)
    own = probability[np.arange(len(rows)), labels]
    assert set(wrong.tolist()) <= set(rows[np.argsort(own)[:4]].tolist())


def test_an_audit_refuses_what_it_cannot_do(model: JLGCNClassifier) -> None:
    with pytest.raises(ValueError, match="a name for each of 178 rows, but has 2"):
        model.audit(["a", "b"])
    x, y, pairs = wines()
    torch.manual_seed(0)
    network = JLGCNClassifier(solver="gradient", max_iter=1)
    network.fit(x, y, np.concatenate([pairs, pairs[::-1]], 1))
    for ask in (network.audit, network.held_out_labels):
        with pytest.raises(ValueError, match='fit with solver="closed_form"'):
            ask()


def test_no_more_missing_edges_are_added_than_were_found(model: JLGCNClassifier) -> None:
    few = model.audit(IDS, num_missing=3)
    assert few.num_wrong > 3
    cleaned = few.cleaned()
    assert len(cleaned) == len(few.suspicious.source) - few.num_wrong + 3
