from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from torch.nn import functional

from evaluation.claim_data import load_claim
from jlgcn import SparseGraph
from jlgcn.closed_form import ClosedFormModel, ClosedFormOptions, FeatureScaler, fit_closed_form
from jlgcn.closed_form.active import select_queries
from jlgcn.closed_form.classifier import Evidence
from jlgcn.closed_form.combine import inverse_temperature, part_weights
from jlgcn.closed_form.held_out import HeldOut
from jlgcn.closed_form.logistic import PENALTIES, cross_entropy, fit_logistic
from jlgcn.closed_form.model import ClosedFormLayer
from jlgcn.closed_form.nystroem import MAX_LANDMARKS, Landmarks
from jlgcn.closed_form.options import Parts
from jlgcn.closed_form.selection import is_better
from jlgcn.graphs.candidates import Candidates
from jlgcn.ops import SparseFeatures
from tests.brute import F64, largest_difference
from tests.real_data import DATA, needs_data

FIXED = ClosedFormOptions(n_neighbors=5, learned_degree=2.0, given_decay=0.5, tolerance=1e-6)


def blobs(num_nodes: int = 90, distance: float = 3.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return three clusters in two of six dimensions; the others are noise."""
    y = torch.arange(num_nodes) % 3
    x = torch.randn(num_nodes, 6)
    x[:, :2] += distance * torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])[y]
    return x, y


def edges_within(y: torch.Tensor, num_edges: int) -> SparseGraph:
    row = torch.randint(len(y), (num_edges,))
    col = (row + 3 * torch.randint(1, 20, (num_edges,))) % len(y)
    pairs = torch.cat([torch.stack([row, col]), torch.stack([col, row])], -1).unique(dim=1)
    return SparseGraph(pairs, num_nodes=len(y))


def accuracy(model: ClosedFormModel, y: torch.Tensor) -> float:
    return float((model.logits.argmax(-1) == y).float().mean())


def test_the_learned_graph_is_the_papers_kernel_under_both_metrics() -> None:
    x, y = blobs()
    model = fit_closed_form(x, y, train=torch.arange(15), options=FIXED)
    for layer in model.layers:
        row, col = layer.learned.edge_index
        difference = x[row] - x[col]
        distance = difference.square().sum(-1) / model.candidates.unit
        distance = distance + (difference @ layer.metric).square().sum(-1)
        assert largest_difference(layer.learned.weight, (-distance).exp()) < 1e-5
        assert int(torch.bincount(row).min()) >= 5
    assert not model.layers[0].metric.any()
    assert torch.linalg.matrix_rank(model.layers[-1].metric) == 2  # three classes, centred


def test_the_metric_grows_where_features_tell_classes_apart() -> None:
    x, y = blobs(300)
    model = fit_closed_form(x, y, train=torch.arange(60), options=FIXED)
    strength = model.layers[-1].metric.norm(dim=-1)
    assert float(strength[:2].min()) > 3 * float(strength[2:].max())


def test_given_edges_are_added_and_lose_weight_with_distance() -> None:
    x, y = blobs()
    graph = edges_within(y, 100)
    candidates = Candidates.find(x, 20, graph)
    metric = torch.randn(6, 3)
    for decay in (0.0, 0.5):
        learned, scale, total = candidates.join(
            metric, num_neighbors=5, learned_degree=2.0, given_decay=decay
        )
        assert float(learned.weight.sum()) * scale / len(x) == pytest.approx(2.0, rel=1e-5)
        difference = x.unsqueeze(1) - x
        distance = difference.square().sum(-1) / candidates.unit
        distance = distance + (difference @ metric).square().sum(-1)
        expected = graph.to_dense() * (-decay * distance).exp()
        expected = expected + scale * learned.to_dense() + torch.eye(len(x))
        assert largest_difference(total.to_dense(), expected) < 1e-4


def test_few_labels_are_enough_for_clusters_and_a_graph_adds_to_them() -> None:
    x, y = blobs(150, distance=2.0)
    train = torch.arange(9)
    alone = fit_closed_form(x, y, train=train)
    joined = fit_closed_form(x, y, edges_within(y, 400), train=train)
    assert accuracy(alone, y) > 0.6
    assert accuracy(joined, y) > max(0.95, accuracy(alone, y))


def test_labels_find_out_that_a_graph_is_wrong() -> None:
    x, y = blobs(150, distance=6.0)
    row, col = torch.randint(150, (2, 1000))
    wrong = SparseGraph(
        torch.cat([torch.stack([row, col]), torch.stack([col, row])], -1).unique(dim=1)
    )
    # No way around the graph: a long walk, and a classifier that sees nothing else.
    options = ClosedFormOptions(restart=0.05, parts="graph")
    model = fit_closed_form(x, y, wrong, train=torch.arange(60), options=options)
    assert model.options.given_decay > 0
    trusting = fit_closed_form(
        x, y, wrong, train=torch.arange(60), options=replace(options, given_decay=0.0)
    )
    assert accuracy(model, y) > accuracy(trusting, y)


@pytest.mark.parametrize("penalty", [0.01, 0.3])
def test_held_out_labels_are_predicted_by_fits_without_them(
    monkeypatch: pytest.MonkeyPatch, penalty: float
) -> None:
    monkeypatch.setattr("jlgcn.closed_form.logistic._COARSE", 1e-7)
    monkeypatch.setattr("jlgcn.closed_form.logistic._FINE", 1e-12)
    x, y = blobs(24)
    x = x.double() - x.double().mean(0)
    x = x / x.square().sum(-1).mean().sqrt()
    held_out = HeldOut.folds(y, torch.ones(24, dtype=F64))
    assert torch.bincount(held_out.fold).tolist() == [5, 5, 5, 5, 4]
    found = fit_logistic(x, y, held_out, 3, penalties=(penalty,))
    reference = LogisticRegression(C=1 / penalty, tol=1e-10, max_iter=10_000)
    for split in range(held_out.num_splits):
        hidden = held_out.fold == split
        reference.fit(x[~hidden].numpy(), y[~hidden].numpy())
        expected = torch.from_numpy(reference.predict_proba(x[hidden].numpy()))
        # Fits that are only compared run in float32.
        assert largest_difference(found.held_out[hidden].softmax(-1), expected) < 5e-3
    reference.fit(x.numpy(), y.numpy())
    expected = torch.from_numpy(reference.predict_proba(x.numpy()))
    assert largest_difference((x @ found.weight + found.bias).softmax(-1), expected) < 1e-3


def test_the_penalty_is_the_one_whose_held_out_loss_is_smallest() -> None:
    x, y = blobs(60, distance=1.0)
    held_out = HeldOut.folds(y, torch.ones(60, dtype=F64))
    found = fit_logistic(x, y, held_out, 3)
    losses = {
        penalty: float(
            cross_entropy(fit_logistic(x, y, held_out, 3, penalties=(penalty,)).held_out, y).mean()
        )
        for penalty in PENALTIES
    }
    assert found.penalty == min(losses, key=losses.__getitem__)


def test_a_label_of_weight_two_counts_as_two_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jlgcn.closed_form.logistic._FINE", 1e-16)
    x, y = blobs(30)
    weight = torch.ones(30, dtype=F64)
    weight[:5] = 2
    held_out = HeldOut.validation(torch.cat([weight, weight[:3]]), num_val=3)
    once = fit_logistic(torch.cat([x, x[:3]]), torch.cat([y, y[:3]]), held_out, 3, penalties=(0.1,))
    rows = torch.cat([x, x[:5], x[:3]])
    labels = torch.cat([y, y[:5], y[:3]])
    held_out = HeldOut.validation(torch.ones(38, dtype=F64), num_val=3)
    twice = fit_logistic(rows, labels, held_out, 3, penalties=(0.1,))
    assert largest_difference(once.weight, twice.weight) < 1e-3


def test_a_class_with_one_label_does_not_select() -> None:
    y = torch.tensor([0, 0, 1, 1, 2])
    held_out = HeldOut.folds(y, torch.ones(5, dtype=F64))
    assert held_out.num_splits == 2
    assert held_out.counts(y).tolist() == [True, True, True, True, False]
    assert (
        not HeldOut.folds(torch.arange(3), torch.ones(3, dtype=F64)).counts(torch.arange(3)).any()
    )


def test_few_labels_must_be_sure_of_a_better_setting() -> None:
    old = ones = torch.tensor([1.0, 1.0, 1.0, 1.0])
    sure = old - torch.tensor([0.5, 0.4, 0.5, 0.6])
    unsure = old - torch.tensor([2.0, -0.5, -0.5, -0.5])
    assert is_better(sure, old, ones, by_mean=False)
    assert not is_better(unsure, old, ones, by_mean=False)
    assert is_better(unsure, old, ones, by_mean=True)  # of validation labels, the mean decides


def test_classifiers_count_less_by_every_standard_error_they_are_behind() -> None:
    best = torch.zeros(100, dtype=F64)
    other = torch.tensor([0.0, 0.4], dtype=F64).repeat(50)  # 0.2 behind, standard error 0.0201
    ones = torch.ones(100, dtype=F64)
    found = part_weights(torch.stack([best, other]), ones)
    z = 0.2 / (float(other.std()) / 10)
    assert float(found[1] / found[0]) == pytest.approx(np.exp(-z))
    assert part_weights(torch.stack([best, best]), ones).tolist() == [0.5, 0.5]
    assert (
        part_weights(torch.zeros(3, 1, dtype=F64), ones[:1]).tolist() == [1 / 3] * 3
    )  # nothing to go by


def test_the_temperature_corrects_confidence() -> None:
    y = torch.arange(2).repeat(200)
    logits = functional.one_hot(torch.where(torch.arange(400) < 300, y, 1 - y), 2).double()
    ones = torch.ones(400, dtype=F64)
    # Three of four are right: log 3 = 1.1.
    assert 8 * inverse_temperature(8 * logits, y, ones) == pytest.approx(1.1, abs=0.06)
    assert inverse_temperature(logits, y, ones) == pytest.approx(1.1, abs=0.06)
    # Ten labels that are all right do not prove that the next one is.
    assert 8 * inverse_temperature(8 * logits[:10], y[:10], ones[:10]) == pytest.approx(
        2.6, abs=0.3
    )
    assert inverse_temperature(logits[:1], y[:1], ones[:1]) == 0.5


def test_one_label_a_class_is_enough_for_clusters() -> None:
    x, y = blobs(150, distance=8.0)
    model = fit_closed_form(x, y, train=torch.arange(3))
    assert accuracy(model, y) > 0.95


@pytest.mark.parametrize("parts", get_args(Parts))
def test_new_nodes_that_equal_old_ones_are_classified_as_they_are(parts: Parts) -> None:
    x, y = blobs(200)
    graph = edges_within(y, 300)
    options = ClosedFormOptions(parts=parts)
    model = fit_closed_form(x, y, graph, train=torch.arange(30), options=options)
    is_new = graph.edge_index[0] < 50
    got = model.predict(x[:50], (graph.edge_index[:, is_new], graph.weight[is_new]))
    assert float((got.argmax(-1) == model.logits[:50].argmax(-1)).float().mean()) > 0.95
    if "graph" not in parts:  # own features and given neighbours are all that counts
        assert largest_difference(got, model.logits[:50]) < 1e-4


def test_new_nodes_are_classified_each_by_itself() -> None:
    x, y = blobs(200)
    model = fit_closed_form(x, y, edges_within(y, 300), train=torch.arange(30))
    new, y_new = blobs(60)
    assert float((model.predict(new).argmax(-1) == y_new).float().mean()) > 0.8
    one_by_one = torch.cat([model.predict(row.unsqueeze(0)) for row in new[:5]])
    assert largest_difference(model.predict(new)[:5], one_by_one) < 1e-4


def test_scores_are_a_sum_over_diffused_own_and_neighbours_features_and_a_kernel() -> None:
    x, y = blobs()
    x, graph = x.to(F64), edges_within(y, 100).to(dtype=F64)
    model = fit_closed_form(x, y, graph, train=torch.arange(15), options=FIXED)
    classifier = model.classifier
    mean = graph.to_dense() / graph.degree().clamp(min=1).unsqueeze(-1)
    kernel = -torch.cdist(x @ model.projection, classifier.landmarks.points).square()
    expected = functional.normalize(model.diffused) @ classifier.graph + classifier.bias
    expected = expected + (classifier.landmarks.gamma * kernel).exp() @ classifier.kernel
    for power, weight in enumerate(classifier.blocks):
        expected = expected + torch.linalg.matrix_power(mean, power) @ x @ weight
    assert largest_difference(model.logits, expected) < 1e-9
    assert sum(model.evidence.weights.values()) == pytest.approx(1)
    assert list(model.evidence.weights) == ["linear", "neighbours", "kernel", "graph"]


def test_the_average_of_one_classifier_is_logistic_regression() -> None:
    x, y = blobs(300)
    train = torch.arange(60)
    model = fit_closed_form(x, y, train=train, options=replace(FIXED, parts="linear"))
    penalties = {"C": [0.1, 1.0, 10.0]}
    reference = GridSearchCV(LogisticRegression(), penalties, scoring="neg_log_loss", cv=5)
    expected = reference.fit(x[train].numpy(), y[train].numpy()).predict(x.numpy())
    assert abs(accuracy(model, y) - float((torch.from_numpy(expected) == y).float().mean())) < 0.02
    assert model.evidence.weights == {"linear": 1.0}


def test_labels_let_own_features_count_where_neighbours_are_unlike() -> None:
    x, y = blobs(300)
    row = torch.arange(300)
    pairs = torch.stack([row, (row + 1) % 300])  # every edge joins two classes
    wrong = SparseGraph(torch.cat([pairs, pairs.flip(0)], -1), num_nodes=300)
    # A long walk on given edges alone.
    options = ClosedFormOptions(
        n_layers=1, n_neighbors=5, learned_degree=0.0, given_decay=0.0, restart=0.05
    )
    train, val = torch.arange(60), torch.arange(60, 120)
    model = fit_closed_form(x, y, wrong, train=train, val=val, options=options)
    assert model.evidence.weights["graph"] < 0.01
    assert "log-loss" in str(model.evidence)
    only = replace(options, parts="graph")
    diffused = fit_closed_form(x, y, wrong, train=train, val=val, options=only)
    assert accuracy(model, y) > accuracy(diffused, y) + 0.1


def test_labels_take_a_kernel_where_no_plane_tells_classes_apart() -> None:
    angle = torch.rand(400) * 2 * torch.pi
    y = torch.arange(400) % 2
    x = (1.0 + y).unsqueeze(-1) * torch.stack([angle.cos(), angle.sin()], dim=-1)
    x = x + 0.1 * torch.randn_like(x)
    train, val = torch.arange(100), torch.arange(100, 200)
    # One circle around another.
    options = ClosedFormOptions(parts="linear+kernel")
    model = fit_closed_form(x, y, train=train, val=val, options=options)
    assert model.evidence.weights["kernel"] > 0.99
    linear = fit_closed_form(x, y, train=train, val=val, options=replace(options, parts="linear"))
    assert accuracy(model, y) > accuracy(linear, y) + 0.3


def test_kernel_scores_are_those_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jlgcn.closed_form.nystroem._CHUNK_ROWS", 15)  # 15, 15 and 10
    features = torch.randn(40, 5, dtype=F64)
    labeled = torch.arange(0, 40, 2)
    variance = float(features.var(0, correction=0).sum())
    landmarks = Landmarks.place(features[labeled], variance)
    kernel = (-0.25 * torch.cdist(features, features).square() / variance).exp()
    found = landmarks.scores(features, landmarks.whitening())
    # With a landmark it is the kernel itself; between others, what landmarks see of it.
    assert largest_difference(found @ found[labeled].mT, kernel[:, labeled]) < 1e-4
    solved = torch.linalg.solve(kernel[labeled][:, labeled], kernel[labeled])
    assert largest_difference(found @ found.mT, kernel[:, labeled] @ solved) < 1e-4
    # Rows that are far from 0, and near to each other for that, are told apart as well.
    far = (1000 + features).float()
    units = torch.eye(len(labeled))
    far_found = Landmarks.place(far[labeled], variance).scores(far, units).double()
    assert largest_difference(far_found, kernel[:, labeled]) < 1e-2
    many = Landmarks.place(torch.randn(2000, 5), 5.0)
    assert len(many.points) == MAX_LANDMARKS


def test_sparse_and_dense_features_give_the_same() -> None:
    x, y = blobs()
    words, graph = x.clamp(min=0), edges_within(y, 100)
    options = ClosedFormOptions(n_neighbors=5, metric_weight=0.1)
    dense = fit_closed_form(words, y, graph, train=torch.arange(15), options=options)
    sparse_x = SparseFeatures.from_dense(words)
    sparse = fit_closed_form(sparse_x, y, graph, train=torch.arange(15), options=options)
    assert largest_difference(dense.logits, sparse.logits) < 1e-2
    assert (
        largest_difference(
            dense.predict(words[:5]), sparse.predict(SparseFeatures.from_dense(words[:5]))
        )
        < 1e-2
    )


def test_wide_features_are_read_by_their_components(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = blobs()
    graph = edges_within(y, 100)
    whole = fit_closed_form(x, y, graph, train=torch.arange(15), options=FIXED)
    monkeypatch.setattr("jlgcn.closed_form.average._MAX_ROW_ENTRIES", 0)
    parts = fit_closed_form(x, y, graph, train=torch.arange(15), options=FIXED)  # all of them
    assert largest_difference(whole.logits, parts.logits) < 1e-2


def test_equal_rows_rows_without_words_and_two_nodes_are_no_trouble() -> None:
    y = torch.tensor([0, 1] * 10)
    same = fit_closed_form(torch.ones(20, 3), y, train=torch.arange(4))
    assert same.logits.isfinite().all()
    words = torch.zeros(20, 30)
    words[:15, :5] = torch.rand(15, 5)
    model = fit_closed_form(SparseFeatures.from_dense(words), y, train=torch.arange(4))
    assert model.logits.isfinite().all()
    assert not model.layers[-1].learned.rows(torch.arange(15, 20)).any()
    two = fit_closed_form(torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1]), train=torch.arange(2))
    assert two.logits.isfinite().all()


def test_every_layer_keeps_its_graph_and_only_the_first_has_no_metric() -> None:
    x, y = blobs()
    options = ClosedFormOptions(n_layers=3, n_neighbors=5)
    first, *others = fit_closed_form(x, y, train=torch.arange(12), options=options).layers
    assert isinstance(first, ClosedFormLayer)
    assert not bool(first.metric.any())
    assert len(others) == 2
    assert all(bool(layer.metric.any()) and layer.learned.shape == (90, 90) for layer in others)


def test_features_vary_under_a_random_metric_as_much_as_under_a_learned_one() -> None:
    x, y = blobs()
    x = torch.cat([5 * x, torch.randn(len(x), 30)], dim=1)  # classes differ in few directions
    variances = []
    for options in (ClosedFormOptions(), ClosedFormOptions(control="random metric")):
        model = fit_closed_form(x, y, train=torch.arange(0, 90, 10), options=options)
        z = x @ model.layers[-1].metric
        variances.append(float((z - z.mean(0)).square().sum(-1).mean()))
    assert variances == pytest.approx([1.0] * 2, rel=1e-4)


def test_it_is_the_same_every_time() -> None:
    x, y = blobs()
    graph = edges_within(y, 50)
    first, second = (fit_closed_form(x, y, graph, train=torch.arange(9)) for _ in range(2))
    assert torch.equal(first.logits, second.logits)
    assert repr(first) == "ClosedFormModel(90 nodes, 3 classes, 3 layers)"


def test_features_spread_some_at_a_time_are_those_spread_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, y = blobs()
    x, graph = x.to(F64), edges_within(y, 50).to(dtype=F64)
    at_once = fit_closed_form(x, y, graph, train=torch.arange(15), options=FIXED)
    monkeypatch.setattr("jlgcn.closed_form.layer.DIFFUSED_COLUMNS", 4)  # four, then two
    in_parts = fit_closed_form(x, y, graph, train=torch.arange(15), options=FIXED)
    assert in_parts.diffused.shape == (90, 6)
    assert largest_difference(in_parts.diffused, at_once.diffused) < 1e-12


def test_directions_that_do_not_fit_are_refused_before_they_are_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # With its copies in float64 the basis takes 2.5 GiB, the directions themselves 0.4 GiB.
    matrix = scipy.sparse.csr_array((1100, 100_000), dtype="float32")
    x, y = SparseFeatures.from_scipy(matrix), torch.arange(1100) % 2
    monkeypatch.setattr("jlgcn._memory.available_bytes", lambda device: 2**30)
    monkeypatch.delattr("jlgcn.closed_form.fit.principal_directions")
    with pytest.raises(
        ValueError, match=r"1,100 nodes of 100,000 features needs 2\.5 GiB but 1\.0"
    ):
        fit_closed_form(x, y, train=torch.arange(9), options=ClosedFormOptions(n_components=1024))


@pytest.mark.nightly
@needs_data
def test_on_cora_the_learned_metric_is_worth_points_where_there_is_no_graph() -> None:
    data = load_claim("nograph", "cora", seed=0, root=DATA, develops=True)
    x = FeatureScaler.fit(data.x)(data.x)
    options = ClosedFormOptions(parts="graph")
    models = [
        fit_closed_form(x, data.y, train=data.train, val=data.val, options=each)
        for each in (replace(options, n_layers=1), options)
    ]
    first, last = (
        float((model.logits[data.val].argmax(-1) == data.y[data.val]).float().mean())
        for model in models
    )
    assert first > 0.66
    assert last > first + 0.01


@pytest.mark.parametrize("parts", get_args(Parts))
@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_a_nodes_scores_are_the_sum_of_itself_and_its_neighbours(
    decay: float, parts: Parts
) -> None:
    x, y = blobs()
    x = x.double()
    graph = edges_within(y, 100).to(dtype=F64)
    options = replace(FIXED, given_decay=decay, parts=parts, tolerance=1e-12)
    model = fit_closed_form(x, y, graph, train=torch.arange(15), options=options)
    centred = model.logits - model.logits.mean(-1, keepdim=True)
    joined, given = model.graph.to_dense(), graph.to_dense()
    for node in (0, 40, 89):
        found = model.explain_node(node)
        assert largest_difference(found.scores, centred[node]) < 1e-9
        total = found.bias + found.own + found.learned.sum(0) + found.given.sum(0)
        assert largest_difference(total, found.scores) < 1e-12
        is_neighbor = joined[node] > 0
        is_neighbor[node] = False
        assert torch.equal(found.neighbors, is_neighbor.nonzero().flatten())
        # What comes over given edges comes over these alone, and so with learned ones.
        if parts != "linear+kernel" and parts != "kernel":
            assert torch.equal(found.given.any(-1), given[node, found.neighbors] > 0)
        learned = model.layers[-1].learned.to_dense()
        if "graph" in parts:
            assert torch.equal(found.learned.any(-1), learned[node, found.neighbors] > 0)
    assert "own features" in repr(found)


def test_without_a_neighbour_over_an_edge_its_part_is_gone() -> None:
    """The equation again, solved by hand: scores without node j's term miss just that term."""
    x, y = blobs(30)
    x = x.double()
    options = replace(FIXED, parts="graph", tolerance=1e-12)
    model = fit_closed_form(x, y, train=torch.arange(15), options=options)
    found = model.explain_node(20)
    total, degree = model.graph.to_dense(), model.graph.degree()
    weight = model.classifier.graph
    classifier = weight - weight.mean(-1, keepdim=True)
    walk = 1 - model.options.restart
    for place, neighbor in enumerate(found.neighbors.tolist()):
        step = walk * total[20, neighbor] / (degree[20] * degree[neighbor]).sqrt()
        spread = step * model.diffused[neighbor] / (1 - walk / degree[20])
        expected = spread / model.diffused[20].norm() @ classifier
        assert largest_difference(found.learned[place], expected) < 1e-9
    assert not found.given.any()


def test_selected_queries_reduce_the_prediction_variance_most() -> None:
    x = torch.randn(40, 3, dtype=F64)
    known = torch.tensor([4, 7])
    length = x.norm(dim=-1, keepdim=True)
    inputs = functional.pad(x / length.maximum(length.mean()), (0, 1), value=1.0)

    def variance(rows: list[int]) -> float:
        labeled = inputs[rows]
        inverse = torch.linalg.inv(labeled.mT @ labeled + 0.5 * torch.eye(4, dtype=F64))
        return float(((inputs @ inverse) * inputs).sum())

    rows = known.tolist()
    for chosen in select_queries(x, known, 5).tolist():
        options = [row for row in range(40) if row not in rows]
        assert chosen == min(options, key=lambda row: variance([*rows, row]))
        rows.append(chosen)
    far = x.clone()
    far[20] *= 1000  # one that is far from all others is not asked for on that account
    far[20] += x[4]
    assert 20 not in select_queries(far, torch.tensor([4, 20 - 1]), 2).tolist()
    with pytest.raises(ValueError, match="must be 1 to 38, the rows without a label, but it is 39"):
        select_queries(x, known, 39)


@pytest.mark.parametrize(("num_copies", "expected"), [(1, 1), (4000, 2)])
def test_small_fits_run_on_one_thread(
    num_copies: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, seen = torch.get_num_threads(), []

    def spy(*_: object) -> None:
        seen.append(torch.get_num_threads())
        raise KeyboardInterrupt

    monkeypatch.setattr("jlgcn.closed_form.fit.select_graph", spy)
    x, y = blobs()
    options = replace(FIXED, n_components=10**6, n_candidates=1, n_neighbors=1)
    torch.set_num_threads(2)
    try:
        with pytest.raises(KeyboardInterrupt):
            fit_closed_form(x.repeat(1, num_copies), y, train=torch.arange(15), options=options)
        assert seen == [expected]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("gain", "end"),
    [
        (0.02, "with it (difference -0.02 ± 0.01)"),
        (0.005, "these labels cannot tell whether the graph helps"),
        (-0.02, "the classifiers without the graph count more"),
    ],
)
def test_evidence_states_both_losses_and_no_more_than_they_tell(gain: float, end: str) -> None:
    none = torch.zeros(0)
    sentence = str(Evidence({}, {}, (0.31, gain, 0.01), none, none))
    assert sentence.startswith(f"held-out log-loss 0.31 without the graph, {0.31 - gain:.2f} with")
    assert sentence.endswith(end)
    assert "graph helps:" not in sentence


def test_a_prior_does_not_raise_a_class_that_no_training_label_has() -> None:
    x, y = blobs()
    train = torch.arange(30)[y[:30] < 2]
    val = torch.arange(30, 60)
    prior = torch.tensor([0.3, 0.3, 0.4], dtype=F64)
    model = fit_closed_form(x, y, train=train, val=val, options=FIXED, class_prior=prior)
    assert set(model.logits.argmax(-1).tolist()) == {0, 1}


def test_a_given_self_loop_is_explained_once() -> None:
    x, y = blobs()
    loops = torch.tensor([[0, 5], [0, 5]])
    given = edges_within(y, 200)
    pairs = torch.cat([given.edge_index, loops], 1)
    weight = torch.cat([given.weight, torch.full((2,), 3.0)])
    graph = SparseGraph(pairs, weight, num_nodes=len(x))
    model = fit_closed_form(x, y, graph, train=torch.arange(15), options=FIXED)
    for node in (0, 5, 7):
        scores = model.explain_node(node).scores
        expected = model.logits[node] - model.logits[node].mean()
        assert largest_difference(scores - scores.mean(), expected) < 1e-3


def test_more_neighbours_than_candidates_are_refused() -> None:
    x, y = blobs()
    options = replace(FIXED, n_neighbors=30, n_candidates=20)
    with pytest.raises(ValueError, match="n_neighbors must be at most n_candidates, 20, but it is"):
        fit_closed_form(x, y, train=torch.arange(15), options=options)
