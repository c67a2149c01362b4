from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

import jlgcn.nn.neighbors
from jlgcn import SparseGraph, as_graph
from jlgcn.graphs import sparse
from jlgcn.nn import JLGCN, JLGCNOptions
from jlgcn.nn.learner import Backend
from jlgcn.nn.neighbors import MAX_INTERVAL, KeptNeighbors, sampled_recall
from jlgcn.nn.options import Preset
from jlgcn.ops.csr import symmetric_pattern
from jlgcn.ops.knn import nearest_neighbors
from tests.brute import largest_difference, points

pytestmark = pytest.mark.filterwarnings("ignore:the learned graph is (complete|dead)")

NUM_NODES = 60


def network(min_recall: float | None = 0.9, **others: Any) -> JLGCN:  # noqa: ANN401
    torch.manual_seed(0)
    options = JLGCNOptions(metric_init="median", median_distance=5.0)
    keywords: dict[str, Any] = {"options": options, "backend": "knn", "num_neighbors": 4}
    model = JLGCN(6, 5, 3, rank=3, min_recall=min_recall, **keywords | others).double()
    return model.calibrate(features())


def features() -> Tensor:
    return points(NUM_NODES, 6)


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Count searches among all rows, and rows that checks look at."""
    counts = {"searches": 0, "checked rows": 0}
    original = nearest_neighbors

    def search(z: Tensor, k: int, **keywords: Any) -> Tensor:  # noqa: ANN401
        queries = keywords.get("queries")
        if queries is None:
            counts["searches"] += 1
        else:
            counts["checked rows"] += len(queries)
        return original(z, k, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(sparse, "nearest_neighbors", search)
        patch.setattr(jlgcn.nn.neighbors, "nearest_neighbors", search)
        yield counts


def test_training_searches_once_while_the_metric_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = network(), features()
    with counted(monkeypatch) as counts:
        for _ in range(40):
            model(x)
    # Checks come 1, 3, 7, 15 and 31 steps after the search.
    assert counts == {"searches": 2, "checked rows": 5 * 2 * NUM_NODES}
    assert [kept.num_checks for kept in model.neighbors.learners] == [5, 5]
    assert model.neighbors.recall == [1.0, 1.0]
    assert model.neighbors.num_searches == 2


def test_the_cost_of_a_step_is_linear_in_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = []
    for size in (400, 1600):
        model, x = network(), points(size, 6)
        model(x)
        with counted(monkeypatch) as counts:
            for _ in range(MAX_INTERVAL):
                model(x)
        assert counts["searches"] == 0
        looked_at.append(counts["checked rows"])
    assert looked_at[0] == looked_at[1] == 5 * 2 * 256 - 2 * 256  # whatever the number of nodes


def test_none_searches_in_every_pass_and_so_does_evaluation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = features()
    for model in (network(None), network().eval()):
        with counted(monkeypatch) as counts:
            for _ in range(3):
                model(x)
        assert counts == {"searches": 3 * 2, "checked rows": 0}
        assert model.neighbors.num_searches == 0


def test_a_low_recall_is_followed_by_another_search(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model, x = network(num_learned=1), features()
    model(x)
    with torch.no_grad():
        model.learners[0].metric.weight.normal_()
    with counted(monkeypatch) as counts, caplog.at_level(logging.DEBUG):
        model(x)
    assert counts["searches"] == 1
    assert model.neighbors.recall[0] < 0.9
    assert "searched for neighbours: recall was 0." in caplog.text
    model(x)
    assert model.neighbors.recall == [1.0]
    assert model.neighbors.num_searches == 2


def test_recall_above_the_threshold_is_enough() -> None:
    model, x = network(0.0, num_learned=1), features()
    model(x)
    with torch.no_grad():
        model.learners[0].metric.weight.normal_()
    model(x)
    assert model.neighbors.recall[0] < 0.9
    assert model.neighbors.num_searches == 1


def test_kept_candidates_give_the_loss_and_gradients_of_a_search() -> None:
    x = features()
    found = []
    for min_recall in (0.9, None):
        model = network(min_recall, dropout=0.0)
        for _ in range(2):  # the second pass uses what the first found
            model.zero_grad()
            model(x, torch.tensor([[0, 9], [9, 0]])).logits.square().sum().backward()
        found.append([parameter.grad for parameter in model.parameters()])
    for kept, fresh in zip(*found, strict=True):
        assert torch.equal(kept, fresh)


def test_candidates_are_neighbours_without_dropout() -> None:
    model, x = network(dropout=0.5, num_learned=1), features()
    clean = model.eval()(x).learned[0]
    noisy = model.train()(x).learned[0]
    assert isinstance(clean, SparseGraph)
    assert isinstance(noisy, SparseGraph)
    assert torch.equal(clean.edge_index, noisy.edge_index)
    assert largest_difference(clean.weight, noisy.weight) > 1e-3


def test_other_given_edges_are_joined_without_a_search() -> None:
    model, x = network(num_learned=1), features()
    for edge in ([0, 50], [3, 40]):
        pair = torch.tensor([edge, edge[::-1]]).T
        graph = model(x, pair).learned[0]
        assert isinstance(graph, SparseGraph)
        assert edge in graph.edge_index.t().tolist()
    assert [0, 50] not in graph.edge_index.t().tolist()
    assert model.neighbors.num_searches == 1


def test_other_features_or_other_nodes_are_searched() -> None:
    model, x = network(), features()
    model(x)
    other = x.flip(0)
    model(other)
    fresh = network(None)(other)
    assert model.neighbors.num_searches == 2  # since they were forgotten
    assert model(other).learned[0].shape == fresh.learned[0].shape
    model(x[:30])
    assert model.neighbors.num_searches == 2


def test_evaluation_does_not_depend_on_what_training_kept() -> None:
    model, x = network(), features()
    before = model.eval()(x).logits
    model.train()(x)
    with torch.no_grad():
        saved = copy.deepcopy(model.state_dict())
        model.learners[0].metric.weight.normal_()
        model.train()
    model(x)
    model.load_state_dict(saved)
    assert torch.equal(model.eval()(x).logits, before)


def test_exact_graphs_take_no_extra_pass() -> None:
    model, x = network(backend="exact"), features()
    calls = []
    model.learners[0].register_forward_hook(lambda *_: calls.append(1))
    model(x)
    assert len(calls) == 1
    assert model.neighbors.state() == {}


def test_the_state_continues_where_it_was() -> None:
    model, x = network(), features()
    for _ in range(3):
        model(x)
    other = network()
    other.neighbors.load_state(model.neighbors.state(), x.device)
    for _ in range(20):
        model(x), other(x)
    counts = [[kept.num_checks for kept in one.neighbors.learners] for one in (model, other)]
    assert counts[0] == counts[1]
    assert other.neighbors.num_searches == 2


@pytest.mark.parametrize(
    ("name", "tensor", "match"),
    [
        ("0/found", torch.full((60, 4), 60), "must be nodes"),
        ("0/found", torch.zeros(60, 4), "2-dimensional integers"),
        ("0/counts", torch.tensor([1, -1]), "not negative"),
        ("0/recall", torch.tensor([2.0, 1.0]).double(), "between 0 and 1"),
        ("steps", torch.tensor([99, 0]), "between 0 and 16"),
        ("7/found", torch.zeros(60, 4).long(), "known learners"),
        ("0/more", torch.zeros(1), "found, counts and recall"),
    ],
)
def test_a_damaged_state_is_refused(name: str, tensor: Tensor, match: str) -> None:
    model, x = network(), features()
    model(x)
    state = model.neighbors.state()
    with pytest.raises(ValueError, match=match):
        model.neighbors.load_state(state | {name: tensor}, x.device)


def test_recall_counts_weight_of_missed_neighbours() -> None:
    z = torch.tensor([[0.0], [0.0], [9.0], [9.0]])
    all_found = symmetric_pattern(torch.tensor([0, 2]), torch.tensor([1, 3]), 4)
    half_found = symmetric_pattern(torch.tensor([0, 2]), torch.tensor([1, 0]), 4)
    assert sampled_recall(z, all_found, 1) == 1
    assert sampled_recall(z, half_found, 1) == pytest.approx(0.75)
    assert sampled_recall(100 * torch.arange(4.0).unsqueeze(1), half_found, 1) == 1
    assert sampled_recall(torch.zeros(4, 1), half_found, 1) == pytest.approx(0.875)
    assert sampled_recall(torch.zeros(1, 1), half_found, 3) == 1


def test_an_approximate_search_is_judged_by_what_it_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jlgcn.nn.neighbors, "MAX_EXACT_ROWS", 10)
    z = torch.zeros(40, 1)
    original = nearest_neighbors

    def poor(z: Tensor, k: int, **keywords: Any) -> Tensor:  # noqa: ANN401
        found = original(z, k, **keywords)
        return found if "queries" in keywords else torch.full_like(found, -1)

    monkeypatch.setattr(jlgcn.nn.neighbors, "nearest_neighbors", poor)
    kept = KeptNeighbors()
    kept.min_recall = 0.9
    kept.graph(z, 4, None)
    assert kept.recall == pytest.approx(1 / 5)
    kept.mode = "checked"
    kept.graph(z, 4, None)
    assert (kept.num_searches, kept.num_checks) == (1, 1)


def test_the_regularizer_in_the_layers_product_is_the_one_of_a_second_pass() -> None:
    x = points(NUM_NODES, 30)
    graph = as_graph(torch.tensor([[0, 9, 3, 8], [9, 0, 8, 3]]), NUM_NODES, dtype=x.dtype)
    for dtype, rtol in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        torch.manual_seed(0)
        model = JLGCN(30, 5, 3, rank=3, backend="knn", num_neighbors=4, dropout=0.0).to(dtype)
        values, gradients = [], []
        for probes in (None, 4):
            generator = torch.Generator().manual_seed(5)
            model.zero_grad()
            nodes = torch.arange(7)
            out = model(x.to(dtype), graph, nodes, probes=probes, generator=generator)
            assert (out.regularizer is None) == (probes is None)
            value = model.regularizer(out, x.to(dtype), probes=4, generator=generator)
            (out.logits.square().sum() + value).backward()
            values.append(float(value.detach()))
            gradients.append([p.grad for p in model.parameters() if p.grad is not None])
        assert values[0] == pytest.approx(values[1], rel=rtol)
        for separate, joint in zip(*gradients, strict=True):
            assert largest_difference(separate, joint) < rtol * 100 * float(separate.abs().max())


@pytest.mark.parametrize(("backend", "options"), [("exact", "authors"), ("knn", "paper")])
def test_other_networks_keep_a_separate_regularizer(backend: Backend, options: Preset) -> None:
    x = points(20, 6).float()
    model = JLGCN(6, 5, 3, rank=3, backend=backend, options=options, num_neighbors=4)
    before = torch.get_rng_state()
    assert model.eval()(x, probes=2).regularizer is None
    assert torch.equal(torch.get_rng_state(), before)


def test_a_threshold_outside_of_its_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"min_recall must be between 0 and 1, but it is 1.5"):
        JLGCN(3, 4, 2, min_recall=1.5)
