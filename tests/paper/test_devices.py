"""Experiments on an accelerator: corruption, subsampling and recorded graphs follow the device."""

from __future__ import annotations

import torch

from jlgcn.nn import JLGCN, GraphLevelJLGCN, JLGCNOptions
from jlgcn.paper.citation import subsample
from jlgcn.paper.cloud_experiment import point_weights
from jlgcn.paper.corrupt import corrupt
from jlgcn.paper.node_experiment import first_weights
from tests.devices import explicit_devices
from tests.training.small import small_clouds, small_data


def test_corruption_and_subsampling_name_the_device_of_every_tensor() -> None:
    data = small_data()
    with explicit_devices():
        part = subsample(corrupt(data, edges_missing=0.5, labels_missing=0.5, seed=0), 10)
    assert part.x.device == data.x.device


def test_recorded_graphs_name_the_device_of_every_tensor() -> None:
    data, clouds = small_data(), small_clouds()
    options = JLGCNOptions(metric_init="median")
    nodes = JLGCN(6, 8, 2, rank=3, options=options).calibrate(data.x, data.graph()).eval()
    graphs = GraphLevelJLGCN(3, 3, (8,), (4,), rank=2, options=options).calibrate(clouds.points)
    with explicit_devices():
        weights = first_weights(nodes, data.x, data, 5)
        points = point_weights(graphs, clouds.points[:2], ["a", "b"], 3)
    assert torch.tensor(weights["layer 2"]).shape == (5, 5)
    assert len(points[1]["layers"][0]) == clouds.points.shape[1]
