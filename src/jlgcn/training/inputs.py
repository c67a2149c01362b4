"""Features, labels, graph and split of a user, as the tensors that training reads."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor, nn

from jlgcn._validation import (
    check_classes,
    check_finite,
    check_labels,
    check_nodes,
    check_shape,
)
from jlgcn.graphs import Graph, SparseGraph, as_graph
from jlgcn.ops import SparseFeatures
from jlgcn.training.loop import state_hash


def as_module(model: Any, device: torch.device | str | None) -> nn.Module:  # noqa: ANN401
    """Return the network on a device, or raise if it is none that can be trained in place."""
    if not isinstance(model, nn.Module) or next(model.parameters(), None) is None:
        raise TypeError(
            "model must be a torch.nn.Module with parameters, which is trained in place, but it is "
            f"a {type(model).__name__}; pass for example JLGCN(in_channels, 16, out_channels)"
        )
    return model if device is None else model.to(device)


@dataclass(frozen=True, eq=False)
class NodeInputs:
    """Validated inputs of node classification, on one device.

    Attributes:
        x: features, (N, in_channels).
        y: classes, (N,), int64; -1 if unknown.
        graph: given graph.
        train: training nodes, int64.
        val: validation nodes.
        test: test nodes; may be empty, or have no labels.
    """

    x: Tensor | SparseFeatures
    y: Tensor
    graph: Graph
    train: Tensor
    val: Tensor
    test: Tensor

    @property
    def num_nodes(self) -> int:
        """Number of nodes, N."""
        return self.x.shape[0]

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return int(self.y.max()) + 1

    @property
    def has_test_labels(self) -> bool:
        """Whether test nodes have labels."""
        return bool((self.y[self.test] >= 0).any())

    def sha256(self) -> str:
        """Return a hash of all tensors."""
        x, graph = self.x, self.graph
        of_x = [x.crow, x.col, x.value] if isinstance(x, SparseFeatures) else [x]
        of_graph = graph._tensors()
        if isinstance(graph, SparseGraph):
            of_graph = [graph.edge_index, graph.weight]
        tensors = {name: getattr(self, name) for name in ("y", "train", "val", "test")}
        tensors |= {f"x/{index}": tensor for index, tensor in enumerate(of_x)}
        tensors |= {f"graph/{index}": tensor for index, tensor in enumerate(of_graph)}
        return state_hash(tensors)


def as_inputs(
    x: Any,  # noqa: ANN401
    y: Any,  # noqa: ANN401
    graph: Any,  # noqa: ANN401
    *,
    train: Any,  # noqa: ANN401
    val: Any,  # noqa: ANN401
    test: Any,  # noqa: ANN401
    like: Tensor,
) -> NodeInputs:
    """Convert and validate the arguments of :func:`jlgcn.training.fit_nodes`.

    Args:
        x: features, or an object with `x`, `edge_index` and `y` (`Data` of PyTorch Geometric).
        y: classes.
        graph: given graph.
        train: training nodes.
        val: validation nodes.
        test: test nodes.
        like: a parameter of the network, for its device and dtype.

    Example:
        >>> found = as_inputs(np.eye(3), [0, 1, -1], None, train=None, val=[1], test=None,
        ...     like=torch.zeros(1))
        >>> found.train
        tensor([0])
    """
    if hasattr(x, "edge_index"):
        data, x = x, x.x
        y = getattr(data, "y", None) if y is None else y
        graph = data if graph is None else graph
        train = getattr(data, "train_mask", None) if train is None else train
        val = getattr(data, "val_mask", None) if val is None else val
        test = getattr(data, "test_mask", None) if test is None else test
    features = _as_features(x, like)
    num_nodes = features.shape[0]
    labels = as_tensor(y, "y", like.device)
    check_classes(labels, num_nodes)
    parts = {
        name: as_nodes(nodes, name, num_nodes, like.device)
        for name, nodes in (("val", val), ("test", test))
    }
    if train is None:
        train = labels >= 0
        for nodes in parts.values():
            train[nodes] = False
    parts["train"] = as_nodes(train, "train", num_nodes, like.device)
    for one, other in (("train", "val"), ("train", "test"), ("val", "test")):
        num_shared = int(torch.isin(parts[one], parts[other]).sum())
        if num_shared > 0:
            warnings.warn(
                f"{num_shared} nodes are in both {one} and {other}, so that the accuracy on "
                f"{other} is too high; remove them from {one}",
                UserWarning,
                stacklevel=3,
            )
    for name in ("train", "val"):
        check_labels(labels, parts[name], num_nodes, name=name)
    given = as_graph(graph, num_nodes, dtype=like.dtype, device=like.device)
    inputs = NodeInputs(features, labels.long(), given, **parts)
    if inputs.has_test_labels:
        check_labels(labels, inputs.test, num_nodes, name="test")
    return inputs


def _as_features(x: Any, like: Tensor) -> Tensor | SparseFeatures:  # noqa: ANN401
    """Convert features to the device of a network, and floating-point ones to its dtype."""
    if scipy.sparse.issparse(x):
        x = SparseFeatures.from_scipy(x)
    if isinstance(x, SparseFeatures):
        check_shape(x.shape, "x")
        check_finite(x.value)
        return x.to(like.device).map(lambda value: value.to(like.dtype))
    tensor = as_tensor(x, "x", like.device)
    check_shape(tensor.shape, "x")
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    check_finite(tensor)
    return tensor.to(like.dtype) if tensor.dtype.is_floating_point else tensor


def as_nodes(
    nodes: Any,  # noqa: ANN401
    name: str,
    num_nodes: int,
    device: torch.device,
    *,
    unit: str = "node",
) -> Tensor:
    """Convert indices, or a mask of all nodes, to indices; None to none.

    Args:
        nodes: indices or mask.
        name: name of the argument in error messages.
        num_nodes: number of nodes.
        device: device of the indices.
        unit: what is split, in error messages.
    """
    if nodes is None:
        return torch.empty(0, dtype=torch.int64, device=device)
    found = as_tensor(nodes, name, device)
    if found.dtype == torch.bool and found.shape == (num_nodes,):
        return found.nonzero().flatten()
    is_index = found.dtype != torch.bool and not found.dtype.is_floating_point
    remedy = ""
    if found.dim() != 1:
        remedy = "of several masks pass one column"
    elif found.dtype == torch.bool:
        remedy = f"give it an entry for each {unit}"
    elif len(found) == num_nodes > 2 and bool(((found == 0) | (found == 1)).all()):
        remedy = "of a mask of zeros and ones call .bool()"
    elif found.numel() and not is_index:
        remedy = "pass integers or a mask"
    if remedy:
        raise ValueError(
            f"{name} must be a vector of {unit} indices, or a mask of {num_nodes} {unit}s, but it "
            f"is {found.dtype} of shape {tuple(found.shape)}; {remedy}"
        )
    found = found.long()
    check_nodes(found, num_nodes, name=name)
    return found


def as_tensor(values: Any, name: str, device: torch.device) -> Tensor:  # noqa: ANN401
    """Convert a tensor, or an array of numbers."""
    if isinstance(values, Tensor):
        return values.to(device)
    if values is None:
        raise ValueError(f"{name} is needed, but it is None; pass a tensor or an array")
    array = np.asarray(values)
    if array.dtype.kind not in "biufc":
        raise TypeError(
            f"{name} must be of numbers, but it is a {type(values).__name__} of {array.dtype}; "
            "convert it to a tensor or array of numbers first"
        )
    return torch.tensor(np.ascontiguousarray(array), device=device)
