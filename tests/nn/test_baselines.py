from __future__ import annotations

import pytest
import torch
from torch_geometric.nn import GATConv, GCN2Conv, GCNConv

from jlgcn import DenseGraph, SparseGraph
from jlgcn.nn.baselines import APPNP, GAT, GCN, GCNII, MLP

EDGES = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


def test_gcn_is_two_normalised_averages() -> None:
    model = GCN(5, 3).eval()
    x, graph = torch.randn(4, 5), SparseGraph(EDGES, num_nodes=4)
    a = _normalized_with_loops(graph)
    assert isinstance(model.first, GCNConv)
    hidden = torch.relu(a @ model.first.lin(x) + model.first.bias)
    expected = a @ model.second.lin(hidden) + model.second.bias
    assert torch.allclose(model(x, graph), expected, atol=1e-6)


def test_gat_of_nodes_without_edges_is_a_perceptron() -> None:
    model = GAT(5, 3).eval()
    x, graph = torch.randn(4, 5), SparseGraph(EDGES[:, :0], num_nodes=4)
    assert isinstance(model.first, GATConv)
    assert model.first.heads == 8
    hidden = torch.nn.functional.elu(model.first.lin(x) + model.first.bias)
    expected = model.second.lin(hidden) + model.second.bias
    assert torch.allclose(model(x, graph), expected, atol=1e-6)


def test_a_perceptron_of_one_layer_is_linear() -> None:
    model = MLP(5, 3, num_layers=1).eval()
    x = torch.randn(4, 5)
    lin = model.lins[0]
    assert isinstance(lin, torch.nn.Linear)
    assert torch.equal(model(x), x @ lin.weight.T + lin.bias)


def test_appnp_that_only_restarts_is_a_perceptron() -> None:
    x, graph = torch.randn(4, 5), SparseGraph(EDGES, num_nodes=4)
    model = APPNP(5, 3, restart=1.0).eval()
    assert torch.allclose(model(x, graph), model.mlp(x), atol=1e-6)


def test_appnp_without_restart_is_a_power_of_the_graph() -> None:
    x, graph = torch.randn(4, 5), SparseGraph(EDGES, num_nodes=4)
    model = APPNP(5, 3, num_steps=3, restart=0.0).eval()
    power = torch.linalg.matrix_power(_normalized_with_loops(graph), 3)
    assert torch.allclose(model(x, graph), power @ model.mlp(x), atol=1e-6)


def test_gcnii_of_one_layer() -> None:
    x, graph = torch.randn(4, 5), SparseGraph(EDGES, num_nodes=4)
    model = GCNII(5, 3, hidden_channels=6, num_layers=1, restart=0.2, strength=0.5).eval()
    conv = model.convs[0]
    assert isinstance(conv, GCN2Conv)
    hidden = torch.relu(model.first(x))
    mixed = 0.8 * _normalized_with_loops(graph) @ hidden + 0.2 * hidden
    share = torch.log(torch.tensor(1.5))
    expected = model.last(torch.relu((1 - share) * mixed + share * mixed @ conv.weight1))
    assert torch.allclose(model(x, graph), expected, atol=1e-6)


def test_dropout_is_off_in_evaluation() -> None:
    x, graph = torch.randn(4, 5), SparseGraph(EDGES, num_nodes=4)
    for model in (GCN(5, 3), GAT(5, 3), MLP(5, 3), APPNP(5, 3), GCNII(5, 3)):
        assert not torch.equal(model(x, graph), model(x, graph))
        model.eval()
        assert torch.equal(model(x, graph), model(x, graph))


def test_a_graph_without_edges_to_list_is_refused() -> None:
    with pytest.raises(ValueError, match="need the edges of a SparseGraph, but the graph is a"):
        GCN(5, 3)(torch.randn(4, 5), DenseGraph(torch.ones(4, 4)))


def _normalized_with_loops(graph: SparseGraph) -> torch.Tensor:
    a = graph.to_dense() + torch.eye(4)
    return a / (a.sum(-1, keepdim=True) * a.sum(-1)).sqrt()
