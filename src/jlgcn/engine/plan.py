"""What a size asks for, before anything is allocated: method, memory, time, bytes on the wire."""

from __future__ import annotations

import math

from jlgcn._memory import available_bytes
from jlgcn.graphs.regime import CALIBRATION, MAX_EXACT_NODES, Plan


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
