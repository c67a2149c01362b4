from __future__ import annotations

import pytest
import torch

from evaluation.final.methods import methods, seeds
from evaluation.final.peers import PEERS, Nodes, consistency
from evaluation.final.rows import Row, Split, rows
from evaluation.final.sealed import SealedTest
from evaluation.peers import GRAND, GNNGuard, SGFormer, cosine, guarded, linear_attention, propagate
from evaluation.slaps import SLAPS, corrupted
from evaluation.suite.data import Data
from jlgcn import SparseGraph
from jlgcn.ops import SparseFeatures
from jlgcn.paper.baselines import normalized
from tests.paper.test_baselines import EDGES, some_graph

X = torch.tensor([[1.0, 1, 0, 0], [1, 0, 1, 0], [0, 0, 1, 1], [0, 0, 0, 1]])


def test_mixed_order_propagation_is_the_mean_of_powers() -> None:
    average = normalized(some_graph())
    matrix, x = average.to_dense(), torch.randn(4, 3)
    powers = [torch.linalg.matrix_power(matrix, order) @ x for order in range(4)]
    torch.testing.assert_close(propagate(average, x, 3), torch.stack(powers).mean(0))


@pytest.mark.parametrize("input_dropout", [0.0, 0.5])
def test_random_propagation_of_grand_has_the_right_expectation(input_dropout: float) -> None:
    graph, x = some_graph(), SparseFeatures.from_dense(X)
    model = GRAND(4, 2, 3, order=2, input_dropout=input_dropout, dropout=0.0)
    with torch.no_grad():  # no ReLU is at work, so that logits are linear in the features
        model.first.weight.abs_()
        model.first.bias.fill_(1.0)
        expected = model.eval()(x, graph)
        torch.manual_seed(0)
        draws = torch.stack([model.train()(x, graph) for _ in range(4000)])
    error = draws.std(0) / len(draws) ** 0.5
    assert error.min() > 0
    assert ((draws.mean(0) - expected).abs() < 4 * error).all()


def test_both_orders_of_grands_products_are_equal() -> None:
    graph, x = some_graph(), SparseFeatures.from_dense(X)
    model = GRAND(4, 2, 3, order=2, node_dropout=0.0, dropout=0.0)
    model.input_dropout = 1e-9  # nothing is dropped, but the features are propagated first
    torch.testing.assert_close(model.train()(x, graph), model.eval()(x, graph))


def test_consistency_is_the_distance_to_the_sharpened_mean() -> None:
    predicted = torch.tensor([[[0.6, 0.4]], [[0.8, 0.2]]])
    sharp = torch.tensor([0.7**2, 0.3**2]) / (0.7**2 + 0.3**2)
    expected = ((predicted - sharp) ** 2).sum(-1).mean()
    torch.testing.assert_close(consistency(predicted.log(), 0.5), expected)


def test_linear_attention_is_the_quadratic_formula() -> None:
    query, key, value = torch.randn(3, 6, 2).unbind(0)
    scores = query / query.norm() @ (key / key.norm()).T / 6
    weights = torch.eye(6) + scores
    expected = weights @ value / (1 + scores.sum(1, keepdim=True))
    torch.testing.assert_close(linear_attention(query, key, value), expected)


def test_sgformer_without_attention_is_a_gcn() -> None:
    from torch_geometric.nn import GCNConv

    graph = some_graph()
    model = SGFormer(4, 2, 3, num_layers=2, graph_weight=1.0).eval()
    first, second = model.convs
    assert isinstance(first, GCNConv)
    hidden = torch.relu(first(X, graph.edge_index, graph.weight))
    expected = model.last(second(hidden, graph.edge_index, graph.weight))
    torch.testing.assert_close(model(SparseFeatures.from_dense(X), graph), expected)


def test_gnnguard_keeps_no_edge_of_dissimilar_nodes() -> None:
    average = normalized(SparseGraph(EDGES, num_nodes=4))
    pattern = average.pattern
    for x in (X, SparseFeatures.from_dense(X)):
        similarity = cosine(x, pattern.row, pattern.col)
        weight = guarded(x, average, threshold=0.6)
        is_loop = pattern.row == pattern.col
        kept = (similarity >= 0.6) & ~is_loop
        assert (weight[~kept & ~is_loop] == 0).all()
        assert (weight[kept | is_loop] > 0).all()
        total = torch.zeros(4).index_add(0, pattern.row, weight)
        torch.testing.assert_close(total, torch.ones(4))


def test_cosine_of_a_row_of_zeros_is_zero() -> None:
    x = torch.tensor([[1.0, 0.0], [0.0, 0.0], [2.0, 0.0]])
    pairs = torch.tensor([0, 0, 1]), torch.tensor([1, 2, 1])
    for features in (x, SparseFeatures.from_dense(x)):
        assert cosine(features, *pairs).tolist() == [0.0, 1.0, 0.0]


def test_an_edge_of_dissimilar_nodes_does_not_change_gnnguards_logits() -> None:
    edges = torch.tensor([[0, 1, 0, 3], [1, 0, 3, 0]])
    with_edge, without = SparseGraph(edges, num_nodes=4), SparseGraph(edges[:, :2], num_nodes=4)
    model, x = GNNGuard(4, 2).eval(), SparseFeatures.from_dense(X)
    with torch.no_grad():  # the edge of nodes 0 and 3, which share no word, is not in either layer
        model.memory.fill_(100.0)
    torch.testing.assert_close(model(x, with_edge), model(x, without))


