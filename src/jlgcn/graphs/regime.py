"""Exact or nearest neighbours: what a learned graph of a size takes, before it is allocated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from jlgcn._memory import available_bytes

#: Up to this many nodes graphs are learned exactly, on either device; time grows as their square.
MAX_EXACT_NODES = {"cpu": 5_000, "cuda": 50_000}


#: What a training step was measured to hold for each node, in bytes, and on what; a test compares
#: it with the records. With nearest neighbours it was measured with so many of them.
EXACT_BYTES = 4.1e3
KNN_BYTES = 3.7e3
KNN_NEIGHBORS = 16
MACHINE = "2 cores of an Intel Xeon, one thread, no GPU"


@dataclass(frozen=True)
class Plan:
    """What a learned graph of a size asks for.

    Attributes:
        regime: "exact" or "knn".
        memory: bytes of each part.
        available: bytes there are.
    """

    regime: Literal["exact", "knn"]
    memory: dict[str, float]
    available: float

    @property
    def bytes(self) -> float:
        """All parts of the memory."""
        return sum(self.memory.values())

    @property
    def fits(self) -> bool:
        """Whether it can be held."""
        return self.bytes <= self.available

    def check(self) -> None:
        """Raise if it does not fit, and say what would."""
        if not self.fits:
            largest = max(self.memory, key=lambda name: self.memory[name])
            raise MemoryError(
                f"{self.regime} needs about {self.bytes / 2**30:.1f} GiB, most of it for "
                f"{largest}, but {self.available / 2**30:.1f} are available; {_REMEDIES[largest]}"
            )


_REMEDIES = {
    "points": "set a smaller rank, or free some memory first",
    "graphs": 'set backend="knn"',
    "neighbours": "set a smaller num_neighbors, or take JLGCNClassifier",
}


def whole_graph_regime(num_nodes: int, device: torch.device | str) -> Literal["exact", "knn"]:
    """Return how the graph of so many nodes is learned in one piece.

    Example:
        >>> whole_graph_regime(2_708, "cpu")
        'exact'
    """
    limit = MAX_EXACT_NODES.get(torch.device(device).type, MAX_EXACT_NODES["cpu"])
    return "exact" if num_nodes <= limit else "knn"


def plan_whole_graph(
    num_nodes: int, *, num_neighbors: int = 16, device: torch.device | str = "cpu"
) -> Plan:
    r"""Estimate what a step on the whole graph asks for, beside what is loaded already.

    Of the regime that ``backend="auto"`` chooses: exact graphs up to :data:`MAX_EXACT_NODES`, above
    them nearest neighbours. Memory is linear in the nodes for both, and in the neighbours. It was
    measured on one machine and one network, so it is advice: a graph learner that does not fit
    by this estimate logs a warning, and refuses only what :func:`least_whole_graph` counts.

    Args:
        num_nodes: N.
        num_neighbors: neighbours of a node, where they are few.
        device: where the graph would be.

    Cost: none; nothing is allocated.

    Example:
        >>> plan_whole_graph(2_708).regime
        'exact'
        >>> plan_whole_graph(60_506).regime
        'knn'
    """
    room = float(available_bytes(device))
    if whole_graph_regime(num_nodes, device) == "exact":
        return Plan("exact", {"graphs": EXACT_BYTES * num_nodes}, room)
    share = num_neighbors / KNN_NEIGHBORS
    return Plan("knn", {"neighbours": KNN_BYTES * share * num_nodes}, room)


def least_whole_graph(
    num_nodes: int,
    rank: int,
    *,
    num_neighbors: int = 16,
    itemsize: int = 4,
    device: torch.device | str = "cpu",
) -> Plan:
    """Count the bytes without which no machine can hold a learned graph and its gradient.

    They follow from the shapes of the tensors alone: the points and their gradient, and, for
    nearest neighbours, at least `num_neighbors` edges of a node, each with three indices, a weight
    and its gradient. A step takes several times as much (:func:`plan_whole_graph`).

    Args:
        num_nodes: N.
        rank: numbers of a point.
        num_neighbors: neighbours of a node, where they are few.
        itemsize: bytes of a number.
        device: where the graph would be.

    Cost: none; nothing is allocated.

    Example:
        >>> least_whole_graph(1_000, 16).bytes
        128000
    """
    regime = whole_graph_regime(num_nodes, device)
    memory: dict[str, float] = {"points": 2 * num_nodes * rank * itemsize}
    if regime == "knn":
        num_edges = num_nodes * min(num_neighbors, num_nodes - 1)
        memory["neighbours"] = num_edges * (3 * 8 + 2 * itemsize)
    return Plan(regime, memory, float(available_bytes(device)))


def dense_bytes(shape: Sequence[int], itemsize: int) -> int:
    """Return what ``backend="dense"`` takes at its peak, with gradients.

    Args:
        shape: of the nodes, the batch before it if any.
        itemsize: bytes of a weight.

    Example:
        >>> dense_bytes((1000,), 4)
        16000000
    """
    # Distances, weights, the gradient of the weights and that of the distances.
    return 4 * math.prod(shape) * shape[-1] * itemsize
