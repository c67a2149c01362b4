"""Classes of graphs, as a user or a loader gives them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def read_labels(y: Any, num_graphs: int, *, part: str | None = None) -> Tensor:  # noqa: ANN401
    """Return the class of each graph as a vector, or raise.

    Args:
        y: the classes, -1 if unknown.
        num_graphs: number of graphs.
        part: "train", "val" or "test" if all graphs are of one part; graphs of "train" and "val"
            need a label.

    Example:
        >>> read_labels([[1], [-1]], 2)
        tensor([ 1, -1])
    """
    if y is None:
        raise ValueError("each graph needs a class, but y is None; set y of every graph")
    labels = torch.as_tensor(y)
    if labels.shape not in ((num_graphs,), (num_graphs, 1)):
        raise ValueError(
            f"y must have a class for each of {num_graphs} graphs, but its shape is "
            f"{tuple(labels.shape)}; pass -1 for graphs without a label"
        )
    if labels.dtype.is_floating_point or labels.dtype.is_complex:
        raise ValueError(
            f"y must be of integers, but it is {labels.dtype}, which may hide NaN; pass -1 for "
            "graphs without a label, and call y.long()"
        )
    labels = labels.flatten().long()
    if part in ("train", "val") and bool((labels < 0).any()):
        first = int((labels < 0).nonzero()[0])
        raise ValueError(
            f"y must be 0 or more at the graphs of {part}, but entry {first} of a batch is "
            f"{int(labels[first])}; remove this graph from {part}, or label it"
        )
    return labels
