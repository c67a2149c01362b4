"""Readers of untrusted files, and export of learned graphs."""

from jlgcn.io.export import to_networkx, to_pyg, to_scipy, write_edges

__all__ = ["to_networkx", "to_pyg", "to_scipy", "write_edges"]
