"""Splits drawn by a seed: a few labels of each class, some to select by, the rest to test."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from jlgcn.paper.node_data import NodeData


def random_split(
    data: NodeData,
    *,
    per_class: int = 20,
    num_val: int = 500,
    exclude: Tensor | None = None,  # (M,), int64
    seed: int,
) -> NodeData:
    """Return the data with a split drawn anew among the nodes whose class is known.

    Args:
        data: nodes and their classes; the split they have is not looked at.
        per_class: training nodes of each class; a class with fewer nodes gives half of them.
        num_val: validation nodes, drawn from all classes alike.
        exclude: nodes that get into no part, as the test nodes of a public split must not while a
            method is being developed.
        seed: which ones.

    Example:
        >>> y = torch.arange(60) % 2
        >>> nodes = torch.arange(0)
        >>> data = NodeData("two", torch.ones(60, 1), y, nodes.view(2, 0), nodes, nodes, nodes, "")
        >>> random_split(data, per_class=5, num_val=10, seed=0)
        NodeData(two: 60 nodes, 0 edges, 1 features, 2 classes, 10 / 10 / 40 train / val / test)
    """
    is_free = data.y >= 0
    if exclude is not None:
        is_free[exclude] = False
    order = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(seed))
    order = order[is_free[order]]
    is_train = torch.zeros(data.num_nodes, dtype=torch.bool)
    for label in data.y[order].unique():
        members = order[data.y[order] == label]
        is_train[members[: min(per_class, max(1, len(members) // 2))]] = True
    others = order[~is_train[order]]
    if num_val >= len(others):
        raise ValueError(
            f"{num_val} validation nodes and some to test are needed, but {len(others)} nodes with "
            "a class are left beside the training nodes; lower num_val or per_class"
        )
    train = is_train.nonzero().flatten()
    val, test = others[:num_val].sort().values, others[num_val:].sort().values
    return replace(data, train=train, val=val, test=test)
