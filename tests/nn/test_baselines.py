from __future__ import annotations

import pytest
import torch
from torch_geometric.nn import GATConv, GCNConv

from jlgcn import DenseGraph, SparseGraph
from jlgcn.nn.baselines import GAT, GCN

EDGES = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


def test_gcn_is_two_normalised_averages() -> None:
    model = GCN(5, 3).eval()
    x, graph = torch.randn(4, 5), SparseGraph(EDGES, num_nodes=4)
    a = graph.to_dense() + torch.eye(4)
    a = a / (a.sum(-1, keepdim=True) * a.sum(-1)).sqrt()
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


def test_dropout_is_off_in_evaluation() -> None:
    x, graph = torch.randn(4, 5), SparseGraph(EDGES, num_nodes=4)
    for model in (GCN(5, 3), GAT(5, 3)):
        assert not torch.equal(model(x, graph), model(x, graph))
        model.eval()
        assert torch.equal(model(x, graph), model(x, graph))


def test_a_graph_without_edges_to_list_is_refused() -> None:
    with pytest.raises(ValueError, match="need the edges of a SparseGraph, but the graph is a"):
        GCN(5, 3)(torch.randn(4, 5), DenseGraph(torch.ones(4, 4)))
