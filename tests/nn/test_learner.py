from __future__ import annotations

import copy
import logging
from typing import Any

import pytest
import torch
from torch.autograd import gradcheck

import jlgcn.nn.learner
from jlgcn import KernelGraph, SparseGraph
from jlgcn.nn import GraphLearner
from tests.brute import F64, gaussian, largest_difference, points


def test_the_graph_is_the_kernel_of_projected_features() -> None:
    learner = GraphLearner(6, rank=3, metric_init="random").double()
    x = points(20, 6)
    z = x @ learner.metric.weight.detach().t()
    assert largest_difference(learner(x).to_dense(), gaussian(z, z)) < 1e-12


def test_the_median_squared_distance_begins_at_one() -> None:
    learner = GraphLearner(50, rank=8)
    x = 1e-3 * torch.randn(400, 50) + 7
    z = learner.calibrate(x).project(x)
    distance = (z.unsqueeze(0) - z.unsqueeze(1)).square().sum(-1)
    median = distance[~torch.eye(400, dtype=torch.bool)].median()
    assert float(median.detach()) == pytest.approx(1, rel=0.1)


def test_the_metric_is_calibrated_once_and_not_after_loading() -> None:
    learner, x = GraphLearner(5, rank=4), torch.randn(30, 5)
    learner.calibrate(x)
    weight = learner.metric.weight.detach().clone()
    learner.calibrate(10 * x)
    assert torch.equal(learner.metric.weight, weight)
    other = GraphLearner(5, rank=4)
    other.load_state_dict(learner.state_dict())
    other.calibrate(10 * x)
    assert torch.equal(other.metric.weight, weight)
    assert torch.equal(copy.deepcopy(learner).project(x), learner.project(x))


def test_a_forward_pass_changes_no_weight_and_needs_a_calibrated_metric() -> None:
    learner, x = GraphLearner(5, rank=4), torch.randn(30, 5)
    weight = learner.metric.weight.detach().clone()
    for call in (learner, learner.edges):
        with pytest.raises(RuntimeError, match=r"calibrate was not called; call calibrate\(x\)"):
            call(x)
    assert torch.equal(learner.metric.weight, weight)
    learner.calibrate(x).reset_parameters()
    with pytest.raises(RuntimeError, match="calibrate was not called"):
        learner(x)


def test_calibration_leaves_the_random_state_alone() -> None:
    learner = GraphLearner(5)
    before = torch.get_rng_state()
    learner.calibrate(torch.randn(30, 5, generator=torch.Generator().manual_seed(1)))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("x", [torch.ones(10, 5), torch.ones(1, 5)], ids=["constant", "one node"])
def test_features_without_distances_leave_the_metric_as_it_is(x: torch.Tensor) -> None:
    learner = GraphLearner(5)
    assert torch.equal(learner.calibrate(x)(x).to_dense(), torch.ones(len(x), len(x)))
    assert bool(learner.metric.weight.isfinite().all())


def test_an_identity_metric_is_the_euclidean_distance() -> None:
    x = points(12, 4)
    graph = GraphLearner(4, rank=4, metric_init="identity").double()(x)
    assert largest_difference(graph.to_dense(), gaussian(x, x)) < 1e-14


def test_random_is_the_papers_uniform_distribution() -> None:
    weight = GraphLearner(400, rank=16, metric_init="random").metric.weight.detach()
    assert float(weight.abs().max()) <= 1 / 20
    assert float(weight.std()) == pytest.approx(1 / 20 / 3**0.5, rel=0.05)


@pytest.mark.parametrize("distance", [0.3, 1.0, 5.0])
def test_median_begins_where_it_is_told(distance: float) -> None:
    x = 100 * points(40, 4)
    learner = GraphLearner(4, rank=3, median_distance=distance).double()
    found = torch.pdist(learner.calibrate(x).project(x).detach()).square().median()
    assert float(found) == pytest.approx(distance, rel=0.3)  # of a sample of pairs it is exact


def test_backends_hold_the_same_weights() -> None:
    x = points(15, 4)
    exact = GraphLearner(4, backend="exact").double()
    knn = GraphLearner(4, backend="knn", num_neighbors=14).double()
    exact.calibrate(x)
    knn.load_state_dict(exact.state_dict())
    assert isinstance(exact(x), KernelGraph)
    assert isinstance(knn(x), SparseGraph)
    assert largest_difference(exact(x).to_dense(), knn(x).to_dense()) < 1e-12


def test_given_edges_become_candidates() -> None:
    x = torch.arange(10, dtype=F64).unsqueeze(-1)
    given = SparseGraph(torch.tensor([[0, 9], [9, 0]]))
    learner = GraphLearner(1, rank=1, backend="knn", num_neighbors=1, metric_init="identity")
    graph = learner.double()(x, given)
    assert isinstance(graph, SparseGraph)
    assert [0, 9] in graph.edge_index.t().tolist()


def test_auto_chooses_by_size_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(jlgcn.nn.learner.MAX_EXACT_NODES, "cpu", 20)
    learner = GraphLearner(3, metric_init="random")
    with caplog.at_level(logging.INFO):
        assert isinstance(learner(torch.randn(21, 3)), SparseGraph)
        assert isinstance(learner(torch.randn(20, 3)), KernelGraph)
    assert len(caplog.messages) == 1
    assert "learns the knn graph of 21 nodes on cpu; set backend" in caplog.messages[0]


