"""Novelty: which rows may be of a class without any label."""

from __future__ import annotations

import torch
from torch import Tensor

from jlgcn.graphs import SparseGraph, personalized_pagerank

# Walks return to a label with this probability at each step, the best of 0.02 to 0.5 on development
# data, by little.
_RESTART = 0.2
_TOLERANCE = 1e-3
_COLUMNS = 64  # that are diffused at a time

_LEAST_MASS = 1e-12


def novelty(
    graph: SparseGraph,
    probability: Tensor,  # (N, C)
    train: Tensor,  # (M,), int64
    labels: Tensor,  # (M,), int64
) -> Tensor:  # (N,), float64
    r"""Return how rarely a walk from each node ends at a label of the class predicted for it.

    A random walk from node i ends with probability α at each step (personalized PageRank), at
    node j with probability :math:`\pi_{ij} = \alpha [(I - (1 - \alpha) \Lambda^{-1} A)^{-1}]_{ij}`.
    Each label stands for as many nodes as are predicted per label of its class:

    .. math:: s_i = -\log \sum_c p_{ic} \, \frac{\sum_k p_{kc}}{|L_c|} \sum_{j \in L_c} \pi_{ij}

    A cluster without a label gets a high score, whatever class its nodes are predicted as, since
    most walks end before they leave it. 0 is the score of the average number of labels met, and
    nodes near labels have negative ones.

    Args:
        graph: A, the graph of all nodes with self-loops.
        probability: p, class probabilities of all nodes.
        train: labelled nodes, the union of the L_c.
        labels: their classes.

    Cost: a diffusion of C columns, about a dozen products with the graph.
    """
    num_classes = probability.shape[1]
    share = probability.double().sum(0) / torch.bincount(labels, minlength=num_classes).clamp(min=1)
    mass = torch.zeros_like(probability)
    mass[train, labels] = share[labels].to(mass.dtype)
    # Walks run along Λ⁻¹A, which is similar to the symmetric Λ^(-1/2) A Λ^(-1/2).
    root, walk = graph.degree().sqrt().unsqueeze(-1), graph.normalized()
    ends = [
        personalized_pagerank(walk, columns.contiguous(), _RESTART, tolerance=_TOLERANCE)
        for columns in (root * mass).split(_COLUMNS, dim=-1)
    ]
    expected = (probability * torch.cat(ends, -1) / root).sum(-1).double()
    return -expected.clamp(min=_LEAST_MASS).log()
