"""Corruption of data for robustness experiments: random removal of edges and labels."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from jlgcn.paper.node_data import NodeData


def drop_edges(
    edge_index: Tensor,  # (2, E)
    fraction: float,
    *,
    seed: int,
) -> Tensor:  # (2, E')
    """Remove a random fraction of the undirected edges.

    The authors of the paper drop entries of the adjacency matrix, which leaves a directed graph;
    here both directions of an edge are removed.

    Args:
        edge_index (Tensor): edges, in both directions.
        fraction (float in [0, 1]): fraction to remove.
        seed (int): random seed; the same edges are removed on every device.

    Example:
        >>> drop_edges(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), 0.5, seed=0).shape
        torch.Size([2, 2])
    """
    _check_fraction(fraction)
    low, high = edge_index.min(0).values, edge_index.max(0).values
    _, edge = torch.unique(torch.stack([low, high]), dim=1, return_inverse=True)
    num_edges = int(edge.max()) + 1 if edge.numel() else 0
    order = _permutation(num_edges, torch.Generator("cpu").manual_seed(seed), edge.device)
    keep = torch.ones_like(order, dtype=torch.bool)
    keep[order[: round(fraction * num_edges)]] = False
    return edge_index[:, keep[edge]]


def drop_labels(
    train: Tensor,  # (T,)
    y: Tensor,  # (N,)
    fraction: float,
    *,
    seed: int,
) -> Tensor:  # (T',)
    """Remove a random fraction of the training labels, stratified by class.

    At least one label of each class remains.

    Args:
        train (Tensor): training nodes.
        y (Tensor): classes of all nodes.
        fraction (float in [0, 1]): fraction to remove.
        seed (int): random seed; the same labels are removed on every device.

    Example:
        >>> drop_labels(torch.arange(4), torch.tensor([0, 0, 1, 1]), 0.5, seed=0).shape
        torch.Size([2])
    """
    _check_fraction(fraction)
    generator = torch.Generator("cpu").manual_seed(seed)
    kept = []
    for label in y[train].unique():
        members = train[y[train] == label]
        order = _permutation(len(members), generator, train.device)
        kept.append(members[order[: max(1, math.ceil((1 - fraction) * len(members) - 1e-9))]])
    return torch.cat(kept).sort().values if kept else train


def corrupt(data: NodeData, *, edges_missing: float, labels_missing: float, seed: int) -> NodeData:
    """Remove random edges and training labels.

    Args:
        data (NodeData): the data.
        edges_missing (float in [0, 1]): fraction of edges to remove, see :func:`drop_edges`.
        labels_missing (float in [0, 1]): fraction of labels to remove, see :func:`drop_labels`.
        seed (int): random seed.
    """
    if edges_missing > 0:
        data = replace(data, edge_index=drop_edges(data.edge_index, edges_missing, seed=seed))
    if labels_missing > 0:
        data = replace(data, train=drop_labels(data.train, data.y, labels_missing, seed=seed))
    return data


def _permutation(size: int, generator: torch.Generator, device: torch.device) -> Tensor:
    """Draw a permutation on the CPU, so that it is the same for every device."""
    return torch.randperm(size, generator=generator, device="cpu").to(device)


def _check_fraction(fraction: float) -> None:
    if not 0 <= fraction <= 1:
        raise ValueError(
            f"fraction must be between 0 and 1, but it is {fraction}; 0.5 removes half"
        )
