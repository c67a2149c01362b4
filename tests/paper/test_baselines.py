from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch

from jlgcn import DenseGraph, SparseGraph
from jlgcn.ops import SparseFeatures
from jlgcn.paper.baselines import _NORMALIZED, GAT, GCN, normalized

EDGES = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


def some_graph() -> SparseGraph:
    """Return a graph with weights, a self-loop, and a node without edges."""
    edges = torch.tensor([[0, 1, 1, 2, 2], [1, 0, 2, 1, 2]])
    return SparseGraph(edges, torch.tensor([2.0, 2.0, 0.5, 0.5, 3.0]), num_nodes=4)


def test_gcn_is_two_layers_of_pytorch_geometric() -> None:
    from torch_geometric.nn import GCNConv

    model = GCN(5, 3, dropout=0.0)
    x, graph = torch.randn(4, 5), some_graph()
    assert isinstance(model.first, GCNConv)
    hidden = torch.relu(model.first(x, graph.edge_index, graph.weight))
    same(model, model(x, graph), model.second(hidden, graph.edge_index, graph.weight))


def same(model: torch.nn.Module, ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert torch.allclose(ours, theirs, atol=1e-6)
    weights = list(model.parameters())
    for one, other in zip(
        *(torch.autograd.grad(logits.square().sum(), weights) for logits in (ours, theirs)),
        strict=True,
    ):
        assert torch.allclose(one, other, atol=1e-5)


def test_a_graph_can_be_trained_on_after_inference() -> None:
    model, x, graph = GCN(5, 3), torch.randn(4, 5), some_graph()
    with torch.inference_mode():
        model(x, graph)
    model(x, graph).sum().backward()


def test_a_node_whose_only_edge_weighs_nothing_is_alone() -> None:
    graph = SparseGraph(torch.tensor([[0], [0]]), torch.tensor([0.0]), num_nodes=2)
    assert normalized(graph).to_dense().tolist() == [[0, 0], [0, 1]]


def test_a_graph_is_normalised_once_and_forgotten_with_its_last_reference() -> None:
    graph = some_graph()
    before = len(_NORMALIZED)
    assert normalized(graph) is normalized(graph)
    assert len(_NORMALIZED) == before + 1
    del graph
    gc.collect()
    assert len(_NORMALIZED) == before


@pytest.mark.parametrize("scale", [1.0, 1000.0])  # of scores, which must not overflow
def test_gat_is_two_layers_of_pytorch_geometric(scale: float) -> None:
    from torch_geometric.nn import GATConv

    model = GAT(5, 3, dropout=0.0).double()
    with torch.no_grad():
        for layer in (model.first, model.second):
            layer.att_src *= scale
            layer.att_dst *= scale
            layer.bias.normal_()
    x, graph = torch.randn(4, 5, dtype=torch.float64), some_graph()
    assert isinstance(model.first, GATConv)
    hidden = torch.nn.functional.elu(model.first(x, graph.edge_index))
    same(model, model(x, graph), model.second(hidden, graph.edge_index))


def test_gat_drops_neighbours_in_training() -> None:
    graph = SparseGraph(torch.tensor([[0, 1], [1, 0]]))
    model = GAT(1, 1, dropout=0.5)
    heads = torch.ones(2, model.first.heads * model.first.out_channels)
    # Both neighbours have half of the attention, each doubled or dropped.
    attended = model._attend(model.first, heads, normalized(graph).pattern)
    assert set(attended.flatten().tolist()) == {0.0, 1.0, 2.0}


def test_gat_of_nodes_without_edges_is_a_perceptron() -> None:
    from torch_geometric.nn import GATConv

    model = GAT(5, 3).eval()
    x, graph = torch.randn(4, 5), SparseGraph(EDGES[:, :0], num_nodes=4)
    assert isinstance(model.first, GATConv)
    assert model.first.heads == 8
    hidden = torch.nn.functional.elu(model.first.lin(x) + model.first.bias)
    expected = model.second.lin(hidden) + model.second.bias
    assert torch.allclose(model(x, graph), expected, atol=1e-6)


def test_a_graph_without_edges_to_list_is_refused() -> None:
    with pytest.raises(ValueError, match="need the edges of a SparseGraph, but the graph is a"):
        GCN(5, 3)(torch.randn(4, 5), DenseGraph(torch.ones(4, 4)))


@pytest.mark.parametrize("make", [GCN, GAT])
def test_dropout_is_off_in_evaluation(make: Callable[..., torch.nn.Module]) -> None:
    x, graph = torch.randn(4, 5), SparseGraph(EDGES, num_nodes=4)
    for features in (x, SparseFeatures.from_dense(x)):
        model = make(5, 3)
        assert not torch.equal(model(features, graph), model(features, graph))
        model.eval()
        assert torch.equal(model(features, graph), model(features, graph))


@pytest.mark.parametrize("make", [GCN, GAT])
def test_sparse_features_give_what_dense_ones_give(make: Callable[..., torch.nn.Module]) -> None:
    x, graph = torch.randn(4, 5).relu(), SparseGraph(EDGES, num_nodes=4)
    model = make(5, 3, dropout=0.0)
    names = list(model.state_dict())
    gradients = []
    for features in (x, SparseFeatures.from_dense(x)):
        logits = model(features, graph)
        weights = list(model.parameters())
        gradients.append([logits, *torch.autograd.grad(logits.square().sum(), weights)])
    for dense, sparse in zip(*gradients, strict=True):
        assert torch.allclose(dense, sparse, atol=1e-5)
    assert list(model.state_dict()) == names
