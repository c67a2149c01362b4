"""Input validation shared by readers, graphs, networks and the estimator.

Each error names the argument, the first wrong entry and the fix. No check costs more than one pass
over its input.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from jlgcn._devices import is_check_due
from jlgcn._memory import check_memory

#: The largest integer up to which float32 represents all integers.
LARGEST_WHOLE = 2**24

_FILL_IN = "impute or drop such rows; in training, a smaller learning rate may help"


def caller_level() -> int:
    """Return the `stacklevel` at which a warning of the calling function names the user's line."""
    frame: FrameType | None = inspect.currentframe()
    level = -1  # of this function's own frame
    while frame is not None:
        level += 1
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package not in ("jlgcn", "torch", "torch_geometric"):
            return level
        frame = frame.f_back
    return level


def as_input(
    x: Tensor,  # (*batch, N, in_channels)
    parameter: Tensor,
    in_channels: int,
    *,
    name: str = "x",
) -> Tensor:  # (*batch, N, in_channels)
    """Validate features and convert them to the dense layout and dtype of a network.

    Args:
        x: features of any real dtype, dense or sparse.
        parameter: a parameter of the network, for its device and dtype.
        in_channels: number of input features of the network.
        name: name of `x` in error messages.
    """
    if not isinstance(x, Tensor):
        raise TypeError(
            f"{name} must be a tensor, but it is a {type(x).__name__}; use torch.as_tensor"
        )
    check_real(x.dtype, name)
    check_shape(x.shape, name)
    if x.shape[-1] != in_channels:
        raise ValueError(
            f"{name} has {x.shape[-1]} features but the network was made for {in_channels}; pass "
            "the same features, or make a network for these"
        )
    if x.device != parameter.device:
        raise ValueError(
            f"{name} is on {x.device} but the parameters are on {parameter.device}; call "
            f'{name}.to("{parameter.device}"), or move the network'
        )
    if x.layout != torch.strided:
        needed = x.shape.numel() * parameter.element_size()
        check_memory(needed, x.device, f"{name} with its zeros", "use JLGCNClassifier, which")
        x = x.to_dense()
    if not x.dtype.is_floating_point:
        _warn_of_large_integers(x, name)
    return x.to(parameter.dtype)


def check_real(dtype: torch.dtype, name: str) -> None:
    """Raise if a dtype is complex."""
    if dtype.is_complex:
        raise ValueError(
            f"{name} must be of real numbers, but it is {dtype}; pass real and imaginary parts as "
            "separate columns"
        )


def check_shape(shape: Sequence[int], name: str) -> None:
    """Raise unless features are a matrix with at least one row and one column."""
    if len(shape) < 2:
        raise ValueError(
            f"{name} must have the shape (nodes, features), but it is {tuple(shape)}; "
            f"use {name}.reshape(1, -1) for one node"
        )
    if torch.compiler.is_compiling():  # comparing symbolic sizes would specialise them
        return
    for place, what in ((-2, "nodes"), (-1, "features")):
        if shape[place] == 0:
            raise ValueError(
                f"{name} has 0 {what}, its shape is {tuple(shape)}; pass at least one of each"
            )


def _warn_of_large_integers(x: Tensor, name: str) -> None:
    if x.dtype == torch.bool or not is_check_due(x.device, "large integers"):
        return
    low, high = (int(bound) for bound in x.aminmax())
    if max(-low, high) > LARGEST_WHOLE:
        warn_of_large_integers(name)


def warn_of_large_integers(name: str) -> None:
    """Warn that integers are rounded to float32."""
    warnings.warn(
        f"{name} has integers above 2²⁴, which float32 rounds; subtract a constant, or drop "
        "columns that are ids",
        UserWarning,
        stacklevel=3,
    )


def check_finite(x: Tensor, name: str = "x", remedy: str = _FILL_IN) -> None:
    """Raise if an entry is NaN or infinite, and name the first such entry.

    Args:
        x: any tensor.
        name: its name in the error message.
        remedy: the fix in the error message.
    """
    if not x.dtype.is_floating_point or x.numel() == 0 or torch.compiler.is_compiling():
        return
    if _is_finite(x):
        return
    first = tuple((~x.isfinite()).nonzero()[0].tolist())
    raise not_finite(name, first, x[first].item(), remedy)


