"""Which operand of a product a graph may be, compiled or not."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from jlgcn import DenseGraph, Graph
from jlgcn.nn.losses import laplacian_regularizer
from tests.brute import F64, largest_difference, points

NUM_NODES = 4
# Square, so that both orders have a product of the same shape.
X = points(NUM_NODES, NUM_NODES)


def square_graph() -> Graph:
    weight = torch.rand(NUM_NODES, NUM_NODES, dtype=F64)
    return DenseGraph(weight + weight.mT)


PRODUCTS_FROM_THE_RIGHT: dict[str, Callable[[Graph, Tensor], Tensor]] = {
    "operator": lambda graph, x: x @ graph,
    "method": lambda graph, x: x.matmul(graph),  # type: ignore[arg-type]
    "function": lambda graph, x: torch.matmul(x, graph),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("way", PRODUCTS_FROM_THE_RIGHT)
@pytest.mark.parametrize("mode", ["eager", "compiled", "fullgraph"])
def test_a_graph_on_the_right_is_refused(way: str, mode: str) -> None:
    torch.compiler.reset()
    product = PRODUCTS_FROM_THE_RIGHT[way]
    if mode != "eager":
        product = torch.compile(product, backend="eager", fullgraph=mode == "fullgraph")
    # With fullgraph, PyTorch wraps the error of the function into its own; 2.6 drops the text.
    error = RuntimeError if mode == "fullgraph" else TypeError
    text = r"left operand.*write graph @ x, or graph\.matmul\(x\)"
    with pytest.raises(error, match=f"{text}|Observed exception"):
        product(square_graph(), X)


@pytest.mark.parametrize(
    "product",
    [
        lambda graph, x: graph @ (x + 1),
        lambda graph, x: graph.matmul(x + 1),
        lambda graph, x: torch.matmul(graph, x + 1),
    ],
    ids=["operator", "method", "function"],
)
def test_a_graph_on_the_left_may_stand_in_a_compiled_function(
    product: Callable[[Graph, Tensor], Tensor],
) -> None:
    torch.compiler.reset()
    graph = square_graph()
    compiled = torch.compile(product, backend="eager")
    assert largest_difference(compiled(graph, X), graph.to_dense() @ (X + 1)) < 1e-12


def test_with_fullgraph_the_operator_is_right_or_refused_and_the_method_compiles() -> None:
    torch.compiler.reset()
    graph = square_graph()
    method = torch.compile(lambda graph, x: graph.matmul(x), backend="eager", fullgraph=True)
    assert largest_difference(method(graph, X), graph.to_dense() @ X) < 1e-12
    operator = torch.compile(lambda graph, x: graph @ x, backend="eager", fullgraph=True)
    try:
        product = operator(graph, X)
    except RuntimeError as problem:  # PyTorch to 2.13, which swaps the operands before it asks
        wanted = "graph.matmul(x) in a function for torch.compile|Observed exception"
        assert re.search(wanted, str(problem))  # noqa: PT017
    else:
        assert largest_difference(product, graph.to_dense() @ X) < 1e-12


def test_a_regularizer_compiles_without_graph_breaks() -> None:
    torch.compiler.reset()
    graph = square_graph().normalized()

    def energy(x: Tensor) -> Tensor:
        return laplacian_regularizer(graph, x, normalized=True)

    compiled = torch.compile(energy, backend="eager", fullgraph=True)
    assert largest_difference(compiled(X), energy(X)) < 1e-12
