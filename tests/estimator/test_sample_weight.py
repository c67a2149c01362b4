from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jlgcn import JLGCNClassifier
from jlgcn.estimator.class_weights import class_weights
from tests.estimator.test_classifier import wine


def test_weights_of_one_and_of_unlabelled_rows_change_nothing() -> None:
    x, _, few = wine()
    plain = JLGCNClassifier().fit(x, few)
    weight = np.where(few < 0, np.nan, 1.0)
    weighted = JLGCNClassifier().fit(x, few, sample_weight=weight)
    assert np.array_equal(plain.label_distributions_, weighted.label_distributions_)


def test_a_weight_of_zero_makes_a_row_unlabelled() -> None:
    x, _, few = wine(6)
    fewer = few.copy()
    fewer[np.flatnonzero(few >= 0)[::2]] = -1
    plain = JLGCNClassifier().fit(x, fewer)
    weighted = JLGCNClassifier().fit(x, few, sample_weight=(fewer >= 0).astype(int))
    assert np.array_equal(plain.label_distributions_, weighted.label_distributions_)


def test_a_heavier_label_is_believed_more() -> None:
    x, _, few = wine(8)
    wrong = int(np.flatnonzero(few == 0)[0])
    few[wrong] = 1
    found = [
        JLGCNClassifier().fit(x, few, sample_weight=np.where(np.arange(178) == wrong, weight, 1.0))
        for weight in (0.01, 1, 20)
    ]
    said = [model.label_distributions_[wrong, 1] for model in found]
    assert said == sorted(said)
    assert found[0].transduction_[wrong] == 0
    assert found[-1].transduction_[wrong] == 1


def test_balanced_classes_are_balanced_by_weight() -> None:
    names, codes = np.array(["a", "b", "c"]), np.array([0, 0, 1])
    assert class_weights("balanced", names, codes, np.array([1.0, 2.0, 6.0])).tolist() == [  # type: ignore[union-attr]
        1.5,
        0.75,
        1,
    ]
    again = class_weights("balanced", names, np.repeat(codes, [1, 2, 6]))
    assert again.tolist() == [1.5, 0.75, 1]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("weight", "match"),
    [
        (np.ones(3), "sample_weight has 3 weights but X has 178 rows; pass one for each row"),
        (2.0, "sample_weight must have a weight for each row, but it is 2.0"),
        (np.full(178, -1.0), "not negative, but that of row 0 is -1.0; pass 0"),
        (np.full(178, np.inf), "must be finite .* row 0 is inf"),
        (np.zeros(178), "weights of sample_weight are zero for all labels"),
    ],
)
def test_weights_that_cannot_be_are_refused(weight: Any, match: str) -> None:  # noqa: ANN401
    x, _, few = wine()
    with pytest.raises(ValueError, match=match):
        JLGCNClassifier().fit(x, few, sample_weight=weight)


def test_the_network_takes_weights_of_classes_only() -> None:
    x, _, few = wine()
    with pytest.raises(ValueError, match='sample_weight is of solver="closed_form"'):
        JLGCNClassifier(solver="gradient").fit(x, few, sample_weight=np.ones(178))