def test_auto_refuses_before_it_allocates(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = GraphLearner(3, metric_init="random")
    monkeypatch.setattr(jlgcn.nn.learner, "available_bytes", lambda _: 2**18)
    with pytest.raises(MemoryError, match=r"neighbours of 10,000 nodes need .*smaller num_neigh"):
        learner(torch.randn(10_000, 3))
    assert isinstance(learner(torch.randn(4_000, 3)), KernelGraph)
    monkeypatch.undo()
    assert isinstance(learner(torch.randn(10_000, 3)), SparseGraph)


def test_edges_are_differentiable_in_features_and_metric() -> None:
    learner = GraphLearner(3, rank=2, num_neighbors=2, metric_init="random").double()
    x = points(7, 3, grad=True)
    assert gradcheck(lambda x: learner.edges(x)[1], x)
    learner.edges(x)[1].sum().backward()
    assert learner.metric.weight.grad is not None
    assert bool(learner.metric.weight.grad.any())


def test_edges_of_a_batch_stay_within_their_graph() -> None:
    learner = GraphLearner(3, num_neighbors=2, metric_init="random")
    sizes = [4, 1, 6]
    batch = torch.arange(3).repeat_interleave(torch.tensor(sizes))
    x = torch.randn(11, 3)
    edge_index, edge_weight = learner.edges(x, batch=batch)
    assert torch.equal(batch[edge_index[0]], batch[edge_index[1]])
    alone = [learner.edges(part) for part in x.split(sizes)]
    starts = [0, 4, 5]
    together = [index + start for (index, _), start in zip(alone, starts, strict=True)]
    assert torch.equal(edge_index, torch.cat(together, -1))
    assert largest_difference(edge_weight, torch.cat([weight for _, weight in alone])) < 1e-6


@pytest.mark.parametrize("layer", ["GCNConv", "GCN2Conv", "TransformerConv"])
def test_edges_train_the_metric_through_other_peoples_layers(layer: str) -> None:
    from torch_geometric.nn import GCN2Conv, GCNConv, TransformerConv

    learner, x = GraphLearner(6, num_neighbors=3), torch.randn(30, 6)
    edge_index, edge_weight = learner.calibrate(x).edges(x, torch.tensor([[0, 5], [5, 0]]))
    if layer == "GCNConv":
        out = GCNConv(6, 2)(x, edge_index, edge_weight)
    elif layer == "GCN2Conv":
        out = GCN2Conv(6, alpha=0.1)(x, x, edge_index, edge_weight)
    else:
        out = TransformerConv(6, 2, edge_dim=1)(x, edge_index, edge_weight.unsqueeze(-1))
    out.square().sum().backward()
    assert learner.metric.weight.grad is not None
    assert bool(learner.metric.weight.grad.any())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch": torch.zeros(5).long()}, r"each of 9 nodes, but its shape is \(5,\); pass data"),
        ({"batch": torch.tensor([0] * 4 + [1] * 3 + [0] * 2)}, "but it decreases at node 7"),
        ({"batch": torch.zeros(9)}, "but it is torch.float32"),
        ({"batch": [0] * 9}, "but it is a list"),
        ({"batch": torch.arange(-1, 8)}, "but it begins with -1"),
        ({"edge_index": torch.zeros(5, 2).long()}, r"it is \(5, 2\); pass edge_index.t\(\)"),
        ({"edge_index": torch.zeros(9).long()}, r"it is \(9,\); pass batch=batch by its name"),
        ({"edge_index": "data"}, "must be a Tensor, but it is a str; pass data.edge_index"),
    ],
)
def test_mistaken_edges_and_batches_are_refused(arguments: dict[str, Any], message: str) -> None:
    learner = GraphLearner(3, num_neighbors=2, metric_init="random")
    with pytest.raises((TypeError, ValueError), match=message):
        learner.edges(torch.randn(9, 3), **arguments)


def test_an_edge_index_is_no_graph() -> None:
    learner = GraphLearner(3, metric_init="random")
    with pytest.raises(TypeError, match=r"it is a Tensor; call learner.edges\(x, edge_index\)"):
        learner(torch.randn(9, 3), torch.zeros(2, 1).long())


def test_nodes_are_explained_by_their_features_not_their_indices() -> None:
    with pytest.raises(TypeError, match=r"pass features x\[i\] and x\[j\], not indices"):
        GraphLearner(3).explain_edge(0, 1)  # type: ignore[arg-type]


def test_bad_arguments_are_refused_with_a_remedy() -> None:
    with pytest.raises(ValueError, match="median, random, identity, euclidean, but it is 'zero'"):
        GraphLearner(3, metric_init="zero")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="median_distance must be above 0, but it is -1"):
        GraphLearner(3, median_distance=-1)
    with pytest.raises(ValueError, match="auto, exact, knn, dense, but it is 'fast'"):
        GraphLearner(3, backend="fast")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rank is 2 and in_channels is 3; set rank=3"):
        GraphLearner(3, rank=2, metric_init="identity")
    with pytest.raises(ValueError, match="x has 4 features but the network was made for 3"):
        GraphLearner(3)(torch.randn(5, 4))
