"""Readers of data sets, which trust no file, and ways to take something away from them."""

from jlgcn.data.citation import load_planetoid, normalize_rows, subsample
from jlgcn.data.corrupt import drop_edges, drop_labels, take_away
from jlgcn.data.files import data_root
from jlgcn.data.node_data import NodeData
from jlgcn.data.npz import load_npz
from jlgcn.data.point_clouds import (
    CloudData,
    augment,
    choose_points,
    drop_points,
    load_clouds,
    sample_mesh,
    unit_sphere,
)
from jlgcn.data.scaling import FeatureScaler
from jlgcn.data.splits import random_split
from jlgcn.data.tables import load_table

__all__ = [
    "CloudData",
    "FeatureScaler",
    "NodeData",
    "augment",
    "choose_points",
    "data_root",
    "drop_edges",
    "drop_labels",
    "drop_points",
    "load_clouds",
    "load_npz",
    "load_planetoid",
    "load_table",
    "normalize_rows",
    "random_split",
    "sample_mesh",
    "subsample",
    "take_away",
    "unit_sphere",
]
