"""What a size asks for, before anything is allocated: method, memory, time, bytes on the wire."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

from jlgcn._checks import available_bytes

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


def plan(
    num_nodes: int,
    num_features: int,
    *,
    num_edges: int = 0,
    num_devices: int = 1,
    available: float | None = None,
) -> Plan:
    r"""Return method, memory, time and communication of a size, from measurements.

    Exact graphs take :math:`c N^2 / P` seconds a step over P processes, each of which receives
    :math:`3 \cdot 4 W N (1 - 1/P)` bytes for W numbers of a node (gathered once, summed back by an
    all-reduce). More nodes are given their nearest neighbours, in one process.

    Args:
        num_nodes: N.
        num_features: features of a node.
        num_edges: known edges.
        num_devices: processes with a core or device each, P.
        available: bytes of memory for each process; None for what this machine has left, divided.

    Cost: none; nothing is allocated.

    Example:
        >>> plan(1_000_000, 64, available=12 * 2**30).regime
        'knn'
        >>> plan(2_000, 64, available=12 * 2**30).fits
        True
    """
    for name, value in (("num_nodes", num_nodes), ("num_features", num_features)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, but it is {value}")
    if num_devices < 1 or num_edges < 0:
        raise ValueError(
            f"num_devices must be at least 1 and num_edges not negative, but they are "
            f"{num_devices} and {num_edges}"
        )
    c = CALIBRATION
    room = available_bytes() / num_devices if available is None else available
    libraries = {"libraries": c.base_bytes}
    if num_nodes <= MAX_EXACT_NODES["cpu"] * math.sqrt(num_devices):
        own = num_nodes / num_devices
        memory = libraries | {
            "features": 4.0 * own * num_features,
            "graphs": c.exact_bytes * (own + (num_nodes - own) * 0.2),
            "known edges": 40.0 * num_edges,
        }
        wire = 12.0 * c.exact_columns * num_nodes * (1 - 1 / num_devices)
        seconds = {"a step": c.exact_step * num_nodes**2 / num_devices}
        regime = "exact" if num_devices == 1 else "exact over processes"
        return Plan(regime, memory, seconds, wire, room, c.machine)
    memory = libraries | {
        "features": 4.0 * num_nodes * num_features,
        "neighbours": c.knn_bytes * num_nodes,
        "known edges": 40.0 * num_edges,
    }
    return Plan("knn", memory, {}, 0.0, room, c.machine)


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
