from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor

from jlgcn import DenseGraph, KernelGraph, SparseGraph, as_graph
from jlgcn.graphs.convert import as_cross_edges
from tests.brute import points

EDGES = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
WEIGHT = torch.tensor([2.0, 2.0, 3.0, 3.0])
PATH = torch.tensor([[0.0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]])
WEIGHTED = torch.tensor([[0.0, 2, 0, 0], [2, 0, 3, 0], [0, 3, 0, 0], [0, 0, 0, 0]])


def pyg_data(**fields: Any) -> Any:  # noqa: ANN401
    """Return a Data of PyTorch Geometric, whose import takes seconds."""
    from torch_geometric.data import Data

    return Data(**fields)


@pytest.mark.parametrize(
    "graph",
    [
        EDGES,
        EDGES.int(),
        EDGES.numpy(),
        PATH,
        PATH.bool(),
        PATH.numpy(),
        PATH.to_sparse(),
        scipy.sparse.csr_matrix(PATH.numpy()),
        scipy.sparse.coo_array(PATH.numpy().astype(int)),
        partial(pyg_data, edge_index=EDGES, num_nodes=4),
        SimpleNamespace(edge_index=EDGES),
        SparseGraph(EDGES, num_nodes=4),
        DenseGraph(PATH),
    ],
    ids=lambda graph: type(graph).__name__,
)
def test_every_way_to_write_a_path_is_the_same_graph(graph: object) -> None:
    graph = graph() if isinstance(graph, partial) else graph
    assert torch.equal(as_graph(graph, 4).to_dense(), PATH)


@pytest.mark.parametrize(
    "graph",
    [
        (EDGES, WEIGHT),
        [EDGES.numpy(), WEIGHT.numpy()],
        (EDGES, WEIGHT.long()),
        WEIGHTED,
        WEIGHTED.to_sparse(),
        scipy.sparse.csc_matrix(WEIGHTED.numpy()),
        partial(pyg_data, edge_index=EDGES, edge_weight=WEIGHT, num_nodes=4),
        partial(pyg_data, edge_index=EDGES, edge_attr=WEIGHT.unsqueeze(-1), num_nodes=4),
    ],
    ids=lambda graph: type(graph).__name__,
)
def test_every_way_to_write_weights_is_the_same_graph(graph: object) -> None:
    graph = graph() if isinstance(graph, partial) else graph
    assert torch.equal(as_graph(graph, 4).to_dense(), WEIGHTED)


def test_none_is_a_graph_without_edges() -> None:
    graph = as_graph(None, 3, dtype=torch.float64)
    assert graph.dtype == torch.float64
    assert not graph.to_dense().any()
    assert (as_graph(pyg_data(num_nodes=3)).to_dense() == 0).all()


def test_edge_features_of_several_columns_are_not_weights() -> None:
    data = pyg_data(edge_index=EDGES, edge_attr=torch.randn(4, 2), num_nodes=4)
    assert torch.equal(as_graph(data).to_dense(), PATH)


def test_a_graph_is_returned_as_it_is() -> None:
    graph = KernelGraph(points(4, 2))
    assert as_graph(graph, 4) is graph
    assert as_graph(graph, 4, dtype=torch.float64, device="cpu") is graph
    assert as_graph(graph, 4, dtype=torch.float32).dtype == torch.float32


def test_dense_batches_are_kept() -> None:
    assert as_graph(PATH.expand(5, 4, 4)).shape == (5, 4, 4)


def test_gradients_reach_given_weights() -> None:
    weight = WEIGHT.clone().requires_grad_()
    as_graph((EDGES, weight)).degree().sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.tensor([[0, 1], [1, 2]]),
        lambda: PATH.triu(),
        lambda: scipy.sparse.csr_matrix(PATH.triu().numpy()),
    ],
    ids=["edge_index", "dense", "scipy"],
)
def test_directed_graphs_are_made_symmetric_with_a_warning(make: Callable[[], Any]) -> None:
    with pytest.warns(UserWarning, match="the given graph is directed"):
        graph = as_graph(make(), 4)
    assert torch.equal(graph.to_dense(), PATH)


