"""Graphs, classes and split of a user, as the batches that training reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, Dataset

from jlgcn._validation import (
    check_edge_index,
    check_finite,
    check_nodes,
    check_shape,
    warn_of_absent_classes,
)
from jlgcn.training.graph_batches import (
    Batching,
    CloudSource,
    GraphSource,
    ListSource,
    LoaderSource,
    read_graph,
)
from jlgcn.training.graph_labels import read_labels
from jlgcn.training.inputs import as_nodes, as_tensor


def as_source(
    x: Any,  # noqa: ANN401
    y: Any,  # noqa: ANN401
    *,
    train: Any,  # noqa: ANN401
    val: Any,  # noqa: ANN401
    test: Any,  # noqa: ANN401
    how: Batching,
    like: Tensor,
) -> GraphSource:
    """Convert and validate the arguments of :func:`jlgcn.training.fit_graphs`.

    Args:
        x: clouds, graphs, or None if `train`, `val` and `test` are graphs or loaders themselves.
        y: classes.
        train: training graphs.
        val: validation graphs.
        test: test graphs.
        how: how they become batches.
        like: a parameter of the network, for its device and dtype.

    Example:
        >>> how, like = Batching(2), torch.zeros(1)
        >>> clouds = np.zeros((4, 5, 3)), [0, 1, 0, 1]
        >>> found = as_source(*clouds, train=None, val=[3], test=None, how=how, like=like)
        >>> [batch.y.shape for batch in found.train()]
        [torch.Size([2])]
    """
    parts = {"train": train, "val": val, "test": test}
    if x is None:
        return _of_parts(y, parts, how, like)
    if any(isinstance(part, DataLoader) for part in parts.values()):
        raise TypeError(
            "x must be None if train and val are loaders, which have their own graphs, but it is "
            f"a {type(x).__name__}; leave x out"
        )
    if hasattr(x, "to_data_list"):  # a Batch of PyTorch Geometric
        x = x.to_data_list()
    is_array = isinstance(x, Tensor) or (isinstance(x, np.ndarray) and x.dtype != object)
    if not is_array:
        return _of_graphs(_as_sequence(x, "x"), y, parts, how, like)
    points = as_tensor(x, "x", like.device)
    if points.dim() != 3:
        raise ValueError(
            "x must have the shape (clouds, points, features), but it is "
            f"{tuple(points.shape)}; pass a list for clouds of different sizes, or use fit_nodes "
            "for the nodes of one graph"
        )
    check_shape(points.shape, "x")
    check_finite(points, "x")
    points = points.to(like.dtype) if points.dtype.is_floating_point else points
    if how.augments and points.shape[-1] != 3:
        raise ValueError(
            "augments=True scales and shifts three coordinates, but x has "
            f"{points.shape[-1]} features; set augments=False"
        )
    labels = read_labels(as_tensor(y, "y", like.device), len(points))
    return CloudSource(points, labels, _split(labels, parts), how)


def _of_parts(
    y: Any,  # noqa: ANN401
    parts: dict[str, Any],
    how: Batching,
    like: Tensor,
) -> GraphSource:
    given = {name: part for name, part in parts.items() if part is not None}
    for name in ("train", "val"):
        if name not in given:
            raise ValueError(
                f"{name} is needed, but it is None; pass x and y, or loaders or lists of graphs as "
                "train and val"
            )
    if y is not None:
        raise ValueError("y must be None without x; let every graph have its own y")
    loaders = {n: part for n, part in given.items() if isinstance(part, DataLoader)}
    if not loaders:
        sequences = [_as_sequence(part, name) for name, part in given.items()]
        ends = np.cumsum([0, *map(len, sequences)]).tolist()
        index = {name: torch.arange(*ends[i : i + 2], device="cpu") for i, name in enumerate(given)}
        joined: Any = ConcatDataset(sequences)  # type: ignore[arg-type]  # of any sequence
        return _of_graphs(joined, None, {"test": None} | index, how, like)
    if loaders.keys() != given.keys():
        (name,) = list(given.keys() - loaders.keys())[:1]
        raise TypeError(
            f"{name} must be a loader as {next(iter(loaders))} is, but it is a "
            f"{type(given[name]).__name__}; pass loaders for all of them, or for none"
        )
    _refuse_points(how, "a loader")
    return LoaderSource(loaders, like)


def _of_graphs(
    graphs: Sequence[Any],
    y: Any,  # noqa: ANN401
    parts: dict[str, Any],
    how: Batching,
    like: Tensor,
) -> ListSource:
    _refuse_points(how, "a list of graphs")
    found: list[Tensor] = []
    in_channels: int | None = None
    with torch.random.fork_rng(devices=[]):  # of random transforms
        for i in range(len(graphs)):
            graph = read_graph(graphs[i])
            name = f"x of graph {i}"
            check_shape(graph.x.shape, name)
            check_finite(graph.x, name)
            in_channels = graph.x.shape[-1] if in_channels is None else in_channels
            if graph.x.dim() != 2 or graph.x.shape[1] != in_channels:
                raise ValueError(
                    f"{name} must have the shape (nodes, {in_channels}), as that of graph 0, but "
                    f"it is {tuple(graph.x.shape)}; give all graphs the same features"
                )
            if graph.edge_index is not None:
                check_edge_index(graph.edge_index, len(graph.x))
            if y is None:
                found.append(read_labels(_one_label(graphs[i], i), 1))
    cpu = torch.device("cpu")
    labels = torch.cat(found) if y is None else read_labels(as_tensor(y, "y", cpu), len(graphs))
    return ListSource(graphs, labels.cpu(), _split(labels.cpu(), parts), how, like)


def _one_label(graph: Any, place: int) -> Tensor:  # noqa: ANN401
    y = getattr(graph, "y", None)
    if y is None:
        raise ValueError(f"graph {place} has no class; set its y, or pass y with a class for each")
    return torch.as_tensor(y).reshape(-1)


def _as_sequence(graphs: Any, name: str) -> Sequence[Any]:  # noqa: ANN401
    is_set = isinstance(graphs, (list, tuple, Dataset)) and hasattr(graphs, "__len__")
    if hasattr(graphs, "to_data_list"):
        return list(graphs.to_data_list())
    if not is_set:
        raise TypeError(
            f"{name} must be clouds (B, N, C), or a list, data set or loader of graphs, but it is "
            f"a {type(graphs).__name__}; pass a list, or use fit_nodes for the nodes of one graph"
        )
    if len(graphs) == 0:
        raise ValueError(f"{name} has no graphs; pass at least two of each class")
    return graphs  # type: ignore[no-any-return]


def _refuse_points(how: Batching, what: str) -> None:
    for name, value in (("num_points", how.num_points), ("augments", how.augments)):
        if value:
            raise ValueError(
                f"{name} needs clouds of one size, (B, N, 3), but the data are {what}; transform "
                "the graphs themselves (torch_geometric.transforms), or pass a tensor"
            )


def _split(y: Tensor, parts: dict[str, Any]) -> dict[str, Tensor]:
    """Return indices of training, validation and test graphs, validated."""
    found = {
        name: as_nodes(parts[name], name, len(y), y.device, unit="graph")
        for name in ("val", "test")
    }
    train = parts["train"]
    if train is None:
        train = y >= 0
        for index in found.values():
            train[index] = False
    found = {"train": as_nodes(train, "train", len(y), y.device, unit="graph")} | found
    for name, index in found.items():
        check_nodes(index, len(y), name=name)
        labelled = y[index] >= 0
        if name == "test" and not bool(labelled.any()):
            continue
        if len(index) == 0:
            raise ValueError(f"{name} must name graphs, but it is empty; name some of each class")
        if not bool(labelled.all()):
            first = int(index[int((~labelled).nonzero()[0])])
            raise ValueError(
                f"y must be 0 or more at the graphs of {name}, but y[{first}] is {int(y[first])}; "
                f"remove this graph from {name}, or label it"
            )
    warn_of_absent_classes(y, found["train"], int(y.max()) + 1, unit="graph")
    return found
