"""What every graph promises, checked against brute force.

A class of graphs enters by one subclass that says how to make its tensors, how to build the graph
from them, and what matrix it stands for.
"""

from __future__ import annotations

import copy
import pickle
from abc import ABC, abstractmethod
from typing import ClassVar

import pytest
import torch
from torch import Tensor
from torch.autograd import grad, gradcheck

from jlgcn import Graph, SparseGraph
from tests.brute import F64, dirichlet, largest_difference, points
from tests.devices import explicit_devices, no_synchronization

NUM_NODES = 7
CHANNELS = 3


class GraphContract(ABC):
    """Inherit, name the class ``Test…``, and implement the three methods below."""

    batches: ClassVar[list[tuple[int, ...]]] = [(), (2,), (2, 3)]

    @abstractmethod
    def tensors(self, batch: tuple[int, ...]) -> tuple[Tensor, ...]:
        """Return float64 leaf tensors, with gradients, that the graph is differentiable in."""

    @abstractmethod
    def build(self, *tensors: Tensor) -> Graph:
        """Return the graph of these tensors."""

    @abstractmethod
    def matrix(self, *tensors: Tensor) -> Tensor:
        """Return the matrix it stands for, (*batch, N, N), by brute force."""

    def graph_and_matrix(self, batch: tuple[int, ...] = ()) -> tuple[Graph, Tensor]:
        tensors = self.tensors(batch)
        return self.build(*tensors), self.matrix(*tensors)

    def test_shape_dtype_and_device(self, batch: tuple[int, ...]) -> None:
        graph, _ = self.graph_and_matrix(batch)
        assert graph.shape == (*batch, NUM_NODES, NUM_NODES)
        assert graph.num_nodes == NUM_NODES
        assert graph.dtype == F64
        assert graph.device.type == "cpu"
        assert type(graph).__name__ in repr(graph)
        assert "7 × 7" in repr(graph)

    def test_product(self, batch: tuple[int, ...]) -> None:
        graph, matrix = self.graph_and_matrix(batch)
        x = points(*batch, NUM_NODES, CHANNELS)
        assert largest_difference(graph @ x, matrix @ x) < 1e-12
        assert largest_difference(torch.matmul(graph, x), matrix @ x) < 1e-12  # type: ignore[arg-type]

    def test_product_with_a_batch_of_right_hand_sides(self) -> None:
        graph, matrix = self.graph_and_matrix()
        x = points(4, 2, NUM_NODES, CHANNELS)
        assert largest_difference(graph @ x, matrix @ x) < 1e-12

    def test_some_rows_of_a_product(self, batch: tuple[int, ...]) -> None:
        tensors = self.tensors(batch)
        x = points(*batch, NUM_NODES, CHANNELS, grad=True)
        rows = torch.tensor([5, 0, 5])
        got = self.build(*tensors).matmul(x, rows)
        expected = (self.matrix(*tensors) @ x)[..., rows, :]
        assert largest_difference(got, expected) < 1e-12
        weight = torch.cos(torch.arange(got.numel(), dtype=F64)).view(got.shape)
        options = {"allow_unused": True, "materialize_grads": True}
        for left, right in zip(
            grad(got, (*tensors, x), weight, **options),
            grad(expected, (*tensors, x), weight, **options),
            strict=True,
        ):
            assert largest_difference(left, right) < 1e-11

    def test_product_without_columns(self) -> None:
        graph, _ = self.graph_and_matrix()
        assert (graph @ points(NUM_NODES, 0)).shape == (NUM_NODES, 0)

    def test_rows(self, batch: tuple[int, ...]) -> None:
        graph, matrix = self.graph_and_matrix(batch)
        index = torch.tensor([3, 0, 3])
        assert largest_difference(graph.rows(index), matrix[..., index, :]) < 1e-12
        assert largest_difference(graph.to_dense(), matrix) < 1e-12

    def test_symmetric_and_not_negative(self, batch: tuple[int, ...]) -> None:
        graph, _ = self.graph_and_matrix(batch)
        dense = graph.to_dense()
        assert largest_difference(dense, dense.mT) < 1e-14
        assert float(dense.detach().min()) >= 0

    def test_degree(self, batch: tuple[int, ...]) -> None:
        graph, matrix = self.graph_and_matrix(batch)
        assert largest_difference(graph.degree(), matrix.sum(-1)) < 1e-12

    def test_degree_without_gradients_is_computed_once(self) -> None:
        graph = self.graph_and_matrix()[0].detach()
        assert graph.degree() is graph.degree()

    def test_degree_under_no_grad_does_not_hide_later_gradients(self) -> None:
        graph, _ = self.graph_and_matrix()
        with torch.no_grad():
            graph.degree()
        assert graph.degree().requires_grad

    def test_degree_follows_tensors_that_change(self) -> None:
        tensors = self.tensors(())
        graph = self.build(*tensors)
        with torch.no_grad():
            graph.degree()
            for own in graph._tensors():
                if own.dtype == F64:
                    own.mul_(0.5)
            assert largest_difference(graph.degree(), graph.to_dense().sum(-1)) < 1e-12

    def test_training_twice_on_the_same_graph(self) -> None:
        tensors = self.tensors(())
        graph = self.build(*tensors)
        for _ in range(2):
            (graph.normalized() @ points(NUM_NODES, 2)).sum().backward(retain_graph=True)
        assert all(t.grad is not None for t in tensors)

    def test_dirichlet(self, batch: tuple[int, ...]) -> None:
        graph, matrix = self.graph_and_matrix(batch)
        f = points(*batch, NUM_NODES, CHANNELS)
        assert largest_difference(graph.dirichlet(f), dirichlet(matrix, f)) < 1e-12

    def test_dirichlet_of_a_batch_of_features(self) -> None:
        graph, matrix = self.graph_and_matrix()
        f = points(4, 2, NUM_NODES, CHANNELS)
        assert largest_difference(graph.dirichlet(f), dirichlet(matrix, f)) < 1e-12

    def test_dirichlet_does_not_see_an_offset(self) -> None:
        graph, _ = self.graph_and_matrix()
        f = points(NUM_NODES, CHANNELS)
        assert largest_difference(graph.dirichlet(f + 100), graph.dirichlet(f)) < 1e-9

    def test_gradients_equal_those_of_brute_force(self, batch: tuple[int, ...]) -> None:
        tensors = self.tensors(batch)
        x = points(*batch, NUM_NODES, CHANNELS, grad=True)
        graph, matrix = self.build(*tensors), self.matrix(*tensors)
        for got, expected in (
            (graph @ x, matrix @ x),
            (graph.degree(), matrix.sum(-1)),
            (graph.dirichlet(x), dirichlet(matrix, x)),
        ):
            inputs = (*tensors, x)
            weight = torch.cos(torch.arange(got.numel(), dtype=F64)).view(got.shape)
            options = {"allow_unused": True, "materialize_grads": True, "retain_graph": True}
            for left, right in zip(
                grad(got, inputs, weight, **options),
                grad(expected, inputs, weight, **options),
                strict=True,
            ):
                assert largest_difference(left, right) < 1e-11

    @pytest.mark.slow
    def test_gradcheck(self) -> None:
        tensors = self.tensors(())
        x = points(NUM_NODES, 2, grad=True)

        def everything(x: Tensor, *tensors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            graph = self.build(*tensors)
            return graph.normalized() @ x, graph.degree(), graph.dirichlet(x)

        assert gradcheck(everything, (x, *tensors))

    def test_scaled(self, batch: tuple[int, ...]) -> None:
        graph, matrix = self.graph_and_matrix(batch)
        s, t = torch.rand(*batch, NUM_NODES, dtype=F64), torch.rand(NUM_NODES, dtype=F64)
        s[..., 2] = 0
        expected = (s * t).unsqueeze(-1) * matrix * (s * t).unsqueeze(-2)
        scaled = graph.scaled(s).scaled(t)
        x = points(*batch, NUM_NODES, CHANNELS)
        assert largest_difference(scaled.to_dense(), expected) < 1e-12
        assert largest_difference(scaled @ x, expected @ x) < 1e-12
        assert largest_difference(scaled.degree(), expected.sum(-1)) < 1e-12
        assert largest_difference(scaled.dirichlet(x), dirichlet(expected, x)) < 1e-12

    def test_sum(self, batch: tuple[int, ...]) -> None:
        graph, matrix = self.graph_and_matrix(batch)
        ring = torch.arange(NUM_NODES)
        edges = torch.stack([ring, ring.roll(1)])
        other = SparseGraph(torch.cat([edges, edges.flip(0)], -1), num_nodes=NUM_NODES)
        x = points(*batch, NUM_NODES, CHANNELS)
        expected = matrix + other.to_dense()
        for total in (graph + other, other + graph):
            assert total.shape == matrix.shape
            assert largest_difference(total @ x, expected @ x) < 1e-12
            assert largest_difference(total.to_dense(), expected) < 1e-12
            assert largest_difference(total.degree(), expected.sum(-1)) < 1e-12
            assert largest_difference(total.dirichlet(x), dirichlet(expected, x)) < 1e-12

    def test_normalized_keeps_the_root_of_the_degrees(self, batch: tuple[int, ...]) -> None:
        graph, _ = self.graph_and_matrix(batch)
        root = graph.degree().sqrt().unsqueeze(-1)
        assert largest_difference(graph.normalized() @ root, root) < 1e-12

    def test_normalized_laplacian_is_positive(self, batch: tuple[int, ...]) -> None:
        dense = self.graph_and_matrix(batch)[0].normalized().to_dense()
        eigenvalues = torch.linalg.eigvalsh(torch.eye(NUM_NODES, dtype=F64) - dense.detach())
        assert float(eigenvalues.min()) > -1e-12

    def test_two_layers_of_sums_and_normalisations(self, batch: tuple[int, ...]) -> None:
        graph, matrix = self.graph_and_matrix(batch)

        def normalized(a: Tensor) -> Tensor:
            scale = a.sum(-1).rsqrt().nan_to_num(posinf=0)  # padding has no edges
            return scale.unsqueeze(-1) * a * scale.unsqueeze(-2)

        first = graph.normalized()
        second = (first + graph).normalized()
        x = points(*batch, NUM_NODES, CHANNELS)
        expected = normalized(normalized(matrix) + matrix)
        assert largest_difference(second @ x, expected @ x) < 1e-12

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_lower_precision(self, dtype: torch.dtype) -> None:
        graph, _ = self.graph_and_matrix()
        lower = graph.to(dtype=dtype)
        matrix = lower.to(dtype=F64).to_dense()  # of the tensors as rounded
        x = points(NUM_NODES, CHANNELS, dtype=dtype)
        assert (lower @ x).dtype == dtype
        assert lower.degree().dtype == torch.float32
        assert largest_difference(lower.degree(), matrix.sum(-1)) < 1e-5
        assert largest_difference(lower.dirichlet(x), dirichlet(matrix, x.double())) < 1e-5
        rounding = torch.finfo(dtype).eps * float(matrix.sum(-1).detach().max())
        assert largest_difference(lower @ x, matrix @ x.double()) < 2 * rounding

    def test_copies_and_pickles(self) -> None:
        graph = self.graph_and_matrix()[0].detach()
        graph.degree()
        x = points(NUM_NODES, CHANNELS)
        for twin in (copy.copy(graph), copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))):
            assert "_degree_cache" not in vars(twin)
            assert torch.equal(twin @ x, graph @ x)
            assert torch.equal(twin.degree(), graph.degree())

    def test_detach_cuts_gradients(self) -> None:
        graph, _ = self.graph_and_matrix()
        assert graph.degree().requires_grad
        assert not graph.detach().degree().requires_grad

    def test_using_a_graph_does_not_change_its_tensors(self) -> None:
        graph, _ = self.graph_and_matrix()
        before = [t.detach().clone().nan_to_num() for t in graph._tensors()]
        f = points(NUM_NODES, CHANNELS)
        graph.normalized() @ f
        graph.dirichlet(f)
        after = [t.nan_to_num() for t in graph._tensors()]
        assert all(map(torch.equal, before, after))

    def test_inference_mode(self) -> None:
        graph, matrix = self.graph_and_matrix()
        x = points(NUM_NODES, CHANNELS)
        with torch.inference_mode():
            assert largest_difference(graph @ x, matrix @ x) < 1e-12
            graph.normalized() @ x

    def test_inference_mode_does_not_spoil_later_training(self) -> None:
        graph = self.graph_and_matrix()[0].detach()
        with torch.inference_mode():
            graph.degree()
        x = points(NUM_NODES, CHANNELS, grad=True)
        (graph.normalized() @ x).sum().backward()
        assert x.grad is not None

    @pytest.mark.slow
    def test_compiles_without_graph_breaks(self) -> None:
        torch.compiler.reset()
        graph = self.graph_and_matrix()[0].detach()
        x = points(NUM_NODES, CHANNELS, grad=True)

        def layer(x: Tensor) -> Tensor:
            return (graph + graph).normalized().matmul(x)

        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        assert largest_difference(compiled(x), layer(x)) < 1e-12
        (got,), (expected,) = grad(compiled(x).sum(), x), grad(layer(x).sum(), x)
        assert largest_difference(got, expected) < 1e-12

    def test_every_new_tensor_names_its_device(self, batch: tuple[int, ...]) -> None:
        graph, x = self.build(*self.tensors(batch)), points(*batch, NUM_NODES, CHANNELS)
        index = torch.tensor([5, 0, 5])
        with explicit_devices():
            graph.matmul(x, index)
            graph.to(dtype=torch.float32).rows(index)
            (graph + graph).normalized().dirichlet(x)
            graph.to_dense()

    def test_a_layer_never_waits_for_the_device(self, batch: tuple[int, ...]) -> None:
        graph, x = self.build(*self.tensors(batch)), points(*batch, NUM_NODES, CHANNELS, grad=True)
        with no_synchronization():
            propagated = (graph + graph).normalized() @ x
            (propagated.square().sum() + graph.dirichlet(x).sum()).backward()

    def test_wrong_operands_are_refused_with_a_remedy(self) -> None:
        graph, _ = self.graph_and_matrix()
        with pytest.raises(ValueError, match="the graph has 7 nodes but x has 5 rows"):
            graph @ points(5, 2)
        with pytest.raises(ValueError, match=r"the graph has 7 nodes but f has 5 rows"):
            graph.dirichlet(points(5, 2))
        with pytest.raises(ValueError, match=r"x must be a matrix.*x\.unsqueeze"):
            graph @ points(NUM_NODES)
        with pytest.raises(ValueError, match=r"x must be floating point.*\.float\(\)"):
            graph @ torch.ones(NUM_NODES, 1, dtype=torch.int64)
        with pytest.raises(ValueError, match="one entry for each of 7 nodes"):
            graph.scaled(torch.ones(5, dtype=F64))
        with pytest.raises(TypeError, match=r"must be the left operand.*write graph @ x"):
            points(2, NUM_NODES) @ graph
        with pytest.raises(TypeError):
            graph + 1  # type: ignore[operator]
