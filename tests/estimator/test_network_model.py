"""The gradient solver of the estimator: the paper's network on any table."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.utils.estimator_checks import parametrize_with_checks

from jlgcn import JLGCNClassifier
from jlgcn.estimator.network_fit import fit_network, hold_out
from jlgcn.estimator.network_model import NetworkModel
from jlgcn.estimator.network_options import NetworkOptions
from jlgcn.nn import JLGCN, PRESETS, DecoupledJLGCN
from jlgcn.ops import SparseFeatures
from tests.estimator.test_classifier import EXPECTED_TO_FAIL, wine

#: Checks that pass weights of labels, which the network refuses with the remedy.
WITH_WEIGHTS = {
    f"check_{name}": 'sample_weight is of solver="closed_form"'
    for name in (
        "sample_weights_pandas_series",
        "sample_weights_not_an_array",
        "sample_weights_list",
        "sample_weights_shape",
        "sample_weights_not_overwritten",
        "classifiers_one_label_sample_weights",
    )
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::jlgcn.errors.OneClassWarning")
@pytest.mark.filterwarnings("ignore::jlgcn.errors.GraphHealthWarning")
@pytest.mark.filterwarnings("ignore:no class has two labels")
@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [JLGCNClassifier(solver="gradient", max_iter=30)],
    expected_failed_checks=lambda estimator: EXPECTED_TO_FAIL | WITH_WEIGHTS,
)
def test_it_is_an_estimator_of_scikit_learn(
    estimator: JLGCNClassifier, check: Callable[[JLGCNClassifier], None]
) -> None:
    if "array_api" in str(check):
        pytest.skip("for estimators that compute on other arrays than NumPy's")
    check(estimator)


@functools.cache
def _fitted(backend: str = "auto", *, with_graph: bool = False) -> JLGCNClassifier:
    x, _, few = wine(10)
    graph = np.array([[0, 60, 5], [1, 61, 7]]) if with_graph else None
    graph = None if graph is None else np.concatenate([graph, graph[::-1]], axis=1)
    model = JLGCNClassifier(solver="gradient", max_iter=40, backend=backend)  # type: ignore[arg-type]
    return model.fit(x, few, graph)


def fitted(backend: str = "auto", *, with_graph: bool = False) -> JLGCNClassifier:
    """Return a network of wines with thirty labels."""
    return copy.deepcopy(_fitted(backend, with_graph=with_graph))


def test_the_network_learns_wines_from_thirty_labels() -> None:
    _, y, few = wine(10)
    model = fitted()
    assert isinstance(model.model_, NetworkModel)
    assert (model.transduction_ == y)[few == -1].mean() > 0.9
    assert model.label_distributions_.shape == (178, 3)
    assert len(model.history_) == model.n_iter_ == 40
    assert set(model.history_[0]) == {"loss", "val_accuracy", "val_loss"}
    best = model.best_params_["epoch"]
    accuracies = [row["val_accuracy"] for row in model.history_]
    assert accuracies[best] == max(accuracies)


def test_the_seed_decides_and_the_callers_random_numbers_stay() -> None:
    x, _, few = wine(10)
    model = JLGCNClassifier(solver="gradient", max_iter=3)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = clone(model).fit(x, few).label_distributions_
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(clone(model).fit(x, few).label_distributions_, first)
    other = clone(model).set_params(random_state=1).fit(x, few).label_distributions_
    assert not np.array_equal(other, first)


def test_parameters_of_the_other_solver_have_no_effect() -> None:
    x, _, few = wine(10)
    closed = JLGCNClassifier(n_neighbors=7, restart=0.2, n_layers=1, max_iter=1, preset="paper")
    plain = JLGCNClassifier(n_neighbors=7, restart=0.2, n_layers=1)
    expected = plain.fit(x, few).label_distributions_
    assert np.array_equal(closed.fit(x, few).label_distributions_, expected)
    network = JLGCNClassifier(solver="gradient", max_iter=3)
    changed = clone(network).set_params(restart=0.01, n_layers=1, n_components=2)
    expected = network.fit(x, few).label_distributions_
    assert np.array_equal(changed.fit(x, few).label_distributions_, expected)


@pytest.mark.parametrize("backend", ["auto", "knn", "exact"])
def test_new_rows_do_not_influence_each_other(backend: str) -> None:
    x, _, _ = wine()
    model = fitted(backend)
    rows = x[[3, 70, 150, 20]].copy()
    rows[3] *= 1e5  # far from all others
    together = model.predict_proba(rows)
    alone = np.concatenate([model.predict_proba(row[None]) for row in rows])
    np.testing.assert_allclose(together, alone, atol=1e-12)
    # A copy of a row has one more neighbour than the row: itself.
    assert (model.predict(x) == model.transduction_).mean() > 0.95


def test_known_edges_of_new_rows_count() -> None:
    x, _, _ = wine()
    for model in (fitted(), fitted(with_graph=True)):
        plain = model.predict_proba(x[:3])
        found = model.predict_proba(x[:3], np.array([[0, 0, 2], [60, 150, 9]]))
        assert np.array_equal(found[1], plain[1])
        assert np.abs(found[0] - plain[0]).max() > 1e-4


def test_a_given_graph_is_used() -> None:
    assert fitted(with_graph=True).model_.given.num_nodes == 178
    first, second = (fitted(with_graph=given).label_distributions_ for given in (True, False))
    assert not np.allclose(first, second)


def test_the_default_backend_is_exact_for_few_rows() -> None:
    assert fitted().model_.backend == "dense"
    assert fitted("exact").model_.backend == "exact"
    dense, exact = (fitted(name).label_distributions_ for name in ("auto", "exact"))
    assert np.abs(dense - exact).max() < 0.05  # equal up to rounding in each of forty epochs


def test_edges_are_the_nearest_rows_in_the_metric_of_a_layer() -> None:
    model = fitted()
    graph = model.learned_graph()
    z = model.model_.network.learners[0].project(model.model_.x).detach()
    distance = torch.cdist(z.double(), z.double()).square()
    distance.fill_diagonal_(torch.inf)
    nearest = int(distance[8].argmin())
    assert float(graph.rows(torch.tensor([8]))[0, nearest]) == pytest.approx(
        float((-distance[8, nearest]).exp()), rel=1e-4
    )
    edges = model.edges(top_k=1)
    assert {8, nearest} in [
        {int(i), int(j)} for i, j in zip(edges.source, edges.target, strict=True)
    ]
    assert len(model.edges(-1, top_k=1)) > 0


def test_an_edge_is_explained_exactly_by_columns_or_by_hidden_features() -> None:
    model = fitted()
    graph = model.learned_graph()
    j = int(graph.row(8)[0][-1])
    found = model.explain_edge(8, j)
    assert found.features.shape == (13,)
    assert float(found.features.sum()) == pytest.approx(found.squared_distance)
    weight = float(graph.rows(torch.tensor([8]))[0, j])
    assert found.weight == pytest.approx(weight, rel=1e-4)
    assert model.explain_edge(8, j, 0).weight == found.weight
    assert model.explain_edge(8, j, -1).features.shape == (16,)
    pairs = torch.tensor([8, 3]), torch.tensor([j, 4])
    together = model.model_.contributions(*pairs)
    assert torch.allclose(together[0], found.features)
    with pytest.raises(ValueError, match=r"layer must be a number from 0 to 1, or -1 .* it is 2"):
        model.explain_edge(0, 1, 2)


def test_a_prediction_cannot_be_explained_and_the_error_says_what_can() -> None:
    with pytest.raises(ValueError, match=r'explain_edge\(i, j\).*or fit with solver="closed_form"'):
        fitted().explain_node(3)


def test_important_features_have_names_by_layer() -> None:
    model = fitted()
    assert {name for name, _ in model.important_features()} == {f"x{k}" for k in range(13)}
    hidden = model.important_features(layer=1)
    assert {name for name, _ in hidden} == {f"hidden{k}" for k in range(16)}
    total = sum(value for _, value in model.important_features())
    z = model.model_.network.learners[0].project(model.model_.x).detach().double()
    assert total == pytest.approx(float(torch.cdist(z, z).square().mean()), rel=1e-4)


def test_suggested_rows_have_no_label() -> None:
    _, _, few = wine(10)
    rows = fitted().suggest_labels(12)
    assert len(set(rows.tolist())) == 12
    assert (few[rows] == -1).all()


def test_validation_holds_out_some_labels_of_each_class_but_not_all() -> None:
    labels = torch.tensor([0] * 10 + [1] * 2 + [2])
    held = hold_out(labels, 0.2, seed=0)
    assert [int(held[labels == c].sum()) for c in range(3)] == [2, 1, 0]
    assert [int(hold_out(labels, 0.99, 0)[labels == c].sum()) for c in range(3)] == [9, 1, 0]
    model = fitted().model_
    assert len(model.validation) == 6
    assert len(model.learned_from) == 24
    assert not set(model.validation.tolist()) & set(model.learned_from.tolist())


def test_single_labels_are_learned_from_with_a_warning() -> None:
    x, y = load_wine(return_X_y=True)
    few = np.full(178, -1)
    few[[0, 60, 150]] = y[[0, 60, 150]]
    with pytest.warns(UserWarning, match="no class has two labels.*label two rows"):
        model = JLGCNClassifier(solver="gradient", max_iter=5).fit(x, few)
    assert torch.equal(model.model_.learned_from, model.model_.train)


def test_sparse_words_are_read() -> None:
    x, y, few = wine(10)
    words = scipy.sparse.csr_matrix(x > np.median(x, 0), dtype=np.float32)
    model = JLGCNClassifier(solver="gradient", max_iter=40).fit(words, few)
    assert model.scaler_.kind == "words"
    assert isinstance(model.model_.x, SparseFeatures)
    assert (model.transduction_ == y)[few == -1].mean() > 0.7
    together = model.predict_proba(words[:4])
    np.testing.assert_allclose(together[:1], model.predict_proba(words[0]), atol=1e-12)
    np.testing.assert_allclose(together, model.predict_proba(words[:4].toarray()), atol=1e-12)
    assert len(model.important_features()) == 13
    assert model.explain_edge(0, 1).features.shape == (13,)


def test_the_preset_is_resolved_by_name_and_its_random_metric_is_scaled() -> None:
    for name in PRESETS:
        x = torch.randn(40, 5, generator=torch.Generator().manual_seed(0))
        y = torch.arange(40) % 2
        options = NetworkOptions(preset=name, max_iter=2)
        found = fit_network(x, y, train=torch.arange(20), options=options)
        assert isinstance(found.network, JLGCN)
        assert found.network.options.bias == PRESETS[name].bias
        assert found.network.options.metric_init != "random"


def test_the_decoupled_network_offers_what_the_estimator_does(tmp_path: Path) -> None:
    x, y, few = wine(10)
    graph = np.array([[0, 60, 5, 1, 61, 7], [1, 61, 7, 0, 60, 5]])
    model = JLGCNClassifier(solver="gradient", preset="decoupled", max_iter=60).fit(x, few, graph)
    assert isinstance(model.model_.network, DecoupledJLGCN)
    assert (model.transduction_ == y)[few == -1].mean() > 0.9
    distance = model.explain_edge(0, 1)
    weight = model.learned_graph().row(0)
    found = dict(zip(weight[0].tolist(), weight[1].tolist(), strict=True))
    neighbor = next(iter(found))
    explained = model.explain_edge(0, neighbor)
    assert explained.weight == pytest.approx(found[neighbor], rel=1e-4)
    assert len(distance.directions) == 1 + 3
    assert len(model.important_features()) == 13
    assert len(model.suggest_labels(3)) == 3
    assert len(model.edges(top_k=2)) > 100
    new = model.predict_proba(x[:4], np.array([[0, 1], [5, 6]]))
    model.save(tmp_path)
    loaded = JLGCNClassifier.load(tmp_path)
    assert np.array_equal(loaded.predict_proba(x[:4], np.array([[0, 1], [5, 6]])), new)
    assert np.array_equal(loaded.transduction_, model.transduction_)
    with pytest.raises(ValueError, match="are not a sum over a row's edges"):
        model.explain_node(0)


def test_the_decoupled_network_takes_words() -> None:
    generator = np.random.default_rng(0)
    y = np.arange(90) % 3
    counts = generator.poisson(0.1, (90, 60)) + generator.poisson(
        2.0 * (np.arange(60) % 3 == y[:, None])
    )
    few = np.where(np.arange(90) < 15, y, -1)
    settings = {"solver": "gradient", "preset": "decoupled", "max_iter": 30, "scaler": "words"}
    model = JLGCNClassifier(**settings).fit(scipy.sparse.csr_matrix(counts), few)  # type: ignore[arg-type]
    assert isinstance(model.model_.x, SparseFeatures)
    assert (model.transduction_ == y).mean() > 0.9
    assert (model.predict(scipy.sparse.csr_matrix(counts[:9])) == y[:9]).mean() > 0.8


def test_a_network_of_one_layer_and_one_of_three_work() -> None:
    x, _, few = wine(10)
    for number in (1, 3):
        model = JLGCNClassifier(solver="gradient", max_iter=2, network_layers=number).fit(x, few)
        assert model.model_.num_layers == number
        assert len(model.suggest_labels(2)) == 2
        assert model.predict(x[:3]).shape == (3,)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"solver": "sgd"}, "solver must be one of closed_form, gradient, but it is 'sgd'"),
        ({"preset": "mine"}, "preset must be one of .*authors.*'mine'"),
        ({"max_iter": 0}, "max_iter must be a whole number from 1"),
        ({"validation_fraction": 1.0}, "validation_fraction must be a number from"),
        ({"backend": "sparse"}, "backend must be one of"),
        ({"random_state": -1}, "random_state must be a whole number"),
        ({"learning_rate": 0}, "learning_rate must be a number above 0"),
        ({"n_neighbors": 0}, "n_neighbors must be a whole number from 1"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, object], match: str) -> None:
    x, _, few = wine(10)
    model = JLGCNClassifier(**{"solver": "gradient", "max_iter": 2} | settings)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=match):
        model.fit(x, few)


def test_the_trained_network_is_an_ordinary_one() -> None:
    model = fitted().model_
    assert isinstance(model.network, JLGCN)
    assert not model.network.training
    with torch.no_grad():
        logits = model.network(model.x).logits
    assert torch.equal(logits, model.logits)
