from __future__ import annotations

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
import scipy.sparse

from jlgcn import JLGCNClassifier
from jlgcn.estimator.network_options import Solver
from tests.estimator.test_classifier import wine


@pytest.mark.parametrize("solver", ["closed_form", "gradient"])
def test_distances_of_coordinates_are_learned_distances(solver: Solver) -> None:
    x, _, few = wine()
    model = JLGCNClassifier(solver=solver, max_iter=5).fit(x, few)
    z = model.transform(x)
    assert model.get_feature_names_out().shape == z.shape[1:]
    for i, j in ((0, 1), (3, 100), (60, 170)):
        expected = model.explain_edge(i, j).squared_distance
        assert float(np.square(z[i] - z[j]).sum()) == pytest.approx(expected, rel=1e-5)
    assert np.allclose(model.transform(x[5:7]), z[5:7], rtol=1e-9)


def test_coordinates_of_words_are_few_and_dense() -> None:
    x, _, few = wine()
    words = scipy.sparse.csr_matrix(x > np.median(x, 0), dtype=np.float32)
    model = JLGCNClassifier(n_components=4).fit(words, few)
    z = model.transform(words)
    assert z.shape == (178, 4 + 3)
    assert model.get_feature_names_out().tolist() == [
        *(f"component{k}" for k in range(4)),
        *(f"metric_{name}" for name in range(3)),
    ]


def test_coordinates_come_as_a_data_frame_if_asked() -> None:
    x, _, few = wine()
    model = JLGCNClassifier().set_output(transform="pandas").fit(x, few)
    frame = model.transform(x)
    assert isinstance(frame, pd.DataFrame)
    assert frame.columns.tolist() == model.get_feature_names_out().tolist()


def test_fit_predict_is_the_prediction_of_every_row_of_fit() -> None:
    x, _, few = wine()
    weight = np.where(few == 0, 2.0, 1.0)
    model = JLGCNClassifier()
    predicted = model.fit_predict(x, few, sample_weight=weight)
    expected = JLGCNClassifier().fit(x, few, sample_weight=weight).transduction_
    assert np.array_equal(predicted, expected)
    assert np.array_equal(model.transduction_, expected)
