from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs
from sklearn.metrics import roc_auc_score

from jlgcn import JLGCNClassifier
from jlgcn.closed_form.novelty import novelty
from jlgcn.estimator.labelling import with_unknown
from jlgcn.graphs import SparseGraph
from tests.brute import F64, largest_difference
from tests.estimator.test_classifier import wine

PROBABILITY = np.array([[0.9, 0.1], [0.4, 0.6], [0.25, 0.75]])


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        (np.array([3, 7]), [3, -1, 7]),
        (np.array([3, 7], dtype=np.uint8), [3, -1, 7]),
        (np.array([0.5, 7.0]), [0.5, -1, 7.0]),
        (np.array([False, True]), [False, None, True]),
        (np.array(["a", "b"]), ["a", None, "b"]),
        (np.array(["a", "b"], dtype=object), ["a", None, "b"]),
    ],
)
def test_an_unsure_row_is_unknown(classes: np.ndarray, expected: list[object]) -> None:
    assert with_unknown(classes, PROBABILITY, 0.25).tolist() == expected
    assert with_unknown(classes, PROBABILITY, None).dtype == classes.dtype


def test_predict_rejects_by_probability() -> None:
    x, _, few = wine()
    model = JLGCNClassifier().fit(x, few)
    probability = model.predict_proba(x)
    found = model.predict(x, reject=0.1)
    assert ((found == -1) == (probability.max(1) < 0.9)).all()
    assert (found[found != -1] == model.predict(x)[found != -1]).all()
    for reject in (-0.1, 1, 2.0):
        with pytest.raises(ValueError, match="reject must be at least 0 and below 1, but it is"):
            model.predict(x, reject=reject)


def test_novelty_counts_walks_that_end_at_labels() -> None:
    pairs = torch.tensor([[0, 1], [1, 2], [2, 3], [0, 2]]).mT
    edges = torch.cat([pairs, pairs.flip(0), torch.arange(5).expand(2, 5)], 1)
    graph = SparseGraph(edges, num_nodes=5)
    probability = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5], [0.6, 0.4], [0.7, 0.3]])
    train, labels = torch.tensor([0, 1, 2]), torch.tensor([0, 1, 0])
    walk = graph.to_dense().double()
    walk = walk / walk.sum(1, keepdim=True)
    ends = 0.2 * torch.linalg.inv(torch.eye(5, dtype=F64) - 0.8 * walk)
    sizes = probability.double().sum(0)
    of_class = torch.stack([ends[:, [0, 2]].sum(1) / 2, ends[:, 1]], 1) * sizes
    expected = -(probability.double() * of_class).sum(1).clamp(min=1e-12).log()
    found = novelty(graph, probability.double(), train, labels)
    assert largest_difference(found[:4], expected[:4]) < 1e-2
    assert int(found.argmax()) == 4  # from which no walk reaches a label


def test_a_cluster_without_labels_is_novel() -> None:
    x, y = make_blobs([100, 50, 80], centers=[[0, 0], [6, 0], [0, 9]], random_state=0)
    few = np.full(len(y), -1)
    for label in (0, 1):
        few[np.flatnonzero(y == label)[:8]] = label
    model = JLGCNClassifier().fit(x, few)
    is_asked = few < 0
    assert model.novelty_.shape == (230,)
    assert roc_auc_score(y[is_asked] == 2, model.novelty_[is_asked]) > 0.99
    assert model.novelty_[~is_asked].max() < np.median(model.novelty_[y == 2])


def test_the_network_has_no_novelty() -> None:
    x, _, few = wine()
    model = JLGCNClassifier(solver="gradient", max_iter=2).fit(x, few)
    with pytest.raises(AttributeError, match="novelty_ is of the closed form"):
        model.novelty_  # noqa: B018
