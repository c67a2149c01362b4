"""The network for whole graphs against its formulas, and what padding and order must not change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from jlgcn import DenseGraph
from jlgcn.nn import PRESETS, GraphLevelJLGCN, GraphLevelOutput, JLGCNConv
from jlgcn.nn.graph_models import Pooling, pad_graphs
from jlgcn.nn.learner import Backend
from jlgcn.nn.options import MetricInit
from tests.brute import F64, gaussian, largest_difference, points

RING = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
RING = torch.cat([RING, RING.flip(0)], -1)


def small(metric_init: MetricInit = "random", **changes: object) -> GraphLevelJLGCN:
    torch.manual_seed(0)
    options = replace(PRESETS["paper"], metric_init=metric_init)
    settings = {"hidden_channels": (6, 8), "head_channels": (5,), "rank": 2} | changes
    settings |= {"options": options}
    model = GraphLevelJLGCN(3, 4, **settings)  # type: ignore[arg-type]
    for norm in model.norms:
        assert isinstance(norm, torch.nn.BatchNorm1d)
        norm.running_mean = torch.randn(norm.num_features)
        norm.running_var = torch.rand(norm.num_features) + 0.5
    return model.double().eval()


@pytest.mark.parametrize("backend", ["auto", "exact", "dense"])
@pytest.mark.parametrize("has_graph", [False, True])
def test_the_formulas_of_the_paper(backend: Backend, has_graph: bool) -> None:
    model = small(backend=backend)
    x = points(2, 5, 3)
    given = torch.rand(2, 5, 5, dtype=F64)
    given = (given + given.mT) * (1 - torch.eye(5, dtype=F64))
    out = model(x, given if has_graph else None)
    f, a = x, given if has_graph else torch.zeros(2, 5, 5, dtype=F64)
    for index, (conv, norm) in enumerate(zip(model.convs, model.norms, strict=True)):
        assert isinstance(conv, JLGCNConv)
        z = conv.learner.metric(f)
        a = a + gaussian(z, z)
        scale = a.sum(-1).rsqrt()
        a = scale.unsqueeze(-1) * a * scale.unsqueeze(-2)
        assert largest_difference(out.graphs[index].to_dense(), a) < 1e-12
        f = torch.cat([f, a @ f], -1) @ conv.lin.weight.T
        f = leaky_relu(norm(f.flatten(0, 1)).view(f.shape), 0.2)
    assert largest_difference(out.pooled, f.amax(1)) < 1e-12
    assert largest_difference(out.logits, model.head(f.amax(1))) < 1e-12


def test_a_layer_begins_by_telling_a_node_from_its_neighbours() -> None:
    """(f ‖ A f) W is at first (f ‖ 5 (A f - f)) V, where V is drawn as any linear layer's."""
    conv = JLGCNConv(200, 300, concat=True)
    own, neighbors = conv.lin.weight.detach().split(200, dim=1)
    drawn = torch.cat([own + neighbors, neighbors / 5], 1)
    bound = 400**-0.5
    assert float(drawn.abs().max()) == pytest.approx(bound, rel=1e-3)
    assert float(drawn.std()) == pytest.approx(bound / 3**0.5, rel=0.01)


def test_the_papers_network_has_the_papers_widths() -> None:
    model = GraphLevelJLGCN(3, 40)
    layers = [conv.lin for conv in model.convs if isinstance(conv, JLGCNConv)]
    shapes = [(lin.in_features, lin.out_features) for lin in layers]
    assert shapes == [(6, 64), (128, 128), (256, 1024)]
    linear = [m for m in model.head if isinstance(m, torch.nn.Linear)]
    assert [m.out_features for m in linear] == [512, 256, 40]


@pytest.mark.parametrize("pooling", ["max", "mean"])
@pytest.mark.parametrize("backend", ["exact", "dense"])
@pytest.mark.parametrize("trains", [False, True])
def test_padding_changes_nothing(pooling: Pooling, backend: Backend, trains: bool) -> None:
    from torch_geometric.data import Batch, Data

    model = small(pooling=pooling, backend=backend)
    graphs = [
        Data(x=points(4, 3), edge_index=RING, num_nodes=4),
        Data(x=points(1, 3), edge_index=RING[:, :0], num_nodes=1),
        Data(x=points(7, 3), edge_index=RING + 2, num_nodes=7),
    ]
    batch = Batch.from_data_list(graphs)
    together = model(batch.x, batch.edge_index, batch.batch)
    for index, graph in enumerate(graphs):
        alone = model(graph.x.unsqueeze(0), dense(graph).unsqueeze(0))
        assert largest_difference(together.logits[index], alone.logits[0]) < 1e-12
        assert (
            largest_difference(model.regularizer(together)[index], model.regularizer(alone)[0])
            < 1e-12
        )
    if trains:
        # In training all real nodes of a batch are normalised together, and no others.
        model.train()
        model(batch.x, batch.edge_index, batch.batch).logits.sum().backward()
        conv, norm = model.convs[0], model.norms[0]
        assert isinstance(conv, JLGCNConv)
        assert isinstance(norm, torch.nn.BatchNorm1d)
        assert norm.num_batches_tracked == torch.tensor(1)
        assert conv.learner.metric.weight.grad is not None
        assert conv.learner.metric.weight.grad.isfinite().all()


