"""Conversion of common graph formats."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from jlgcn._validation import (
    caller_level,
    check_cross_edges,
    check_not_negative,
    check_real,
    check_weight,
)
from jlgcn.errors import NodeCountError, OneWayEdgesWarning
from jlgcn.graphs.dense import DenseGraph
from jlgcn.graphs.graph import Graph
from jlgcn.graphs.sparse import SparseGraph, collect_edges

_LOOPS = (
    "the given graph has self-loops; they are kept, in addition to the self-loop that a learned "
    "graph has at every node"
)
_LARGER = "the larger weight of the two directions is used"


def as_graph(
    graph: Any,  # noqa: ANN401
    num_nodes: int | None = None,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Graph:
    r"""Convert a graph of any common format to a :class:`jlgcn.Graph`.

    Args:
        graph: one of

            - a `Graph`, returned unchanged;
            - None, for no edges (`num_nodes` is then required);
            - an `edge_index`, (2, E) integers, or a pair `(edge_index, weight)`;
            - a dense adjacency matrix, (\*batch, N, N), floating point or bool;
            - a sparse matrix of SciPy or PyTorch;
            - an object with an `edge_index`, such as `Data` of PyTorch Geometric; its
              `edge_weight`, or an `edge_attr` with one column, is the weight.

            Tensors and NumPy arrays are accepted.
        num_nodes: N. Required for an edge list with isolated nodes; checked for other formats.
        dtype: dtype of the weights; None keeps it, or takes the default dtype without weights.
        device: device of the graph; None keeps it.

    A directed graph is symmetrised by the larger weight of the two directions, with a warning.
    Duplicate edges are merged (their weights added), with a warning. Self-loops are kept, with a
    warning, since a learned graph has its own.

    Cost: a few sorts of the edges, or one pass over a dense matrix.

    Example:
        >>> as_graph(torch.tensor([[0, 1], [1, 0]]), num_nodes=3)
        SparseGraph(3 × 3, float32, cpu)
        >>> as_graph(None, num_nodes=3).degree()
        tensor([0., 0., 0.])
    """
    notes: list[UserWarning] = []
    converted = _convert(graph, num_nodes, notes)
    for note in notes:
        warnings.warn(note, stacklevel=caller_level())
    if num_nodes is not None and converted.num_nodes != num_nodes:
        raise NodeCountError(
            f"the graph has {converted.num_nodes} nodes but {num_nodes} are needed; pass the graph "
            "of the same nodes, or None for no graph"
        )
    has_dtype = dtype is None or dtype == converted.dtype
    has_device = device is None or torch.device(device) == converted.device
    return converted if has_dtype and has_device else converted.to(device=device, dtype=dtype)


def as_cross_edges(
    graph: Any,  # noqa: ANN401
    num_new: int,
    num_old: int,
) -> tuple[Tensor, Tensor]:  # (2, E), (E,)
    """Convert a bipartite graph of new and old nodes to edges without duplicates, and weights.

    Args:
        graph: a bipartite graph in a format of :func:`as_graph`: an `edge_index`, (2, E) integers,
            of new nodes (first row) and old nodes (second row), with or without weights; a dense or
            sparse matrix, (num_new, num_old); or an object with an `edge_index`.
        num_new: number of new nodes.
        num_old: number of old nodes.

    Cost: a sort of the edges.

    Example:
        >>> as_cross_edges(torch.tensor([[0.0, 2.0, 0.0]]), 1, 3)
        (tensor([[0],
                [1]]), tensor([2.]))
    """
    index, weight, shape = _cross_array(graph) if _is_array(graph) else _read_edges(graph)
    if shape is not None and shape != (num_new, num_old):
        raise ValueError(
            f"a matrix of edges must have a row for each of {num_new} new nodes and a column for "
            f"each of {num_old} old ones, but its shape is {shape}; an edge_index must have an "
            "integer dtype"
        )
    check_cross_edges(index, num_new, num_old)
    index = index.long()
    if num_new == 2 and num_old > 4 and index.shape[1] == num_old and int(index.max()) <= 1:
        raise ValueError(
            f"an array of 2 × {num_old} zeros and ones may be an edge_index or a matrix of edges "
            "from 2 new nodes; of a matrix call .astype(float)"
        )
    if weight is not None:
        check_weight(weight, index)
    unique, place = torch.unique(index, dim=1, return_inverse=True)
    if unique.shape[1] < index.shape[1]:
        warnings.warn(_duplicates(index.shape[1] - unique.shape[1], weight), stacklevel=2)
    if weight is None:
        return unique, torch.ones(unique.shape[1], device=index.device)
    return unique, weight.new_zeros(unique.shape[1]).index_add(0, place, weight)


def _cross_array(graph: Any) -> tuple[Tensor, Tensor | None, tuple[int, ...] | None]:  # noqa: ANN401
    array = _as_tensor(graph)
    check_real(array.dtype, "graph")
    is_matrix = array.dtype.is_floating_point or array.dtype == torch.bool
    if not is_matrix or not array.numel():
        return array, None, None
    index = array.nonzero().mT.contiguous()
    return index, _as_weight(array[tuple(index)]), tuple(array.shape)


def _convert(graph: Any, num_nodes: int | None, notes: list[UserWarning]) -> Graph:  # noqa: ANN401
    if isinstance(graph, Graph):
        return graph
    if graph is None:
        if num_nodes is None:
            raise ValueError("num_nodes is needed for graph=None, but it is None; pass num_nodes")
        return SparseGraph.without_edges(num_nodes)
    if _is_array(graph):
        return _from_array(_as_tensor(graph), num_nodes, notes)
    index, weight, shape = _read_edges(graph)
    if shape is None:
        size = getattr(graph, "num_nodes", None)
        return _from_edges(index, weight, num_nodes if size is None else size, notes)
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ValueError(
            f"a sparse adjacency matrix must be square, but its shape is {shape}; pass a row and a "
            "column for each node"
        )
    return _from_edges(index, weight, shape[0], notes)


def _as_tensor(array: Any) -> Tensor:  # noqa: ANN401
    """Return a tensor; PyTorch refuses arrays of NumPy with negative strides, such as a[::-1]."""
    return torch.as_tensor(np.ascontiguousarray(array) if isinstance(array, np.ndarray) else array)


def _is_array(graph: Any) -> bool:  # noqa: ANN401
    if isinstance(graph, Tensor):
        return graph.layout == torch.strided
    return hasattr(graph, "__array__") and not hasattr(graph, "tocoo")


def _read_edges(
    graph: Any,  # noqa: ANN401
) -> tuple[Tensor, Tensor | None, tuple[int, ...] | None]:
    """Return the edge_index, the weights or None, and the shape of a matrix or None."""
    if isinstance(graph, (tuple, list)) and len(graph) == 2:
        return _as_index(graph[0]), _as_weight(graph[1]), None
    if isinstance(graph, Tensor):
        coo = graph.to_sparse_coo().coalesce()
        return coo.indices(), _as_weight(coo.values()), tuple(graph.shape)
    if hasattr(graph, "tocoo"):
        coo = graph.tocoo()
        index = torch.stack([torch.as_tensor(coo.row), torch.as_tensor(coo.col)]).long()
        return index, _as_weight(coo.data), tuple(graph.shape)
    if hasattr(graph, "edge_index"):
        return *_edges_of_data(graph), None
    raise TypeError(
        "graph must be a Graph, None, an edge_index, a pair (edge_index, weight), a dense or "
        "sparse matrix, or an object with an edge_index, but it is a "
        f"{type(graph).__module__}.{type(graph).__qualname__}"
    )


def _from_array(array: Tensor, num_nodes: int | None, notes: list[UserWarning]) -> Graph:
    check_real(array.dtype, "graph")
    if array.dtype == torch.bool:
        array = array.to(torch.get_default_dtype())
    if not array.dtype.is_floating_point:
        return _from_edges(array.long(), None, num_nodes, notes)
    if array.dim() == 2 and array.shape[0] == 2 != array.shape[1]:
        raise ValueError(
            f"edge_index must have an integer dtype, but it is {array.dtype}; call "
            "edge_index.long()"
        )
    graph = DenseGraph(array)  # checks the shape
    weight = array.detach()
    check_not_negative(weight, "weight")
    if not torch.equal(weight, weight.mT):
        # Asymmetry by rounding alone deserves no warning.
        if not torch.allclose(weight, weight.mT):
            notes.append(UserWarning(f"the given graph is directed: {_LARGER}"))
        graph = DenseGraph(torch.maximum(array, array.mT))
    if bool((weight.diagonal(dim1=-2, dim2=-1) > 0).any()):
        notes.append(UserWarning(_LOOPS))
    return graph


def _from_edges(
    edge_index: Tensor, weight: Tensor | None, num_nodes: int | None, notes: list[UserWarning]
) -> SparseGraph:
    edges = collect_edges(edge_index, weight, num_nodes)
    if edges.num_duplicates > 0:
        notes.append(UserWarning(_duplicates(edges.num_duplicates, weight)))
    mirrored = edges.weight[edges.pattern.reverse]
    if not torch.allclose(edges.weight, mirrored):
        if edges.num_one_way > 0:
            how = f"{edges.num_one_way} edges have one direction only"
            notes.append(OneWayEdgesWarning(f"the given graph is directed ({how}): {_LARGER}"))
        else:
            how = "weights differ between the two directions of an edge"
            notes.append(UserWarning(f"the given graph is directed ({how}): {_LARGER}"))
    if bool((edges.pattern.row == edges.pattern.col).any()):
        notes.append(UserWarning(_LOOPS))
    return SparseGraph.from_pattern(edges.pattern, torch.maximum(edges.weight, mirrored))


def _duplicates(count: int, weight: Tensor | None) -> str:
    how = "merged" if weight is None else "merged, and their weights added"
    return f"{count} edges are listed more than once; they are {how}"


def _edges_of_data(data: Any) -> tuple[Tensor, Tensor | None]:  # noqa: ANN401
    weight = getattr(data, "edge_weight", None)
    if weight is None:
        attribute = getattr(data, "edge_attr", None)
        if isinstance(attribute, Tensor) and attribute.numel() == attribute.shape[0]:
            weight = attribute.flatten()
    index = data.edge_index
    if index is None:
        index = torch.empty(2, 0, dtype=torch.int64, device="cpu")
    return _as_index(index), _as_weight(weight)


def _as_index(edge_index: Any) -> Tensor:  # noqa: ANN401
    index = _as_tensor(edge_index)
    return index.long() if not index.dtype.is_floating_point and index.numel() else index


def _as_weight(weight: Any) -> Tensor | None:  # noqa: ANN401
    if weight is None:
        return None
    tensor = _as_tensor(weight)
    return tensor if tensor.dtype.is_floating_point else tensor.to(torch.get_default_dtype())
