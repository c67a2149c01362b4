"""What holds for any features, any graph and any order of the nodes."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck

from jlgcn import DenseGraph, JLGCNClassifier, KernelGraph, SparseGraph, as_graph
from jlgcn.nn import JLGCN, JLGCNConv
from jlgcn.ops import kernel_matmul
from jlgcn.training import RunOptions, TrainConfig
from tests.brute import dirichlet
from tests.training.small import fit_data, small_data

F64 = torch.float64
EXAMPLES = int(os.environ.get("JLGCN_EXAMPLES", "25"))  # 1,000 at night

pytestmark = pytest.mark.filterwarnings("ignore:the learned graph is", "ignore:the given graph")


def anything(max_examples: int = EXAMPLES) -> settings:
    return settings(
        max_examples=max_examples,
        deadline=None,
        derandomize=True,  # the same examples in every run of the tests
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )


@st.composite
def points(draw: st.DrawFn, max_nodes: int = 24, max_channels: int = 5) -> Tensor:
    """Points of any number, spread and offset, some of them equal; ‖z‖² stays below 50."""
    num_nodes = draw(st.integers(1, max_nodes))
    channels = draw(st.integers(1, max_channels))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    z = torch.randn(num_nodes, channels, dtype=F64, generator=generator)
    z = z * draw(st.sampled_from([0.0, 1e-3, 0.3, 1.0]))
    if draw(st.booleans()):
        z[num_nodes // 2 :] = z[: num_nodes - num_nodes // 2].clone()
    length = z.square().sum(-1).max().clamp(min=1e-30).sqrt()
    return z * (7.0 / length).clamp(max=1.0)


@st.composite
def weighted_edges(draw: st.DrawFn, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Edges in both directions, with weights, as SparseGraph wants them."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    dense = torch.rand(num_nodes, num_nodes, dtype=F64, generator=generator)
    dense = (dense * (dense < draw(st.sampled_from([0.0, 0.2, 0.7])))).triu(1)
    dense = dense + dense.mT
    index = dense.nonzero().mT.contiguous()
    return index, dense[index[0], index[1]]


def columns(z: Tensor, number: int = 3) -> Tensor:
    return torch.cos(torch.arange(z.shape[0] * number, dtype=z.dtype)).view(-1, number)


@given(points())
@anything()
def test_weights_are_symmetric_and_between_0_and_1(z: Tensor) -> None:
    dense = KernelGraph(z).to_dense()
    assert float((dense - dense.mT).abs().max()) < 1e-14
    assert 0 <= float(dense.min()) <= float(dense.max()) <= 1 + 1e-14
    assert float((dense.diagonal() - 1).abs().max()) < 1e-12


@given(points(), st.integers(0, 2**32))
@anything()
def test_the_order_of_nodes_does_not_matter(z: Tensor, seed: int) -> None:
    order = torch.randperm(len(z), generator=torch.Generator().manual_seed(seed))
    graph, permuted = KernelGraph(z), KernelGraph(z[order])
    assert torch.allclose(permuted @ columns(z)[order], (graph @ columns(z))[order], atol=1e-12)
    torch.manual_seed(0)
    model = JLGCN(z.shape[1], 4, 2, rank=2).double().eval()
    assert torch.allclose(model(z[order]).logits, model(z).logits[order], atol=1e-10)


@given(points(), st.floats(-1e3, 1e3))
@anything()
def test_only_differences_count(z: Tensor, offset: float) -> None:
    assert torch.allclose(KernelGraph(z + offset).to_dense(), KernelGraph(z).to_dense(), atol=1e-9)


@given(points(), st.data())
@anything()
def test_a_normalised_graph_averages(z: Tensor, data: st.DataObject) -> None:
    index, weight = data.draw(weighted_edges(len(z)))
    total = SparseGraph(index, weight, len(z)) + KernelGraph(z)
    root = total.degree().sqrt()
    normalized = total.normalized()
    # A_l D^½ 1 = D^½ 1, and I - A_l has no negative eigenvalue.
    assert torch.allclose(normalized @ root.unsqueeze(-1), root.unsqueeze(-1), atol=1e-10)
    laplacian = torch.eye(len(z), dtype=F64) - normalized.to_dense()
    assert float(torch.linalg.eigvalsh(laplacian).min()) > -1e-10


@given(points(), st.data())
@anything()
def test_the_energy_is_the_sum_over_pairs_and_not_negative(z: Tensor, data: st.DataObject) -> None:
    f = columns(z)
    index, weight = data.draw(weighted_edges(len(z)))
    for graph in (KernelGraph(z), SparseGraph(index, weight, len(z))):
        energy = graph.dirichlet(f)
        assert float(energy) >= 0
        assert torch.allclose(energy, dirichlet(graph.to_dense(), f), rtol=1e-9, atol=1e-10)


@given(points(), st.integers(1, 40))
@anything()
def test_all_ways_to_hold_a_graph_are_the_same(z: Tensor, block: int) -> None:
    f = columns(z)
    every = torch.cartesian_prod(torch.arange(len(z)), torch.arange(len(z))).mT
    exact = DenseGraph((-(z.unsqueeze(1) - z).square().sum(-1)).exp())
    results = {}
    for dtype in (F64, torch.float32):
        points_of = z.to(dtype).requires_grad_()
        ways: dict[str, Callable[[Tensor], Tensor]] = {
            "blocks": lambda p: kernel_matmul(p, p, f.to(p.dtype), method="blocks")[0],
            "flash": lambda p: kernel_matmul(p, p, f.to(p.dtype), method="flash")[0],
            "kernel": lambda p: KernelGraph(p) @ f.to(p.dtype),
            "sparse": lambda p: SparseGraph.from_candidates(p, every) @ f.to(p.dtype),
            "rows": lambda p: torch.cat(
                [
                    kernel_matmul(part, p, f.to(p.dtype), method="blocks")[0]
                    for part in p.split(block)
                ]
            ),
        }
        for name, way in ways.items():
            product = way(points_of)
            (gradient,) = torch.autograd.grad(product.square().sum(), points_of)
            results[name, dtype] = product.detach(), gradient
    reference, gradient = results["blocks", F64]
    assert torch.allclose(reference, exact @ f, atol=1e-12)
    for (_, dtype), (product, own) in results.items():
        bound = 1e-12 if dtype == F64 else 1e-5
        # Relative to the largest entry: a product of 24 weights near 1 is not near 1 itself.
        scale, largest = (max(1.0, float(t.abs().max())) for t in (reference, gradient))
        assert float((product.double() - reference).abs().max()) <= bound * scale
        assert float((own.double() - gradient).abs().max()) <= 10 * bound * largest


@given(points(max_nodes=5, max_channels=3), st.data())
@anything(max(5, EXAMPLES // 5))
def test_gradients_are_right(z: Tensor, data: st.DataObject) -> None:
    index, weight = data.draw(weighted_edges(len(z)))
    torch.manual_seed(0)
    conv = JLGCNConv(z.shape[1], 2, rank=2, options="paper").double()

    def layer(x: Tensor, metric: Tensor, w: Tensor, given: Tensor) -> Tensor:
        state = {"learner.metric.weight": metric, "lin.weight": w}
        graph = SparseGraph.from_pattern(SparseGraph(index, weight, len(z)).pattern, given)
        out: Tensor = torch.func.functional_call(conv, state, (x, graph))[0]
        return out

    inputs = (
        z.clone().requires_grad_(),
        conv.learner.metric.weight.detach().clone().requires_grad_(),
        conv.lin.weight.detach().clone().requires_grad_(),
        SparseGraph(index, weight, len(z)).weight.clone().requires_grad_(),
    )
    assert gradcheck(layer, inputs, atol=1e-6)


@given(points(), st.data())
@anything()
def test_inputs_are_never_changed(z: Tensor, data: st.DataObject) -> None:
    index, weight = data.draw(weighted_edges(len(z)))
    kept = [tensor.clone() for tensor in (z, index, weight)]
    torch.manual_seed(0)
    model = JLGCN(z.shape[1], 4, 2, rank=2).double()
    out = model(z, as_graph((index, weight), len(z)))
    (out.logits.sum() + model.regularizer(out, z)).backward()
    for before, after in zip(kept, (z, index, weight), strict=True):
        assert torch.equal(before, after)


@given(st.integers(0, 2**31))
@anything(max(3, EXAMPLES // 8))
def test_the_same_seed_twice_is_the_same_to_the_bit(seed: int) -> None:
    data = small_data(40)

    def trained() -> str:
        torch.manual_seed(seed)
        model, config = JLGCN(6, 8, 2, rank=3), TrainConfig(epochs=3, lr=0.02)
        options = RunOptions(deterministic=True)
        return fit_data(model, data, config=config, options=options).parameter_sha256

    assert trained() == trained()


@given(st.integers(0, 2**31), st.integers(8, 40))
@anything(max(3, EXAMPLES // 8))
def test_a_saved_model_predicts_the_same_bits(
    tmp_path_factory: pytest.TempPathFactory, seed: int, num_rows: int
) -> None:
    chance = np.random.default_rng(seed)
    y = np.arange(num_rows) % 2
    x = chance.normal(size=(num_rows, 3)) + y[:, None]
    model = JLGCNClassifier(n_layers=2).fit(x, np.where(np.arange(num_rows) < 6, y, -1))
    folder = tmp_path_factory.mktemp("model")
    model.save(folder)
    loaded = JLGCNClassifier.load(folder)
    new = chance.normal(size=(5, 3))
    assert np.array_equal(loaded.predict_proba(new), model.predict_proba(new))
    assert np.array_equal(loaded.label_distributions_, model.label_distributions_)
