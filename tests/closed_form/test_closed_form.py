from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
import scipy.sparse
import torch
from torch.nn import functional

from evaluation.claim_data import load_claim
from jlgcn import SparseGraph
from jlgcn.closed_form import (
    ClosedFormModel,
    ClosedFormOptions,
    FeatureScaler,
    fit_closed_form,
    heads,
)
from jlgcn.closed_form.active import select_queries
from jlgcn.closed_form.model import ClosedFormLayer
from jlgcn.closed_form.nystroem import MAX_LANDMARKS, Landmarks
from jlgcn.closed_form.options import Inputs
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
    options = ClosedFormOptions(restart=0.05, inputs="degree", kernel_gamma=0.0)
    model = fit_closed_form(x, y, wrong, train=torch.arange(60), options=options)
    assert model.options.given_decay > 0
    trusting = fit_closed_form(
        x, y, wrong, train=torch.arange(60), options=replace(options, given_decay=0.0)
    )
    assert accuracy(model, y) > accuracy(trusting, y)


def test_scores_of_left_out_labels_have_the_loss_that_chose_the_penalty() -> None:
    x, y = blobs(60)
    train = torch.arange(12)
    *_, losses = heads.fit_ridge(x, y, train, None, 3)
    scores = heads.leave_one_out(x, y, train, 3)
    assert torch.equal(functional.cross_entropy(scores, y[train], reduction="none"), losses)


@pytest.mark.parametrize("penalty", [0.1, 1.0])
def test_left_out_labels_are_those_of_fits_without_them(
    monkeypatch: pytest.MonkeyPatch, penalty: float
) -> None:
    monkeypatch.setattr(heads, "_RIDGES", (penalty,))
    x, y = blobs(60)
    train = torch.arange(12)
    *_, found = heads.fit_ridge(x.double(), y, train, None, 3)
    inputs = functional.pad(x.double() / x.double().norm(dim=-1).mean(), (0, 1), value=1.0)
    target = functional.one_hot(y[train], 3).double()
    mean = target.mean(0)  # of all labels: that little of a left-out one is known
    losses = []
    for left in range(12):
        others = torch.arange(12) != left
        seen = inputs[train[others]]
        moment = seen.mT @ seen + penalty * torch.eye(7, dtype=F64)
        weight = torch.linalg.solve(moment, seen.mT @ (target[others] - mean))
        answer = 8 * (mean + inputs[train[left]] @ weight)
        losses.append(float(functional.cross_entropy(answer, y[train[left]])))
    assert found.tolist() == pytest.approx(losses, rel=1e-10)


def test_few_labels_left_out_must_be_sure_of_a_better_setting() -> None:
    labels = torch.tensor([0, 0, 1, 1, 2])
    old = torch.tensor([1.0, 1.0, 1.0, 1.0, 9.0])
    sure = old - torch.tensor([0.5, 0.4, 0.5, 0.6, 0.0])
    unsure = old - torch.tensor([2.0, -0.5, -0.5, -0.5, 0.0])
    alone = old - torch.tensor([0.0, 0.0, 0.0, 0.0, 8.0])  # the only label of its class
    assert heads.is_better(sure, old, labels)
    assert not heads.is_better(unsure, old, labels)
    assert heads.is_better(unsure, old, None)  # of validation labels, the mean decides
    assert not heads.is_better(alone, old, labels)
    assert not heads.is_better(sure[2:], old[2:], torch.tensor([0, 1, 2]))  # nothing to go by


def test_one_label_a_class_is_enough_for_clusters() -> None:
    x, y = blobs(150, distance=8.0)
    model = fit_closed_form(x, y, train=torch.arange(3))
    assert accuracy(model, y) > 0.95


@pytest.mark.parametrize("kernel_gamma", [0.0, 1.0])
@pytest.mark.parametrize("inputs", get_args(Inputs))
def test_new_nodes_that_equal_old_ones_are_classified_as_they_are(
    inputs: Inputs, kernel_gamma: float
) -> None:
    x, y = blobs(200)
    graph = edges_within(y, 300)
    options = ClosedFormOptions(inputs=inputs, kernel_gamma=kernel_gamma)
    model = fit_closed_form(x, y, graph, train=torch.arange(30), options=options)
    is_new = graph.edge_index[0] < 50
    got = model.predict(x[:50], (graph.edge_index[:, is_new], graph.weight[is_new]))
    assert float((got.argmax(-1) == model.logits[:50].argmax(-1)).float().mean()) > 0.95


