"""Why a node is of its class: scores taken apart exactly, by edges and own features."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class NodeExplanation:
    """What the scores of one node's classes are made of.

    All scores are against the mean of the classes, which is all that a probability depends on, and
    `bias`, `own`, `learned` and `given` sum to `scores`.

    Attributes:
        scores: of the classes, (num_classes,).
        bias: what any node has, (num_classes,).
        own: what the node's own features add, (num_classes,).
        neighbors: nodes that it is joined with, (K,), int64.
        learned: what each of them adds over its learned edge, (K, num_classes).
        given: what each of them adds over its given edge, (K, num_classes).
    """

    scores: Tensor
    bias: Tensor
    own: Tensor
    neighbors: Tensor
    learned: Tensor
    given: Tensor

    def __repr__(self) -> str:
        best = int(self.scores.argmax())
        learned, given = (float(part[:, best].sum()) for part in (self.learned, self.given))
        return (
            f"NodeExplanation(class {best} with {float(self.scores[best]):+.3g}: bias "
            f"{float(self.bias[best]):+.3g}, own features {float(self.own[best]):+.3g}, learned "
            f"edges {learned:+.3g}, given edges {given:+.3g})"
        )