def _is_finite(x: Tensor) -> bool:
    # One pass without a copy: NaN and infinity always show in the extremes.
    low, high = x.detach().aminmax()
    return bool(low.isfinite() & high.isfinite())


def not_finite(name: str, place: tuple[int, ...], value: float, remedy: str) -> ValueError:
    """Return the error for an entry that is NaN or infinite."""
    return ValueError(
        f"{name} must be finite, without NaN or inf, but entry {place} is {value}; {remedy}"
    )


def check_projection(
    z: Tensor,  # (*batch, N, rank)
    x: Tensor,  # (*batch, N, in_channels)
) -> None:
    """Raise if projected features are not finite, because x is not, or because it overflows."""
    if not is_check_due(z.device, "projection") or _is_finite(z):
        return
    check_finite(x)
    first = tuple((~z.detach().isfinite()).any(-1).nonzero()[0].tolist())
    raise ValueError(
        f"x must be small enough for the metric, but it overflows at node {first}; scale the "
        "features, for example with jlgcn.closed_form.FeatureScaler"
    )


def check_edge_index(edge_index: Tensor, num_nodes: int) -> None:
    """Raise unless `edge_index` is (2, E), int64, with valid node indices."""
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        hint = "; pass edge_index.t()" if edge_index.dim() == 2 and edge_index.shape[1] == 2 else ""
        raise ValueError(
            f"edge_index must have the shape (2, edges), but it is {tuple(edge_index.shape)}{hint}"
        )
    if edge_index.dtype != torch.int64:
        raise ValueError(
            f"edge_index must be int64, but it is {edge_index.dtype}; call edge_index.long()"
        )
    if edge_index.numel() == 0:
        return
    lowest, highest = (int(bound) for bound in edge_index.aminmax())
    if lowest < 0 or highest >= num_nodes:
        is_bad = ((edge_index < 0) | (edge_index >= num_nodes)).any(0)
        first = int(is_bad.nonzero()[0])
        raise ValueError(
            f"edge_index must lie between 0 and {num_nodes - 1}, the nodes there are, but edge "
            f"{first} is {tuple(edge_index[:, first].tolist())}; number the nodes from 0 and pass "
            "num_nodes if some have no edge"
        )


def check_batch(batch: Any, num_nodes: int) -> None:  # noqa: ANN401
    """Raise unless `batch` has the graph of each node, ascending, as in PyG's `Batch`."""
    what = ""
    if not isinstance(batch, Tensor):
        what = f"it is a {type(batch).__name__}"
    elif batch.shape != (num_nodes,):
        what = f"its shape is {tuple(batch.shape)}"
    elif batch.dtype.is_floating_point or batch.dtype == torch.bool:
        what = f"it is {batch.dtype}"
    elif bool((is_less := batch[1:] < batch[:-1]).any()):
        what = f"it decreases at node {int(is_less.nonzero()[0]) + 1}"
    elif num_nodes > 0 and int(batch[0]) < 0:
        what = f"it begins with {int(batch[0])}"
    if what:
        raise ValueError(
            f"batch must have one ascending integer for each of {num_nodes} nodes, but {what}; "
            "pass data.batch of torch_geometric.data.Batch"
        )


def check_one_graph(
    data: Any,  # noqa: ANN401
    remedy: str = "pass the graphs of data.to_data_list() one by one",
) -> None:
    """Raise if an object is PyG's `Batch` of several graphs, between which edges would be learned.

    Args:
        data: anything.
        remedy: the fix in the error message.
    """
    batch = getattr(data, "batch", None)
    if isinstance(batch, Tensor) and batch.numel() and int(batch.max()) > 0:
        raise ValueError(
            f"data is a Batch of {int(batch.max()) + 1} graphs, which learned edges would join; "
            f"{remedy}"
        )


def check_cross_edges(edges: Tensor, num_new: int, num_old: int) -> None:
    """Raise unless `edges`, (2, E), are pairs of a new and an old node."""
    if edges.dim() != 2 or edges.shape[0] != 2:
        raise ValueError(
            f"edges must have the shape (2, edges), but it is {tuple(edges.shape)}; the first row "
            "counts new nodes, the second old ones"
        )
    if edges.dtype.is_floating_point and edges.numel():
        raise ValueError(f"edges must have an integer dtype, but it is {edges.dtype}; call .long()")
    for what, nodes, size in (("new", edges[0], num_new), ("old", edges[1], num_old)):
        if nodes.numel() and not 0 <= int(nodes.min()) <= int(nodes.max()) < size:
            raise ValueError(
                f"edges must name {what} nodes from 0 to {size - 1}, but they name "
                f"{int(nodes.min())} to {int(nodes.max())}; the first row of edges counts new "
                "nodes, the second old ones"
            )