def test_new_nodes_are_classified_each_by_itself() -> None:
    x, y = blobs(200)
    model = fit_closed_form(x, y, edges_within(y, 300), train=torch.arange(30))
    new, y_new = blobs(60)
    assert float((model.predict(new).argmax(-1) == y_new).float().mean()) > 0.8
    one_by_one = torch.cat([model.predict(row.unsqueeze(0)) for row in new[:5]])
    assert largest_difference(model.predict(new)[:5], one_by_one) < 1e-4


def test_a_classifier_sees_rows_without_their_degree_or_without_their_length() -> None:
    x, y = blobs()
    graph = edges_within(y, 100)
    for inputs in get_args(Inputs):
        options = replace(FIXED, inputs=inputs, kernel_gamma=0.0)
        model = fit_closed_form(x, y, graph, train=torch.arange(15), options=options)
        own = x @ model.projection
        units = [functional.normalize(part) for part in (model.diffused, own, graph.matmul(own))]
        expected = {
            "degree": model.diffused / model.graph.degree().sqrt().unsqueeze(-1),
            "unit": units[0],
            "unit+own": torch.cat(units[:2], dim=-1),
            "unit+own+neighbors": torch.cat(units, dim=-1),
        }[inputs]
        assert model.options.inputs == inputs
        assert largest_difference(model.inputs(), expected) < 1e-6
        assert largest_difference(model.inputs() @ model.weight + model.bias, model.logits) < 1e-4
        assert len(model.weight) == expected.shape[1]


def test_labels_let_a_classifier_see_own_features_where_neighbours_are_unlike() -> None:
    x, y = blobs(300)
    row = torch.arange(300)
    pairs = torch.stack([row, (row + 1) % 300])  # every edge joins two classes
    wrong = SparseGraph(torch.cat([pairs, pairs.flip(0)], -1), num_nodes=300)
    # A walk that no choice of the labels makes short enough, on given edges alone.
    options = ClosedFormOptions(
        n_layers=1, n_neighbors=5, learned_degree=0.0, given_decay=0.0, restart=0.05
    )
    train, val = torch.arange(60), torch.arange(60, 120)
    model = fit_closed_form(x, y, wrong, train=train, val=val, options=options)
    assert model.options.inputs.startswith("unit+own")
    leveled = replace(options, inputs="degree")
    assert accuracy(model, y) > accuracy(
        fit_closed_form(x, y, wrong, train=train, val=val, options=leveled), y
    )


def test_labels_take_a_kernel_where_no_plane_tells_classes_apart() -> None:
    angle = torch.rand(400) * 2 * torch.pi
    y = torch.arange(400) % 2
    x = (1.0 + y).unsqueeze(-1) * torch.stack([angle.cos(), angle.sin()], dim=-1)
    x = x + 0.1 * torch.randn_like(x)
    row, col = torch.randint(400, (2, 4000))
    wrong = SparseGraph(
        torch.cat([torch.stack([row, col]), torch.stack([col, row])], -1).unique(dim=1)
    )
    # One circle around another, and only given edges, which say nothing.
    options = ClosedFormOptions(n_layers=1, learned_degree=0.0, inputs="degree", restart=0.8)
    train, val = torch.arange(100), torch.arange(100, 200)
    model = fit_closed_form(x, y, wrong, train=train, val=val, options=options)
    assert model.options.kernel_gamma > 0
    linear = fit_closed_form(
        x, y, wrong, train=train, val=val, options=replace(options, kernel_gamma=0.0)
    )
    assert accuracy(model, y) > accuracy(linear, y) + 0.1


def test_inner_products_of_compared_inputs_are_those_of_the_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jlgcn.closed_form.nystroem._CHUNK_ROWS", 15)  # 15, 15 and 10
    inputs = torch.randn(40, 5, dtype=F64)
    train = torch.arange(0, 40, 2)
    landmarks = Landmarks.place(inputs, train, 0.7)
    distance = torch.cdist(inputs, inputs).square()
    unit = distance[train][:, train].mean()
    kernel = (-0.7 * distance / unit).exp()
    found = landmarks(inputs)
    # With a landmark it is the kernel itself; between others, what landmarks see of it.
    assert largest_difference(found @ found[train].mT, kernel[:, train]) < 1e-4
    solved = torch.linalg.solve(kernel[train][:, train], kernel[train])
    assert largest_difference(found @ found.mT, kernel[:, train] @ solved) < 1e-4
    weight = torch.randn(found.shape[1], 3, dtype=F64)
    gradient = landmarks.integrated_gradient(inputs[7], weight)
    nothing = landmarks(torch.zeros_like(inputs[:1]))[0]
    assert largest_difference(inputs[7] @ gradient, (found[7] - nothing) @ weight) < 1e-9
    # Rows that are far from 0, and near to each other for that, are told apart as well.
    far = (1000 + inputs).float()
    far_found = Landmarks.place(far, train, 0.7)(far).double()
    assert largest_difference(far_found @ far_found[train].mT, kernel[:, train]) < 1e-2
    many = Landmarks.place(torch.randn(2000, 5), torch.arange(2000), 1.0)
    assert len(many.points) == MAX_LANDMARKS


