"""The layer and the network against the paper's formulas, written out with dense matrices."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.nn.functional import leaky_relu

from jlgcn import DenseGraph, KernelGraph, as_graph
from jlgcn.errors import GraphHealthWarning
from jlgcn.graphs import attach
from jlgcn.nn import (
    JLGCN,
    PRESETS,
    DecoupledJLGCN,
    JLGCNConv,
    JLGCNOptions,
    JLGCNOutput,
    laplacian_regularizer,
)
from jlgcn.nn.learner import Backend
from jlgcn.nn.options import Preset
from jlgcn.training import fit_nodes
from tests.brute import F64, dirichlet, gaussian, largest_difference, points

PATH = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])  # of 6 nodes, two of them isolated


def plain(
    model: JLGCN, x: Tensor, a: Tensor, seen: Tensor | None = None
) -> tuple[Tensor, list[Tensor], Tensor]:
    """The whole network without dropout, as one would write it down; logits, graphs, GLR.

    `seen` is 1 where a node (row) may see another (column), and 0 elsewhere; None for everywhere.
    """
    options = model.options
    graphs, terms, f = [], [], x

    def normalized(matrix: Tensor) -> Tensor:
        scale = matrix.sum(-1).clamp(min=options.min_degree).rsqrt()
        return scale.unsqueeze(-1) * matrix * scale

    for index, conv in enumerate(model.convs):
        assert isinstance(conv, JLGCNConv)
        if index > 0:
            f = leaky_relu(f, 0.2)
        z = f @ conv.learner.metric.weight.t()
        learned = gaussian(z, z) if seen is None else gaussian(z, z) * seen
        a = normalized(a + (normalized(learned) if options.normalize_learned else learned))
        smooth = x if options.glr_on == "input" else f
        if options.glr_normalized:
            terms.append(torch.trace(smooth.t() @ (torch.eye(len(x), dtype=x.dtype) - a) @ smooth))
        else:
            terms.append(dirichlet(learned, smooth) / 2)
        f = a @ f @ conv.lin.weight.t()
        if conv.bias is not None:
            f = f + conv.bias
        graphs.append(a)
    return f, graphs, torch.stack(terms).sum()


def dense_path() -> Tensor:
    dense = torch.zeros(6, 6, dtype=F64)
    dense[PATH[0], PATH[1]] = 1
    return dense


@pytest.mark.parametrize("preset", ["paper", "authors"])
@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_the_network_is_the_formula(preset: Preset, num_layers: int) -> None:
    model = JLGCN(5, 4, 3, num_layers, rank=2, options=preset).double().eval()
    x = points(6, 5)
    out = model(x, PATH)
    logits, graphs, glr = plain(model, x, dense_path())
    assert largest_difference(out.logits, logits) < 1e-12
    for graph, dense in zip(out.graphs, graphs, strict=True):
        assert largest_difference(graph.to_dense(), dense) < 1e-12
    assert largest_difference(model.regularizer(out, x), glr) < 1e-12


# How the metric begins is tested with the learner.
@pytest.mark.parametrize(
    "field",
    [
        field.name
        for field in dataclasses.fields(JLGCNOptions)
        if field.name not in ("metric_init", "median_distance")
    ],
)
def test_every_option_changes_a_result(field: str) -> None:
    paper, authors = PRESETS["paper"], PRESETS["authors"]
    # min_degree matters where normalised graphs are summed, that is among the authors' options.
    base, other = (authors, paper) if field == "min_degree" else (paper, authors)
    changed = dataclasses.replace(base, **{field: getattr(other, field)})

    def result(options: JLGCNOptions) -> Tensor:
        torch.manual_seed(0)
        model = JLGCN(5, 4, 3, rank=2, options=options).double().train()
        x = points(6, 5)
        for parameter in model.parameters():
            parameter.data.mul_(3)
        torch.manual_seed(1)
        out = model(x, PATH)
        return torch.cat([out.logits.flatten(), model.regularizer(out, x).view(1)])

    assert largest_difference(result(base), result(changed)) > 1e-6


@pytest.mark.parametrize("preset", ["paper", "authors"])
def test_a_metric_of_zero_averages_over_all_nodes(preset: Preset) -> None:
    conv = JLGCNConv(5, 3, options=preset).double()
    conv.learner.metric.weight.data.zero_()
    x = points(6, 5)
    out, _ = conv(x)
    expected = conv.lin(x).mean(0).expand(6, -1)
    if conv.bias is not None:
        expected = expected + conv.bias
    assert largest_difference(out, expected) < 1e-13


def test_a_metric_without_bound_is_a_gcn_with_self_loops() -> None:
    from torch_geometric.nn import GCNConv

    conv = JLGCNConv(5, 3, options="paper").double()
    conv.learner.metric.weight.data.mul_(100)
    gcn = GCNConv(5, 3, bias=False).double()
    gcn.lin.weight.data.copy_(conv.lin.weight.data)
    x = points(6, 5)
    out, graph = conv(x, PATH)
    assert largest_difference(out, gcn(x, PATH)) < 1e-11
    loops = dense_path() + torch.eye(6, dtype=F64)
    scale = loops.sum(-1).rsqrt()
    assert largest_difference(graph.to_dense(), scale.unsqueeze(-1) * loops * scale) < 1e-11


@pytest.mark.parametrize("preset", ["paper", "authors"])
def test_permuting_nodes_permutes_the_output(preset: Preset) -> None:
    model = JLGCN(5, 4, 3, options=preset).double().eval()
    x, order = points(6, 5), torch.randperm(6)
    permuted = model(x[order], torch.argsort(order)[PATH]).logits
    assert largest_difference(permuted, model(x, PATH).logits[order]) < 1e-12


def test_each_layers_graph_keeps_the_root_of_its_degrees() -> None:
    conv = JLGCNConv(5, 3, options="paper").double()
    x = points(6, 5)
    given = as_graph(PATH, 6, dtype=F64)
    _, graph = conv(x, given)
    root = (given + conv.learner(x)).degree().sqrt().unsqueeze(-1)
    assert largest_difference(graph @ root, root) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["paper", "authors"])
def test_gradcheck_through_two_layers_and_the_regularizer(preset: Preset) -> None:
    model = JLGCN(4, 3, 2, rank=2, options=preset).double().eval()
    names = [name for name, _ in model.named_parameters()]
    values = tuple(p.detach().clone().requires_grad_() for p in model.parameters())
    x, given = points(6, 4, grad=True), as_graph(PATH, 6, dtype=F64)

    def everything(x: Tensor, *values: Tensor) -> tuple[Tensor, Tensor]:
        state = dict(zip(names, values, strict=True))
        out = torch.func.functional_call(model, state, (x, given))
        return out.logits, model.regularizer(out, x)

    assert gradcheck(everything, (x, *values))


def test_a_batch_of_graphs_equals_each_alone() -> None:
    model = JLGCN(5, 4, 3).double().eval()
    x = points(3, 6, 5)
    a = dense_path().expand(3, 6, 6)
    together = model(x, a)
    for i in range(3):
        assert largest_difference(together.logits[i], model(x[i], a[i]).logits) < 1e-12
    assert model.regularizer(together, x).shape == (3,)


@pytest.mark.parametrize("preset", ["paper", "authors"])
@pytest.mark.parametrize("widths", [(4, 3), (4, 9)])
def test_some_nodes_are_those_of_all(preset: Preset, widths: tuple[int, int]) -> None:
    model = JLGCN(5, *widths, options=preset).double().eval()
    x, nodes = points(6, 5), torch.tensor([4, 1])
    some, everything = model(x, PATH, nodes), model(x, PATH)
    assert largest_difference(some.logits, everything.logits[nodes]) < 1e-12
    for got, expected in zip(some.graphs, everything.graphs, strict=True):
        assert largest_difference(got.to_dense(), expected.to_dense()) < 1e-12
    left, right = model.regularizer(some, x), model.regularizer(everything, x)
    assert largest_difference(left, right) < 1e-12


def test_one_learned_graph_serves_all_layers() -> None:
    model = JLGCN(5, 4, 3, num_layers=3, num_learned=1).double().eval()
    x = points(6, 5)
    out = model(x, PATH)
    assert len(out.learned) == len(model.learners) == 1
    assert all(graph is out.graphs[0] for graph in out.graphs)
    a, f = out.graphs[0].to_dense(), x
    for index, conv in enumerate(model.convs):
        assert isinstance(conv, JLGCNConv)
        f = leaky_relu(f, 0.2) if index > 0 else f
        f = a @ conv.lin(f) + conv.bias
    assert largest_difference(out.logits, f) < 1e-12
    expected = torch.einsum("ic,ij,jc", x, torch.eye(6, dtype=F64) - a, x)
    assert largest_difference(model.regularizer(out, x), expected) < 1e-12
    model.reset_parameters()
    with pytest.raises(ValueError, match="num_learned must be between 1 and 2"):
        JLGCN(5, 4, 3, num_learned=3)


def test_a_dense_backend_is_exact() -> None:
    exact, dense = (JLGCN(5, 4, 3, backend=backend).double() for backend in ("exact", "dense"))
    dense.load_state_dict(exact.state_dict())
    x = points(6, 5)
    outputs = [model.eval()(x, PATH) for model in (exact, dense)]
    assert isinstance(outputs[1].learned[0], DenseGraph)
    assert largest_difference(outputs[0].logits, outputs[1].logits) < 1e-12
    gradients = [
        torch.autograd.grad(out.logits.square().sum(), list(model.parameters()))
        for model, out in zip((exact, dense), outputs, strict=True)
    ]
    for left, right in zip(*gradients, strict=True):
        assert largest_difference(left, right) < 1e-12


def test_knn_with_all_neighbours_is_exact() -> None:
    exact = JLGCN(5, 4, 3, backend="exact").double().eval()
    knn = JLGCN(5, 4, 3, backend="knn", num_neighbors=5).double().eval()
    knn.load_state_dict(exact.state_dict())
    x = points(6, 5)
    assert largest_difference(exact(x, PATH).logits, knn(x, PATH).logits) < 1e-12


def test_dropout_is_off_in_evaluation_and_on_in_training() -> None:
    model, x = JLGCN(5, 4, 3), torch.randn(6, 5)
    model.eval()
    assert torch.equal(model(x).logits, model(x).logits)
    model.train()
    assert not torch.equal(model(x).logits, model(x).logits)


def test_one_node_is_its_own_neighbour() -> None:
    conv = JLGCNConv(5, 3, options="paper").double()
    x = points(1, 5)
    assert largest_difference(conv(x)[0], conv.lin(x)) < 1e-14


def test_resetting_with_the_same_seed_gives_the_same_network() -> None:
    model = JLGCN(5, 4, 3)
    draws = []
    for _ in range(2):
        torch.manual_seed(3)
        model.reset_parameters()
        draws.append([p.detach().clone() for p in model.parameters()])
    assert all(map(torch.equal, *draws))


@pytest.mark.slow
@pytest.mark.parametrize("normalized", [False, True])
def test_probes_keep_the_expectation_of_value_and_gradient(normalized: bool) -> None:
    z = points(8, 2, grad=True)
    graph = KernelGraph(z).normalized() if normalized else KernelGraph(z)
    f = points(8, 30)
    exact = laplacian_regularizer(graph, f, normalized=normalized)
    (expected,) = torch.autograd.grad(exact, z, retain_graph=True)
    generator = torch.Generator().manual_seed(0)
    values, gradients = [], []
    for _ in range(400):
        value = laplacian_regularizer(
            graph, f, normalized=normalized, probes=4, generator=generator
        )
        values.append(value.detach())
        gradients.append(torch.autograd.grad(value, z, retain_graph=True)[0])
    samples, slopes = torch.stack(values), torch.stack(gradients)
    assert float(samples.std()) > 0
    error = samples.std() / 20
    assert abs(float(samples.mean() - exact.detach())) < 4 * float(error)
    assert bool(((slopes.mean(0) - expected).abs() < 5 * slopes.std(0) / 20).all())


def test_more_probes_than_features_are_exact() -> None:
    graph, f = DenseGraph(dense_path()), points(6, 3)
    exact = laplacian_regularizer(graph, f, normalized=False)
    assert torch.equal(laplacian_regularizer(graph, f, normalized=False, probes=3), exact)


def test_bad_arguments_are_refused_with_a_remedy() -> None:
    with pytest.raises(ValueError, match="one of paper, authors, but it is 'best'"):
        JLGCN(5, 4, 3, options="best")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="num_layers must be at least 1"):
        JLGCN(5, 4, 3, num_layers=0)
    with pytest.raises(ValueError, match="the graph has 6 nodes but 5 are needed"):
        JLGCN(5, 4, 3)(torch.randn(5, 5), dense_path())


@pytest.mark.parametrize("preset", ["paper", "authors"])
@pytest.mark.parametrize("backend", ["exact", "knn", "dense"])
def test_new_nodes_see_old_ones_and_no_one_sees_them(preset: Preset, backend: Backend) -> None:
    model = JLGCN(5, 4, 3, 2, rank=2, options=preset, backend=backend, num_neighbors=9)
    model = model.double().eval()
    x, new = points(6, 5), points(3, 5)
    graph = as_graph(PATH, 6, dtype=F64)
    with torch.no_grad():
        alone = model(x, graph).logits
        together = torch.cat([x, new])
        got = model(together, attach(graph, 3, torch.tensor([[0, 2], [5, 1]]))).logits
    assert largest_difference(got[:6], alone) < 1e-15
    a = torch.zeros(9, 9, dtype=F64)
    a[:6, :6] = dense_path()
    a[6, 5] = a[8, 1] = 1
    seen = torch.zeros(9, 9, dtype=F64)
    seen[:, :6] = 1
    seen[6:, 6:] = torch.eye(3)
    assert largest_difference(got, plain(model, together, a, seen)[0]) < 1e-12


@pytest.mark.filterwarnings("ignore:the learned graph is complete")
def test_a_new_node_like_an_old_one_is_classified_like_it() -> None:
    model = JLGCN(5, 4, 3, 2, rank=2, backend="knn", num_neighbors=2).double().eval()
    x = points(40, 5)
    with torch.no_grad():
        old = model(x).logits
        new = model(torch.cat([x, x]), attach(as_graph(None, 40, dtype=F64), 40)).logits[40:]
    # Not equal: a twin has the old node among its neighbours, and itself once more.
    assert float((old.argmax(-1) == new.argmax(-1)).double().mean()) > 0.8


def test_the_output_has_one_graph_and_one_input_for_each_layer() -> None:
    out = JLGCN(3, 4, 2, 3, num_learned=2).eval()(torch.randn(6, 3), PATH)
    assert isinstance(out, JLGCNOutput)
    assert [x.shape[-1] for x in out.features] == [3, 4, 4]
    assert (len(out.graphs), len(out.learned)) == (3, 2)


def test_graphs_of_a_batch_are_not_joined_and_the_remedy_works() -> None:
    from torch_geometric.data import Batch, Data
    from torch_geometric.utils import to_dense_adj, to_dense_batch

    parts = [Data(x=torch.randn(3, 5), edge_index=PATH[:, :4]), Data(x=torch.randn(2, 5))]
    parts[1].edge_index = torch.tensor([[0, 1], [1, 0]])
    data = Batch.from_data_list(parts)
    conv = JLGCNConv(5, 2)
    with pytest.raises(ValueError, match=r"Batch of 2 graphs.*pass to_dense_batch\(x, data"):
        conv(data.x, data)
    x, valid = to_dense_batch(data.x, data.batch)
    out, _ = conv(x, to_dense_adj(data.edge_index, data.batch), valid)
    alone = torch.cat([conv(part.x, part)[0] for part in parts])
    assert largest_difference(out[valid], alone) < 1e-5
    for network in (JLGCN(5, 4, 2), DecoupledJLGCN(5, 4, 2)):
        with pytest.raises(ValueError, match=r"pass the graphs of data.to_data_list"):
            network(data.x, data)
        with pytest.raises(ValueError, match="a Batch of 2 graphs"):
            fit_nodes(network, data, torch.zeros(5).long(), val=[1])
    assert JLGCNConv(5, 2, learns=False)(data.x, data)[0].shape == (5, 2)  # edges as given


def test_a_complete_learned_graph_is_no_alarm_beside_given_edges_if_it_is_normalized() -> None:
    x = torch.nn.functional.normalize(torch.rand(40, 5)) / 100  # all weights are nearly 1
    edges = torch.tensor([[0, 1], [1, 0]])
    JLGCN(5, 4, 3, 2).eval()(x, edges)
    cases: list[tuple[Preset, torch.Tensor | None]] = [("authors", None), ("paper", edges)]
    for options, given in cases:
        model = JLGCN(5, 4, 3, 2, options=options).eval()
        with pytest.warns(GraphHealthWarning, match="the learned graph is complete"):
            model(x, given)


def test_the_remedy_of_a_complete_graph_works_on_a_layer() -> None:
    x = torch.nn.functional.normalize(torch.randn(40, 64))
    with pytest.warns(
        GraphHealthWarning, match=r"JLGCNOptions.*conv\.learner\.calibrate"
    ) as caught:
        JLGCNConv(64, 8, options=JLGCNOptions(metric_init="random"))(0.1 * x)
    assert caught[0].filename == __file__
    conv = JLGCNConv(64, 8, options=JLGCNOptions(metric_init="median"))
    conv.learner.calibrate(0.1 * x)
    conv(0.1 * x)
