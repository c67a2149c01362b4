"""Readers of data sets, which trust no file, and ways to take something away from them."""

from jlgcn.data.citation import load_planetoid, normalize_rows, subsample
from jlgcn.data.corrupt import drop_edges, drop_labels
from jlgcn.data.files import data_root
from jlgcn.data.node_data import NodeData
from jlgcn.data.npz import load_npz

__all__ = [
    "NodeData",
    "data_root",
    "drop_edges",
    "drop_labels",
    "load_npz",
    "load_planetoid",
    "normalize_rows",
    "subsample",
]
