"""Errors and warnings that some caller must tell from others, by their class and not by their text.

All of them are a ValueError or a UserWarning, so nobody else has to know them.
"""

from __future__ import annotations


class NodeCountError(ValueError):
    """A graph has another number of nodes than it should."""


class OneWayEdgesWarning(UserWarning):
    """Edges are listed in one direction only, and count for both."""


class OneClassWarning(UserWarning):
    """All labels are of one class, so there is nothing to learn."""