def test_neighbours_of_given_edges_are_no_inputs_without_a_graph() -> None:
    x, y = blobs()
    options = ClosedFormOptions(inputs="unit+own+neighbors")
    with pytest.raises(ValueError, match="needs a graph; pass one"):
        fit_closed_form(x, y, train=torch.arange(15), options=options)


def test_sparse_and_dense_features_give_the_same() -> None:
    x, y = blobs()
    words = x.clamp(min=0)
    options = ClosedFormOptions(n_neighbors=5)
    dense = fit_closed_form(words, y, train=torch.arange(15), options=options)
    sparse_x = SparseFeatures.from_dense(words)
    sparse = fit_closed_form(sparse_x, y, train=torch.arange(15), options=options)
    assert largest_difference(dense.logits, sparse.logits) < 1e-2
    assert (
        largest_difference(
            dense.predict(words[:5]), sparse.predict(SparseFeatures.from_dense(words[:5]))
        )
        < 1e-2
    )


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
    assert variances == pytest.approx([ClosedFormOptions().metric_weight] * 2, rel=1e-4)


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
    monkeypatch.setattr("jlgcn.closed_form.layer._DIFFUSED_COLUMNS", 4)  # four, then two
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
        fit_closed_form(x, y, train=torch.arange(9))


@pytest.mark.nightly
@needs_data
def test_on_cora_the_learned_metric_is_worth_points_where_there_is_no_graph() -> None:
    data = load_claim("nograph", "cora", seed=0, root=DATA, develops=True)
    x = FeatureScaler.fit(data.x)(data.x)
    model = fit_closed_form(x, data.y, train=data.train, val=data.val)
    first, last = (
        float((model.layers[i].logits[data.val].argmax(-1) == data.y[data.val]).float().mean())
        for i in (0, -1)
    )
    assert first > 0.66
    assert last > first + 0.01


@pytest.mark.parametrize("inputs", get_args(Inputs))
@pytest.mark.parametrize("kernel_gamma", [0.0, 1.0])
@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_a_nodes_scores_are_the_sum_of_itself_and_its_neighbours(
    decay: float, kernel_gamma: float, inputs: Inputs
) -> None:
    x, y = blobs()
    x = x.double()
    graph = edges_within(y, 100).to(dtype=F64)
    options = replace(
        FIXED, given_decay=decay, inputs=inputs, kernel_gamma=kernel_gamma, tolerance=1e-12
    )
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
        assert torch.equal(found.given.any(-1), given[node, found.neighbors] > 0)
        learned = model.layers[-1].learned.to_dense()
        assert torch.equal(found.learned.any(-1), learned[node, found.neighbors] > 0)
    assert "own features" in repr(found)


def test_without_a_neighbour_over_an_edge_its_part_is_gone() -> None:
    """The equation again, solved by hand: scores without node j's term miss just that term."""
    x, y = blobs(30)
    x = x.double()
    options = replace(FIXED, inputs="degree", kernel_gamma=0.0, tolerance=1e-12)
    model = fit_closed_form(x, y, train=torch.arange(15), options=options)
    found = model.explain_node(20)
    total, degree = model.graph.to_dense(), model.graph.degree()
    classifier = model.weight - model.weight.mean(-1, keepdim=True)
    walk = 1 - model.options.restart
    for place, neighbor in enumerate(found.neighbors.tolist()):
        step = walk * total[20, neighbor] / (degree[20] * degree[neighbor]).sqrt()
        spread = step * model.diffused[neighbor] / (1 - walk / degree[20])
        expected = spread / degree[20].sqrt() @ classifier
        assert largest_difference(found.learned[place], expected) < 1e-12
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
