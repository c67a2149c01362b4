"""Exact or nearest neighbours: what a learned graph of a size takes, before it is allocated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from jlgcn._memory import available_bytes

_GIB = 2**30


#: Up to this many nodes graphs are learned exactly, on either device; time grows as their square.
MAX_EXACT_NODES = {"cpu": 5_000, "cuda": 50_000}


@dataclass(frozen=True)
class Calibration:
    """What one machine was measured to need; `tests/test_plan.py` compares it with the records.

    Attributes:
        machine: what it was measured on.
        exact_step: seconds of a training step with exact graphs for each pair of nodes.
        exact_bytes: bytes of such a step for each node.
        knn_bytes: bytes of a step on the whole graph for each node, with nearest neighbours.
        knn_neighbors: neighbours of a node in that step.
        exact_columns: numbers of a node that a step gathers from other processes.
        base_bytes: a process that has loaded everything.
    """

    machine: str = "2 cores of an Intel Xeon, one thread, no GPU"
    exact_step: float = 1.2e-7
    exact_bytes: float = 4.1e3
    knn_bytes: float = 3.7e3
    knn_neighbors: int = 16
    exact_columns: int = 117
    base_bytes: float = 0.9e9


CALIBRATION = Calibration()


@dataclass(frozen=True)
class Plan:
    """What a size asks for; see :func:`plan`.

    Attributes:
        regime: "exact", "exact over processes" or "knn".
        memory: bytes of each part, in each process.
        seconds: of each stage.
        wire: bytes that each process receives in a step.
        available: bytes there are for each process.
        machine: what it was calibrated on.
    """

    regime: str
    memory: dict[str, float]
    seconds: dict[str, float]
    wire: float
    available: float
    machine: str

    @property
    def bytes(self) -> float:
        """All parts of the memory of a process."""
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
                f"{self.regime} needs about {self.bytes / _GIB:.1f} GiB in each process, most of "
                f"it for {largest}, but {self.available / _GIB:.1f} GiB are available; "
                f"{_REMEDIES[largest]}"
            )


_REMEDIES = {
    "features": "keep fewer of them (jlgcn.ops.principal_directions)",
    "libraries": "free some memory first",
    "points": "set a smaller rank, or free some memory first",
    "graphs": 'set backend="knn"',
    "neighbours": "set a smaller num_neighbors, or take JLGCNClassifier",
    "known edges": "pass fewer edges, or use a machine with more memory",
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
    c = CALIBRATION
    room = float(available_bytes(device))
    if whole_graph_regime(num_nodes, device) == "exact":
        memory = {"graphs": c.exact_bytes * num_nodes}
        seconds = {"a step": c.exact_step * num_nodes**2}
        return Plan("exact", memory, seconds, 0.0, room, c.machine)
    share = num_neighbors / c.knn_neighbors
    return Plan("knn", {"neighbours": c.knn_bytes * share * num_nodes}, {}, 0.0, room, c.machine)


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
    return Plan(regime, memory, {}, 0.0, float(available_bytes(device)), "any machine")