def check_weight(weight: Tensor, edge_index: Tensor) -> None:
    """Raise unless there is a finite, non-negative weight for each edge."""
    if weight.shape != edge_index.shape[1:]:
        raise ValueError(
            f"weight must have one entry for each of {edge_index.shape[1]} edges, but its shape is "
            f"{tuple(weight.shape)}; pass a vector of weights in the order of edge_index"
        )
    if not weight.dtype.is_floating_point:
        raise ValueError(f"weight must be floating point, but it is {weight.dtype}; call .float()")
    if weight.device != edge_index.device:
        raise ValueError(
            f"weight is on {weight.device} but edge_index is on {edge_index.device}; call "
            f'weight.to("{edge_index.device}")'
        )
    check_not_negative(weight, "weight")


def check_not_negative(weight: Tensor, name: str) -> None:
    """Raise if a weight is NaN, infinite or negative, and name the first such weight."""
    weight = weight.detach()
    is_bad = ~(weight >= 0) | weight.isinf()
    if bool(is_bad.any()):
        first = tuple(is_bad.nonzero()[0].tolist())
        place = str(first[0]) if len(first) == 1 else str(first)
        raise ValueError(
            f"{name} must be finite and not negative, but {name} {place} is "
            f"{weight[first].item()}; drop such edges, or map the weights to [0, ∞) first"
        )


def check_classes(y: Tensor, num_nodes: int) -> None:
    """Raise unless `y` has an integer for each node."""
    if y.shape != (num_nodes,):
        remedy = "pass -1 for unlabelled nodes"
        if y.dim() == 2 and y.shape[0] == num_nodes:
            is_column = y.shape[1] == 1
            remedy = "call y.squeeze(1)" if is_column else "if it is one-hot, call y.argmax(1)"
        raise ValueError(
            f"y must have a class for each of {num_nodes} nodes, but its shape is "
            f"{tuple(y.shape)}; {remedy}"
        )
    if y.dtype.is_floating_point or y.dtype.is_complex:
        raise ValueError(
            f"y must be of integers, but it is {y.dtype}, which may hide NaN; pass -1 for "
            "unlabelled nodes, and call y.long()"
        )


def check_nodes(nodes: Tensor, num_nodes: int, *, name: str) -> None:
    """Raise unless all entries are indices of nodes."""
    if nodes.numel() and not 0 <= int(nodes.min()) <= int(nodes.max()) < num_nodes:
        first = int(((nodes < 0) | (nodes >= num_nodes)).nonzero()[0])
        raise ValueError(
            f"{name} must name nodes from 0 to {num_nodes - 1}, but entry {first} is "
            f"{int(nodes[first])}; number the nodes from 0"
        )


def check_labels(y: Tensor, nodes: Tensor, num_nodes: int, *, name: str = "train") -> None:
    """Raise unless all given nodes are labelled, with class indices from 0.

    Args:
        y: class indices of all nodes, (N,), integers; -1 for unlabelled.
        nodes: indices of the nodes whose labels are used.
        num_nodes: N.
        name: name of `nodes` in error messages.
    """
    check_classes(y, num_nodes)
    if nodes.numel() == 0:
        raise ValueError(f"{name} must name nodes, but it is empty; name some of each class")
    check_nodes(nodes, num_nodes, name=name)
    if bool((y[nodes] < 0).any()):
        first = int(nodes[int((y[nodes] < 0).nonzero()[0])])
        raise ValueError(
            f"y must be 0 or more at the nodes of {name}, but y[{first}] is {int(y[first])}; "
            f"remove this node from {name}, or label it"
        )


def warn_of_absent_classes(
    y: Tensor, train: Tensor, num_classes: int, *, unit: str = "node"
) -> None:
    """Warn of classes without a training label; `unit` is what has a label."""
    count = torch.bincount(y[train], minlength=num_classes)
    if bool((count == 0).any()):
        first = int((count == 0).nonzero()[0])
        warnings.warn(
            f"no {unit} of train has class {first}; it will not be predicted. Label some {unit}s "
            "of every class",
            UserWarning,
            stacklevel=3,
        )