def test_the_graph_of_slaps_is_the_dense_formula_and_its_gradient_too() -> None:
    torch.manual_seed(0)
    x = (torch.rand(9, 12) < 0.4).double()
    model = SLAPS(12, 2, num_neighbors=3, activation="tanh").double()
    scales = first, second = model.first_scale, model.second_scale
    for scale in scales:
        torch.nn.init.uniform_(scale, 0.5, 1.5)
    y = torch.nn.functional.normalize(torch.tanh(x * first) * second)
    similarity = y @ y.T
    nearest = torch.zeros(9, 9).scatter(1, similarity.topk(4).indices, 1.0)
    matrix = (similarity * nearest + (similarity * nearest).T) / 2
    degree = matrix.sum(1)
    expected = matrix / (degree[:, None] * degree).sqrt()
    pattern, weight = model.learn(SparseFeatures.from_dense(x))
    found = torch.zeros(9, 9, dtype=torch.float64).index_put((pattern.row, pattern.col), weight)
    torch.testing.assert_close(found, expected)
    direction = torch.randn(9, 9, dtype=torch.float64)
    for one, other in zip(
        torch.autograd.grad((found * direction).sum(), scales),
        torch.autograd.grad((expected * direction).sum(), scales),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_the_denoising_loss_of_slaps_is_the_dense_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    x = SparseFeatures.from_dense((torch.rand(20, 12) < 0.4).float())
    model = SLAPS(12, 2, num_neighbors=3, denoiser_channels=5).eval()
    graph = model.learn(x)
    noisy, asked = corrupted(x)
    monkeypatch.setattr("evaluation.slaps.corrupted", lambda _: (noisy, asked))
    matrix = torch.zeros(20, 20).index_put((graph.pattern.row, graph.pattern.col), graph.weight)
    first, second = model.denoiser.first, model.denoiser.second
    y = torch.relu(matrix @ first(noisy @ torch.eye(12)))
    logits, wanted = matrix @ second(y), asked @ torch.eye(12)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(
        logits[wanted != 0], (wanted[wanted != 0] > 0).float()
    )
    loss = model.denoising_loss(x, graph)
    torch.testing.assert_close(loss, expected)
    parameters = [*model.denoiser.parameters(), model.first_scale, model.second_scale]
    for one, other in zip(
        torch.autograd.grad(loss, parameters, retain_graph=True),
        torch.autograd.grad(expected, parameters),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_a_tenth_of_the_words_is_taken_away_beside_five_times_as_many_absent_ones() -> None:
    torch.manual_seed(0)
    dense = (torch.rand(500, 400) < 0.05).float()
    noisy, asked = (each @ torch.eye(400) for each in corrupted(SparseFeatures.from_dense(dense)))
    taken, absent = asked > 0, asked < 0
    assert torch.equal(noisy, dense * ~taken)
    assert dense[taken].all()
    assert not dense[absent].any()
    assert float(taken.sum() / dense.sum()) == pytest.approx(0.1, rel=0.05)
    assert float(absent.sum() / taken.sum()) == pytest.approx(5, rel=0.1)


def some_nodes(has_graph: bool) -> Nodes:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(40) % 2
    x = torch.rand(40, 12, generator=generator) < 0.2 + 0.5 * (torch.arange(12) % 2 == y[:, None])
    nodes = torch.arange(40)
    edges = torch.stack([nodes, (nodes + 2) % 40])
    graph = SparseGraph(torch.cat([edges, edges.flip(0)], 1), num_nodes=40)
    if not has_graph:
        graph = SparseGraph.without_edges(40)
    features = SparseFeatures.from_dense(x.float())
    return Nodes("some", features, y, 2, graph, nodes[:10], nodes[10:20])


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_learns_and_reports_the_epoch_that_is_selected(name: str) -> None:
    peer = PEERS[name]
    nodes = some_nodes(peer.needs_graph)
    torch.manual_seed(0)
    right, classes = peer.fit(nodes, epochs=60)
    assert (classes[nodes.val] == nodes.y[nodes.val]).double().mean() == right
    assert (classes[20:] == nodes.y[20:]).double().mean() > 0.7


def slow_methods_of(row: Row, number: int) -> set[str]:
    x = SparseFeatures.from_dense(X).to_scipy()
    y = torch.tensor([0, 1, 0, 1]).numpy()
    edges = None if row.edges_missing == 1 else torch.tensor([[0], [1]]).numpy()
    train, val = torch.arange(2).numpy(), torch.arange(2, 4).numpy()
    sealed = SealedTest(torch.arange(0), torch.arange(0))
    split = Split(Data(row.name, "graph", x, y, edges), train, val, sealed)
    return set(methods(row, split, number)) & {*PEERS, "GCNII", "JLGCN"}


def test_slow_methods_are_run_on_three_splits_and_peers_on_rows_that_they_were_made_for() -> None:
    known = rows()
    slow = {"JLGCN", "GCNII", "GRAND", "SGFormer", "GNNGuard"}
    for number, expected in ((2, slow), (3, {"GRAND"})):
        assert slow_methods_of(known["cora, all edges"], number) == expected
    assert slow_methods_of(known["citeseer, all edges"], 3) == set()
    assert slow_methods_of(known["cora, no graph"], 0) == {"JLGCN", "SLAPS"}
    assert slow_methods_of(known["pubmed, all edges"], 0) == {"JLGCN", "GCNII", "SGFormer"}
    assert slow_methods_of(known["flickr, all edges"], 0) == {"JLGCN", "GCNII"}
    for name in ("GRAND", "JLGCN", "DecoupledJLGCN"):
        assert len(seeds(name, known["cora, public split"])) == 3
