"""Predict, then propagate: the network on given and learned graph."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from jlgcn import KernelGraph, SparseGraph, as_graph
from jlgcn.graphs import attach
from jlgcn.graphs.candidates import Candidates
from jlgcn.nn import DecoupledJLGCN
from jlgcn.ops import SparseFeatures
from tests.brute import largest_difference

NUM_NODES = 30


def network(**arguments: float) -> DecoupledJLGCN:
    torch.manual_seed(0)
    model = DecoupledJLGCN(6, 8, 3, num_neighbors=4, num_candidates=10, **arguments)
    torch.nn.init.normal_(model.metric.weight, std=0.2)
    return model.double().eval()


def features(num_nodes: int = NUM_NODES) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(num_nodes, 6, dtype=torch.float64, generator=generator)


def ring(num_nodes: int = NUM_NODES) -> SparseGraph:
    node = torch.arange(num_nodes)
    forth = torch.stack([node, (node + 1) % num_nodes])
    return SparseGraph(torch.cat([forth, forth.flip(0)], -1)).to(dtype=torch.float64)


def test_logits_solve_the_pagerank_equation_of_the_normalised_sum() -> None:
    model, x, given = network(), features(), ring()
    out = model(x, given)
    learned = out.learned[0].to_dense().detach()
    scale = NUM_NODES / float(learned.sum())  # a mean weighted degree of 1 beside given edges
    total = given.to_dense() + scale * learned + torch.eye(NUM_NODES, dtype=torch.float64)
    degree = total.sum(-1)
    normalized = total / (degree.unsqueeze(-1) * degree).sqrt()
    assert largest_difference(out.graphs[0].to_dense(), normalized) < 1e-12
    system = torch.eye(NUM_NODES, dtype=torch.float64) - 0.9 * normalized
    expected = 0.1 * torch.linalg.solve(system, model.predict(x))
    assert largest_difference(out.logits, expected) < 0.02 * float(expected.detach().abs().max())


def test_weights_are_the_kernel_of_the_euclidean_and_the_learned_distance() -> None:
    model, x = network(), features()
    learned = model(x).learned[0]
    unit = model._near(x, None).candidates.unit
    difference = x[learned.edge_index[0]] - x[learned.edge_index[1]]
    euclidean = difference.square().sum(-1) / unit
    added = (difference @ model.metric.weight.mT).square().sum(-1)
    assert largest_difference(learned.weight, (-(euclidean + added)).exp()) < 1e-12


def test_a_new_network_starts_at_the_euclidean_graph() -> None:
    model = DecoupledJLGCN(6, 8, 3, num_neighbors=4)
    x = features().float()
    out = model.eval()(x)
    distance = torch.cdist(x, x).square()
    row, col = out.learned[0].edge_index
    limit = distance.topk(5, largest=False).values[:, -1]
    assert bool((distance[row, col] <= torch.maximum(limit[row], limit[col]) + 1e-5).all())


def test_the_graph_follows_the_metric() -> None:
    model, x = network(), features()
    before = model(x).learned[0]
    with torch.no_grad():
        model.metric.weight.mul_(10)
    after = model(x).learned[0]
    assert not torch.equal(before.edge_index, after.edge_index)
    fresh = network()
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(x).logits, model(x).logits)


def test_gradients_reach_the_metric_and_the_weights() -> None:
    model, x = network().train(), features()
    model(x, ring()).logits.square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert float(parameter.grad.abs().sum()) > 0, name


def test_the_regressed_metric_brings_rows_of_one_class_together() -> None:
    model, x = network(), features(200)
    y = (x[:, 2] > 0).long()
    probability = torch.nn.functional.one_hot(y, 3).double()
    model.regress_metric(x, None, probability, variance=4.0)
    share = model.metric.weight.square().sum(0)
    assert int(share.argmax()) == 2
    row, col = model(x).learned[0].edge_index
    fixed = DecoupledJLGCN(6, 8, 3, num_neighbors=4, num_candidates=10).double()
    first, second = fixed(x).learned[0].edge_index
    same = (y[row] == y[col]).double().mean()
    assert float(same) > float((y[first] == y[second]).double().mean()) + 0.05


def test_sparse_features_have_the_logits_of_dense_ones() -> None:
    model, x = network(), features()
    x = torch.where(x > -0.5, x.abs(), 0)  # no row of zeros, which has no neighbours
    sparse = SparseFeatures.from_dense(x)
    assert largest_difference(model(sparse, ring()).logits, model(x, ring()).logits) < 1e-12


@pytest.mark.parametrize("is_sparse", [False, True])
def test_new_nodes_leave_old_ones_and_each_other_alone(is_sparse: bool) -> None:
    model, x = network(), torch.where(features() > -0.5, features().abs(), 0)
    given = ring(NUM_NODES - 2)
    edges = torch.tensor([[0, 1, 1], [4, 7, 9]])
    attached = attach(given, 2, edges)

    def logits(rows: Tensor, graph: object) -> Tensor:
        out: Tensor = model(SparseFeatures.from_dense(rows) if is_sparse else rows, graph).logits
        return out

    both = logits(x, attached)
    assert largest_difference(both[:-2], logits(x[:-2], given)) < 1e-12
    only = logits(torch.cat([x[:-2], x[-1:]]), attach(given, 1, torch.tensor([[0, 0], [7, 9]])))
    assert largest_difference(both[-1], only[-1]) < 1e-12


def test_a_new_node_equal_to_an_old_one_is_classified_like_it() -> None:
    model, x = network(), features(200)
    old = model(x).logits
    new = model(torch.cat([x, x[:20]]), attach(as_graph(None, 200), 20)).logits[200:]
    assert float((new.argmax(-1) == old[:20].argmax(-1)).double().mean()) > 0.9


def test_a_loaded_network_computes_the_same_bits(tmp_path: Path) -> None:
    model, x = network(restart=0.2), features()
    model.save(tmp_path)
    assert torch.equal(DecoupledJLGCN.load(tmp_path)(x, ring()).logits, model(x, ring()).logits)


def test_kernels_are_refused() -> None:
    with pytest.raises(ValueError, match="needs the edges of a sparse graph"):
        network()(features(), KernelGraph(features()))


@pytest.mark.parametrize(
    ("name", "value"), [("restart", 0.0), ("dropout", 1.5), ("learned_degree", -1.0)]
)
def test_arguments_out_of_range_are_named(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a number"):
        network(**{name: value})


def test_new_nodes_are_classified_without_the_old_ones_being_searched_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, x = network(), features()
    old, new, given = x[:-2], x[-2:], ring(NUM_NODES - 2)
    edges = torch.tensor([[0, 1, 1], [4, 7, 9]])
    together = model(x, attach(given, 2, edges)).logits
    weight = torch.ones(3, dtype=torch.float64)
    logits = model(old, given).logits
    found = model.classify_new(old, given, logits, new, (edges, weight))
    assert largest_difference(found, together[-2:]) < 1e-12
    monkeypatch.setattr(Candidates, "find", None)
    again = model.classify_new(old, given, logits, new, (edges, weight))
    assert torch.equal(again, found)
