"""Exact attribution of a node's class scores to its own features and to each of its edges."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from jlgcn.graphs import SparseGraph


@dataclass(frozen=True, eq=False)
class NodeExplanation:
    """Additive attribution of one node's class scores, on the CPU.

    Scores are relative to the mean over classes, which softmax ignores. `bias`, `own`, `learned`
    and `given` sum to `scores`.

    Attributes:
        scores: class scores, (num_classes,).
        bias: the classifier's bias, equal for all nodes, (num_classes,).
        own: contribution of the node's own features, (num_classes,).
        neighbors: the node's neighbours, (K,), int64.
        learned: contribution of each neighbour over its learned edge, (K, num_classes).
        given: contribution of each neighbour over its given edge, (K, num_classes).
    """

    scores: Tensor
    bias: Tensor
    own: Tensor
    neighbors: Tensor
    learned: Tensor
    given: Tensor

    @classmethod
    def of(
        cls,
        neighbors: Tensor,  # (K,), int64
        *,
        own: Tensor,  # (num_classes,)
        learned: Tensor,  # (K, num_classes)
        given: Tensor,  # (K, num_classes)
        bias: Tensor,  # (num_classes,)
    ) -> NodeExplanation:
        """Return the attribution, relative to the mean over classes, with the scores as its sum."""
        own, learned, given, bias = (
            part - part.mean(-1, keepdim=True) for part in (own, learned, given, bias)
        )
        scores = bias + own + learned.sum(0) + given.sum(0)
        return cls(*(part.cpu() for part in (scores, bias, own, neighbors, learned, given)))

    def __repr__(self) -> str:
        best = int(self.scores.argmax())
        learned, given = (float(part[:, best].sum()) for part in (self.learned, self.given))
        return (
            f"NodeExplanation(class {best} with {float(self.scores[best]):+.3g}: bias "
            f"{float(self.bias[best]):+.3g}, own features {float(self.own[best]):+.3g}, learned "
            f"edges {learned:+.3g}, given edges {given:+.3g})"
        )


def edge_weights(
    graph: SparseGraph | None, node: int, neighbors: Tensor, like: Tensor
) -> Tensor:  # (K, 1)
    """Return the weights of a node's edges to sorted `neighbors`, 0 where there is no edge."""
    found = like.new_zeros(len(neighbors))
    if graph is not None:
        ends, weight = graph.row(node)
        found[torch.searchsorted(neighbors, ends)] = weight.to(found.dtype)
    return found.unsqueeze(-1)
