from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from jlgcn.ops.csr import Pattern, csr_matmul, edge_squared_distance, symmetric_pattern
from tests.brute import F64, largest_difference, points

NUM_NODES = 9


@pytest.fixture
def pattern() -> Pattern:
    row, col = torch.randint(0, NUM_NODES, (2, 14))
    return symmetric_pattern(row, col, NUM_NODES)


def dense(pattern: Pattern, weight: Tensor) -> Tensor:
    matrix = weight.new_zeros(NUM_NODES, NUM_NODES)
    return matrix.index_put((pattern.row, pattern.col), weight)


def test_a_pattern_is_sorted_symmetric_and_without_repetition() -> None:
    row, col = torch.tensor([3, 0, 3, 2, 1]), torch.tensor([0, 3, 0, 2, 3])
    pattern = symmetric_pattern(row, col, 5)
    assert pattern.row.tolist() == [0, 1, 2, 3, 3]
    assert pattern.col.tolist() == [3, 3, 2, 0, 1]
    assert pattern.crow.tolist() == [0, 1, 2, 3, 5, 5]
    assert pattern.reverse.tolist() == [3, 4, 2, 0, 1]


def test_reverse_points_at_the_mirror_image(pattern: Pattern) -> None:
    assert torch.equal(pattern.row[pattern.reverse], pattern.col)
    assert torch.equal(pattern.col[pattern.reverse], pattern.row)


def test_find_gives_the_place_of_an_entry(pattern: Pattern) -> None:
    order = torch.randperm(pattern.num_edges)
    assert torch.equal(pattern.find(pattern.row[order], pattern.col[order]), order)


def test_an_empty_pattern_multiplies_to_zero() -> None:
    nothing = torch.empty(0, dtype=torch.int64)
    pattern = symmetric_pattern(nothing, nothing, 3)
    x = torch.ones(3, 2, requires_grad=True)
    product = csr_matmul(pattern, torch.empty(0, requires_grad=True), x)
    assert not product.any()
    product.sum().backward()
    assert edge_squared_distance(pattern, x).shape == (0,)


def test_products_equal_dense_ones_though_weights_are_not_symmetric(pattern: Pattern) -> None:
    weight, x, y = torch.randn(pattern.num_edges, dtype=F64), points(9, 4), points(9, 4)
    assert largest_difference(csr_matmul(pattern, weight, x), dense(pattern, weight) @ x) < 1e-14
    weight.requires_grad_()
    (dots,) = torch.autograd.grad(csr_matmul(pattern, weight, x), weight, y)
    assert largest_difference(dots, (y @ x.mT)[pattern.row, pattern.col]) < 1e-14
    distance = (x[pattern.row] - x[pattern.col]).square().sum(-1)
    assert largest_difference(edge_squared_distance(pattern, x), distance) < 1e-14


@pytest.mark.parametrize("check", [gradcheck, gradgradcheck])
def test_gradients_of_first_and_second_order(pattern: Pattern, check: Callable[..., bool]) -> None:
    weight = torch.randn(pattern.num_edges, dtype=F64, requires_grad=True)
    x = points(9, 3, grad=True)
    assert check(lambda weight, x: csr_matmul(pattern, weight, x), (weight, x))
    assert check(lambda x: edge_squared_distance(pattern, x), (x,))


def test_more_edges_than_a_chunk(monkeypatch: pytest.MonkeyPatch, pattern: Pattern) -> None:
    monkeypatch.setattr("jlgcn.ops.csr._CHUNK_ENTRIES", 7)
    x = points(9, 3)
    distance = (x[pattern.row] - x[pattern.col]).square().sum(-1)
    assert largest_difference(edge_squared_distance(pattern, x), distance) < 1e-14


def test_weights_of_a_large_graph_get_no_dense_gradient() -> None:
    # 200,000 nodes: a dense gradient would take 160 GB.
    row = torch.arange(200_000)
    pattern = symmetric_pattern(row, row.roll(1), 200_000)
    weight = torch.ones(pattern.num_edges, requires_grad=True)
    csr_matmul(pattern, weight, torch.ones(200_000, 1)).sum().backward()
    assert weight.grad is not None
    assert torch.equal(weight.grad, torch.ones_like(weight))


def test_sizes_beyond_the_packed_sort_are_refused() -> None:
    edges = torch.empty(2**31 + 1, dtype=torch.int64, device="meta")  # which takes no memory
    with pytest.raises(ValueError, match=r"at most 2,147,483,648 nodes.*and 2,147,483,649 edges"):
        symmetric_pattern(edges, edges, 100)
    with pytest.raises(ValueError, match=r"there are 2,147,483,649 nodes and 1 edges; set"):
        symmetric_pattern(edges[:1], edges[:1], 2**31 + 1)