def dense(graph: Any) -> Tensor:  # noqa: ANN401
    weight = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=F64)
    weight[graph.edge_index[0], graph.edge_index[1]] = 1
    return weight


def test_the_order_of_nodes_does_not_matter() -> None:
    model, x = small(), points(3, 9, 3)
    order = torch.randperm(9)
    assert largest_difference(model(x[:, order]).logits, model(x).logits) < 1e-12


def test_graphs_of_a_batch_do_not_see_each_other() -> None:
    model, x = small(), points(3, 9, 3)
    changed = x.clone()
    changed[1] += 5
    first, second = model(x).logits, model(changed).logits
    assert torch.equal(first[[0, 2]], second[[0, 2]])
    assert not torch.equal(first[1], second[1])


def test_without_learning_it_convolves_with_the_given_graph() -> None:
    model = small(num_learned=0)
    a = torch.rand(1, 5, 5, dtype=F64)
    out = model(points(1, 5, 3), DenseGraph(a + a.mT))
    assert model.learners == []
    assert out.learned == []
    assert all(largest_difference(graph.to_dense(), a + a.mT) < 1e-15 for graph in out.graphs)


def test_weights_of_padded_edges() -> None:
    x, batch = torch.randn(4, 3), torch.tensor([0, 0, 1, 1])
    edges = torch.tensor([[0, 1, 2, 2], [1, 0, 3, 3]])
    _, _, graph = pad_graphs(x, batch, (edges, torch.tensor([0.5, 0.25, 1.0, 2.0])))
    assert graph is not None
    weight = graph.to_dense()[:, 0, 1]
    assert torch.equal(weight, torch.tensor([0.5, 3.0]))  # the larger direction; edges are added
    with pytest.raises(ValueError, match="weight must have one entry for each of 4 edges"):
        pad_graphs(x, batch, (edges, torch.ones(3)))


def test_every_layer_may_have_its_own_rank() -> None:
    model = small(rank=(5, 2))
    assert [learner.rank for learner in model.learners] == [5, 2]
    assert model.rank == (5, 2)
    with pytest.raises(ValueError, match="one for each of 2 layers, but it has 3; pass as many"):
        small(rank=(5, 2, 2))


def test_without_concatenation_weights_see_the_aggregated_features_only() -> None:
    model = small(concat=False)
    x = points(2, 9, 3)
    out = model(x)
    conv, graph = model.convs[0], out.graphs[0]
    assert isinstance(conv, JLGCNConv)
    assert conv.lin.in_features == 3
    expected = graph.to_dense() @ x @ conv.lin.weight.T
    normed = torch.nn.functional.leaky_relu(model.norms[0](expected.flatten(0, 1)), 0.2)
    assert largest_difference(out.features[1], normed.view(2, 9, 6)) < 1e-12


def test_what_cannot_be_padded_is_refused_with_a_remedy() -> None:
    x = torch.randn(4, 3)
    with pytest.raises(ValueError, match=r"ascending.*pass data.batch of torch_geometric"):
        pad_graphs(x, torch.tensor([0, 1, 0, 1]))
    with pytest.raises(ValueError, match="graph 1 has no nodes; leave it out"):
        pad_graphs(x, torch.tensor([0, 0, 2, 2]))
    with pytest.raises(ValueError, match="joins nodes of different graphs"):
        pad_graphs(x, torch.tensor([0, 0, 1, 1]), torch.tensor([[0, 3], [3, 0]]))
    with pytest.raises(ValueError, match="num_learned must be between 0 and 2"):
        small(num_learned=3)
    with pytest.raises(ValueError, match='set backend="exact" or "dense"'):
        small(backend="knn")(x.double(), None, torch.tensor([0, 0, 0, 1]))


class LogitsOnly(torch.nn.Module):
    """A program that is exported returns tensors alone."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x).logits
        return logits


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["exact", "dense"])
@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_program_predicts_the_same(backend: Backend, strict: bool) -> None:
    network = small(backend=backend, metric_init="median").calibrate(points(2, 20, 3))
    model = LogitsOnly(network).eval()
    program = torch.export.export(
        model,
        (points(4, 20, 3),),
        dynamic_shapes={"x": {0: torch.export.Dim("batch")}},
        strict=strict,
    )
    x = points(7, 20, 3)
    assert largest_difference(program.module()(x), model(x)) < 1e-12


def test_the_output_has_one_row_for_each_graph_and_one_graph_for_each_layer() -> None:
    model = GraphLevelJLGCN(3, 4, hidden_channels=(5, 6), head_channels=()).eval()
    out = model(torch.randn(2, 7, 3))
    assert isinstance(out, GraphLevelOutput)
    assert (out.logits.shape, out.pooled.shape) == ((2, 4), (2, 6))
    assert [graph.shape for graph in out.learned] == [(2, 7, 7)] * 2
