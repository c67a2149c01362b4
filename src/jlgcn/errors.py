"""Exceptions and warnings of jlgcn, so that callers can catch or filter them by class.

All derive from ValueError or UserWarning.
"""

from __future__ import annotations

__all__ = ["GraphHealthWarning", "NodeCountError", "OneClassWarning", "OneWayEdgesWarning"]


class NodeCountError(ValueError):
    """The number of nodes of the graph differs from the number of feature rows."""


class GraphHealthWarning(UserWarning):
    """A learned graph is degenerate: it has no edges, or all pairs have nearly equal weight."""


class OneClassWarning(UserWarning):
    """All labels belong to one class, so there is nothing to learn."""


class OneWayEdgesWarning(UserWarning):
    """Edges are listed in one direction only and are used as undirected edges."""
