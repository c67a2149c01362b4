"""Exceptions and warnings of jlgcn, to be caught or filtered by class instead of by message.

All of them derive from ValueError or UserWarning.
"""

from __future__ import annotations

__all__ = ["GraphHealthWarning", "NodeCountError", "OneClassWarning", "OneWayEdgesWarning"]


class NodeCountError(ValueError):
    """The graph does not have as many nodes as the features have rows."""


class GraphHealthWarning(UserWarning):
    """A learned graph has collapsed: it has no edges, or all pairs have equal weight."""


class OneClassWarning(UserWarning):
    """All labels belong to one class, so there is nothing to learn."""


class OneWayEdgesWarning(UserWarning):
    """Edges are listed in one direction only and are used in both."""
