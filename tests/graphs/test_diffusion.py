from __future__ import annotations

import pytest
import torch
from torch.autograd import grad

from jlgcn import Graph, KernelGraph, SparseGraph, gaussian_knn_graph
from jlgcn.graphs import attach, personalized_pagerank
from jlgcn.graphs.diffusion import chebyshev_steps
from tests.brute import F64, largest_difference, points


def exact(matrix: torch.Tensor, x: torch.Tensor, restart: float) -> torch.Tensor:
    eye = torch.eye(len(matrix), dtype=F64)
    solution: torch.Tensor = torch.linalg.solve(eye - (1 - restart) * matrix, x)
    return restart * solution


@pytest.mark.parametrize("restart", [0.005, 0.1, 0.6, 1.0])
def test_it_is_the_solution_within_the_tolerance(restart: float) -> None:
    graph = gaussian_knn_graph(points(40, 2), 5).normalized()
    x = points(40, 3)
    expected = exact(graph.to_dense(), x, restart)
    start = (restart * x - expected).norm()
    for tolerance in (1e-2, 1e-6):
        error = (personalized_pagerank(graph, x, restart, tolerance=tolerance) - expected).norm()
        assert float(error) <= tolerance * float(start) + 1e-13


@pytest.mark.parametrize("sparse", [True, False])
def test_gradients_are_those_of_the_inverse(sparse: bool) -> None:
    z, x = points(12, 2, grad=True), points(12, 3, grad=True)

    def graph() -> Graph:
        return (gaussian_knn_graph(z, 4) if sparse else KernelGraph(z)).normalized()

    got = personalized_pagerank(graph(), x, 0.05, tolerance=1e-13)
    expected = exact(graph().to_dense(), x, 0.05)
    assert largest_difference(got, expected) < 1e-11
    weight = torch.cos(torch.arange(got.numel(), dtype=F64)).view(got.shape)
    for left, right in zip(grad(got, (z, x), weight), grad(expected, (z, x), weight), strict=True):
        assert largest_difference(left, right) < 1e-9


def test_the_number_of_steps_grows_with_the_root() -> None:
    assert chebyshev_steps(1.0) == 0
    assert 9 < chebyshev_steps(0.0001) / chebyshev_steps(0.01) < 11


@pytest.mark.slow
def test_with_a_rare_restart_a_component_becomes_one() -> None:
    edges = torch.tensor([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]])
    loops = torch.arange(5).expand(2, -1)
    graph = SparseGraph(torch.cat([edges, loops], -1)).to(dtype=F64).normalized()
    x = torch.tensor([[1.0], [0.0], [0.0], [0.0], [0.0]], dtype=F64)
    spread = personalized_pagerank(graph, x, 1e-6, tolerance=1e-9)
    root = torch.tensor([2.0, 3.0, 2.0], dtype=F64).sqrt()  # of the degrees: all that remains
    assert torch.allclose(spread[:3, 0], root * root[0] / 7, atol=1e-4)
    assert not spread[3:].any()


def test_new_nodes_are_spread_to_and_old_ones_do_not_notice() -> None:
    base = gaussian_knn_graph(points(30, 2), 4)
    x = points(33, 2)
    grown = attach(base, 3, torch.tensor([[0, 1, 2, 2], [4, 5, 6, 7]])).normalized()
    got = personalized_pagerank(grown, x, 0.1, tolerance=1e-12)
    assert largest_difference(got, exact(grown.to_dense(), x, 0.1)) < 1e-8
    assert (
        largest_difference(
            got[:30], personalized_pagerank(base.normalized(), x[:30], 0.1, tolerance=1e-12)
        )
        < 1e-12
    )


def test_a_graph_may_return_what_it_was_given() -> None:
    class Identity(SparseGraph):
        def matmul(self, x: torch.Tensor, rows: torch.Tensor | None = None) -> torch.Tensor:
            return x if rows is None else x[rows]

    loops = torch.arange(4).expand(2, -1)
    x = points(4, 3)
    assert (
        largest_difference(personalized_pagerank(Identity(loops), x, 0.1, tolerance=1e-12), x)
        < 1e-10
    )


@torch.no_grad()
@pytest.mark.parametrize("restart", [0.05, 0.5])
def test_a_warm_start_has_the_same_tolerance_in_fewer_products(restart: float) -> None:
    class Counting:
        count = 0

        def __init__(self, graph: Graph) -> None:
            self.graph = graph

        def detach(self) -> Counting:
            return self

        def __matmul__(self, x: torch.Tensor) -> torch.Tensor:
            Counting.count += 1
            return self.graph @ x

    x = points(60, 3)
    graph = Counting(KernelGraph(x).normalized())
    solution = personalized_pagerank(graph, x, restart, tolerance=1e-12)
    error = (restart * x - solution).norm()
    counts = []
    for start in (None, solution + 1e-3 * points(60, 3), solution, 100 * solution):
        Counting.count = 0
        found = personalized_pagerank(graph, x, restart, tolerance=1e-4, start=start)
        counts.append(Counting.count)
        assert (found - solution).norm() < 1e-4 * error
    cold, warm, solved, useless = counts
    assert solved == 2 < warm < cold <= useless - 2


def test_impossible_arguments_are_refused() -> None:
    graph, x = KernelGraph(torch.randn(3, 1)).normalized(), torch.randn(3, 1)
    for restart in (0.0, 1.5):
        with pytest.raises(ValueError, match=f"restart must be .* at most 1, but it is {restart}"):
            personalized_pagerank(graph, x, restart)
    for tolerance in (0.0, 1.0):
        with pytest.raises(ValueError, match=f"between 0 and 1, but it is {tolerance}"):
            personalized_pagerank(graph, x, 0.5, tolerance=tolerance)


def test_the_number_of_steps_is_that_of_chebyshevs_bound() -> None:
    assert [chebyshev_steps(restart) for restart in (0.01, 0.1, 1.0)] == [54, 17, 0]