def test_of_two_different_weights_the_larger_is_used() -> None:
    with pytest.warns(UserWarning, match="weights differ between the two directions"):
        graph = as_graph((torch.tensor([[0, 1], [1, 0]]), torch.tensor([1.0, 4.0])))
    assert graph.to_dense().tolist() == [[0, 4], [4, 0]]


def test_duplicate_edges_are_merged_with_a_warning() -> None:
    twice = EDGES.repeat(1, 2)
    with pytest.warns(UserWarning, match="4 edges are listed more than once; they are merged$"):
        assert torch.equal(as_graph(twice, 4).to_dense(), PATH)
    with pytest.warns(UserWarning, match="merged, and their weights added"):
        assert torch.equal(as_graph((twice, WEIGHT.repeat(2)), 4).to_dense(), 2 * WEIGHTED)


@pytest.mark.parametrize("graph", [torch.tensor([[0, 1], [0, 1]]), torch.eye(2)])
def test_self_loops_stay_with_a_warning(graph: Tensor) -> None:
    with pytest.warns(UserWarning, match="has self-loops; they are kept"):
        assert torch.equal(as_graph(graph).to_dense(), torch.eye(2))


def test_a_warning_points_at_the_caller() -> None:
    with pytest.warns(UserWarning, match="directed") as caught:
        as_graph(torch.tensor([[0], [1]]))
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (PATH[:3, :3], "the graph has 3 nodes but 4 are needed; pass the graph of the same nodes"),
        (EDGES.t().contiguous().repeat(3, 1), r"shape \(2, edges\).*edge_index\.t"),
        (EDGES.float(), r"edge_index must have an integer dtype.*\.long\(\)"),
        (torch.tensor([[0, 7], [7, 0]]), r"edge 0 is \(0, 7\)"),
        (-PATH, r"not negative, but weight \(0, 1\) is -1.0"),
        (PATH * float("nan"), r"finite and not negative, but weight \(0, 0\) is nan"),
        (PATH / 0, r"finite and not negative"),
        (PATH[:, :3], r"weight must be square"),
        (scipy.sparse.csr_matrix(PATH[:, :3].numpy()), "a sparse adjacency matrix must be square"),
        (PATH[:, :3].to_sparse(), "a sparse adjacency matrix must be square"),
        ((EDGES, -WEIGHT), "weight 0 is -2.0"),
        ((EDGES, WEIGHT[:3]), "one entry for each of 4 edges"),
    ],
)
def test_bad_graphs_are_refused_with_a_remedy(graph: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        as_graph(graph, 4)


def test_nothing_and_no_size_is_refused() -> None:
    with pytest.raises(ValueError, match="num_nodes is needed for graph=None"):
        as_graph(None)


def test_other_objects_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"edge_index, but it is a builtins\.str"):
        as_graph("cora")
    with pytest.raises(TypeError, match=r"but it is a builtins\.dict"):
        as_graph({0: [1]})


def test_numpy_input_is_not_changed() -> None:
    edges = EDGES.numpy().copy()
    edges.flags.writeable = False
    with pytest.warns(UserWarning, match="not writable"):  # PyTorch's, about the memory it shares
        as_graph(edges, 4)
    assert np.array_equal(edges, EDGES.numpy())


def test_edges_between_new_and_old_nodes_are_checked() -> None:
    pairs = torch.tensor([[0, 1], [1, 2]])
    with pytest.raises(ValueError, match="weight must have one entry for each of 2 edges"):
        as_cross_edges((pairs, torch.ones(3)), 2, 9)
    with pytest.raises(ValueError, match="edges must have an integer dtype"):
        as_cross_edges((pairs + 0.5, torch.ones(2)), 2, 9)
    with pytest.raises(ValueError, match="may be an edge_index or a matrix"):
        as_cross_edges(np.eye(2, 9, dtype=int), 2, 9)
    index, _ = as_cross_edges(([[], []], []), 2, 9)
    assert index.shape == (2, 0)
