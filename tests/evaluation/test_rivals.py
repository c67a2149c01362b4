from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from evaluation.rivals import APPNP, GCNII, MLP, SAGE
from jlgcn import SparseGraph
from jlgcn.ops import SparseFeatures
from tests.paper.test_baselines import EDGES, same, some_graph


def test_appnp_is_pytorch_geometrics() -> None:
    import torch_geometric.nn

    model = APPNP(5, 3, num_steps=4, restart=0.2, dropout=0.0)
    x, graph = torch.randn(4, 5), some_graph()
    spread = torch_geometric.nn.APPNP(4, 0.2)
    same(model, model(x, graph), spread(model.mlp(x), graph.edge_index, graph.weight))


def test_appnp_drops_entries_of_the_average_in_training() -> None:
    graph = SparseGraph(torch.tensor([[0, 1], [1, 0]]))
    model = APPNP(1, 1, num_steps=1, restart=0.0, dropout=0.5)
    model.mlp = MLP(1, 1, num_layers=1, dropout=0.0)
    model.requires_grad_(False)
    start = model.mlp(torch.ones(2, 1))[0]
    # A row of the average has two entries of a half, each doubled or dropped.
    seen = {round(float(model(torch.ones(2, 1), graph)[0] / start), 3) for _ in range(50)}
    assert seen == {0.0, 1.0, 2.0}


def test_sage_is_layers_of_pytorch_geometric() -> None:
    model = SAGE(5, 3, hidden_channels=6, dropout=0.0)
    x, graph = torch.randn(4, 5), some_graph()
    hidden = torch.relu(model.first(x, graph.edge_index.flip(0)))
    same(model, model(x, graph), model.second(hidden, graph.edge_index.flip(0)))


def test_gcnii_is_layers_of_pytorch_geometric() -> None:
    from torch_geometric.nn import GCN2Conv

    model = GCNII(5, 3, hidden_channels=6, num_layers=3, restart=0.2, dropout=0.0)
    x, graph = torch.randn(4, 5), some_graph()
    start = hidden = torch.relu(model.first(x))
    for conv in model.convs:
        assert isinstance(conv, GCN2Conv)
        hidden = torch.relu(conv(hidden, start, graph.edge_index, graph.weight))
    same(model, model(x, graph), model.last(hidden))


def test_a_perceptron_of_one_layer_is_linear() -> None:
    model = MLP(5, 3, num_layers=1).eval()
    x = torch.randn(4, 5)
    lin = model.lins[0]
    assert isinstance(lin, torch.nn.Linear)
    assert torch.equal(model(x), x @ lin.weight.T + lin.bias)


@pytest.mark.parametrize("make", [MLP, APPNP, GCNII])
def test_dropout_is_off_in_evaluation(make: Callable[..., torch.nn.Module]) -> None:
    x, graph = torch.randn(4, 5), SparseGraph(EDGES, num_nodes=4)
    for features in (x, SparseFeatures.from_dense(x)):
        model = make(5, 3)
        assert not torch.equal(model(features, graph), model(features, graph))
        model.eval()
        assert torch.equal(model(features, graph), model(features, graph))


@pytest.mark.parametrize("make", [MLP, APPNP, GCNII])
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
