"""Experiments on point clouds: graph classification without a given graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from jlgcn.nn import PRESETS, GraphLevelJLGCN
from jlgcn.nn.options import MetricInit
from jlgcn.paper.cloud_baselines import DGCNN, KnnGCN, PointNet, neighbors
from jlgcn.paper.cloud_data import CloudData
from jlgcn.paper.cloud_download import download_clouds
from jlgcn.paper.experiment import Experiment, Fitted, Where, round_digits
from jlgcn.paper.point_clouds import load_clouds
from jlgcn.training import GraphTrainConfig, fit_graphs

#: Output features of the layers.
WIDTHS = (64, 128, 1024)

#: Training as in the paper, which does not say how clouds are augmented.
PAPER = GraphTrainConfig(num_points=1024, augments=True)

#: Fractions of missing points in the paper's robustness figure.
POINTS_MISSING = (0.0, 0.25, 0.5, 0.75, 0.9)


@dataclass(frozen=True)
class CloudExperiment(Experiment):
    """Configuration of an experiment on point clouds.

    Attributes:
        dataset (str): folder of the clouds, relative to the root of the data.
        model ("jlgcn", "knn-gcn", "pointnet" or "dgcnn"): network; of the fields below, baselines
            use `num_neighbors` and `train` only, and kNN-GCN `concat`.
        concat (bool): concatenate a point's own features with the aggregated ones.
        rank (int ≥ 1 or None): rank of every metric; None for full rank.
        wide_metric (bool): make every metric as wide as its layer's weights W instead.
        metric_init ("median", "random" or "identity"): initialisation of the metrics.
        median_distance (float > 0): median squared distance after calibration with "median".
        num_neighbors (int ≥ 1): neighbours of a point for kNN-GCN and DGCNN.
        keep_clouds (int ≥ 0): number of test clouds whose learned edge weights are recorded, for a
            figure.
        train (GraphTrainConfig): optimisation hyperparameters.
    """

    task: ClassVar[str] = "clouds"

    dataset: str = "modelnet10_voxel_hdf5_1024"
    model: Literal["jlgcn", "knn-gcn", "pointnet", "dgcnn"] = "jlgcn"
    concat: bool = True
    rank: int | None = 16
    wide_metric: bool = False
    metric_init: MetricInit = "median"
    median_distance: float = 1.0
    num_neighbors: int = 20
    keep_clouds: int = 0
    train: GraphTrainConfig = PAPER

    def configuration(self) -> dict[str, Any]:
        """Return all fields as plain values, with the task."""
        return {"task": self.task} | super().configuration()

    def fit(self, seed: int, where: Where, data: CloudData | None = None) -> Fitted:
        """Train and evaluate on a data set of point clouds."""
        clouds = load(self, where) if data is None else data
        torch.manual_seed(seed)
        model = make_model(self, clouds.num_classes)
        result = fit_graphs(
            model,
            clouds.points,
            clouds.y,
            train=clouds.train,
            val=clouds.val,
            test=clouds.test,
            config=self.train,
            points_missing=POINTS_MISSING,
            device=where.device,
            options=where.options,
        )
        # In a file of its own: the confusion matrix of every seed would make records hard to read.
        confusion = result.measured.pop("confusion")
        names = clouds.class_names or tuple(str(i) for i in range(clouds.num_classes))
        files: dict[str, Any] = {"confusion": {"classes": list(names), "counts": confusion}}
        if self.keep_clouds > 0:
            assert isinstance(model, GraphLevelJLGCN)
            chosen = clouds.test[:: max(1, len(clouds.test) // self.keep_clouds)]
            points = clouds.points[chosen[: self.keep_clouds], : self.train.num_points]
            titles = [names[int(label)] for label in clouds.y[chosen]]
            points = points.to(where.device)
            files["weights"] = point_weights(model, points, titles, self.num_neighbors)
        return Fitted(result, clouds.sha256, files)


def load(experiment: CloudExperiment, where: Where) -> CloudData:
    """Return the data set of an experiment, downloaded if that is asked for."""
    if where.download:
        download_clouds(experiment.dataset, where.root, sha256=where.sha256)
    return load_clouds(experiment.dataset, where.root)


@torch.no_grad()
def point_weights(
    model: GraphLevelJLGCN,
    points: Tensor,  # (B, N, 3)
    titles: Sequence[str],
    num_neighbors: int,
) -> list[dict[str, Any]]:
    """Return clouds, and for the highest point of each its edge weights in the graph of each layer.

    Numbers are rounded to four digits.
    """
    model.eval()
    rows = []
    nearest = neighbors(points, num_neighbors + 1)
    for cloud, found, title in zip(points, nearest, titles, strict=False):
        point = int(cloud[:, 1].argmax())
        graphs = model(cloud.unsqueeze(0)).graphs
        layers = [graph.rows(cloud[:, 1].argmax(0, keepdim=True))[0, 0] for graph in graphs]
        rows.append(
            {
                "title": title,
                "points": [round_digits(coordinates) for coordinates in cloud],
                "point": point,
                "neighbors": found[point].tolist(),
                "layers": [round_digits(layer) for layer in layers],
            }
        )
    return rows


def make_model(experiment: CloudExperiment, num_classes: int) -> nn.Module:
    """Return the initialised network of an experiment."""
    if experiment.model == "jlgcn":
        options = replace(
            PRESETS["paper"],
            metric_init=experiment.metric_init,
            median_distance=experiment.median_distance,
        )
        rank = WIDTHS if experiment.wide_metric else experiment.rank
        return GraphLevelJLGCN(
            3, num_classes, WIDTHS, rank=rank, concat=experiment.concat, options=options
        )
    if experiment.model == "knn-gcn":
        num_neighbors, concat = experiment.num_neighbors, experiment.concat
        return KnnGCN(3, num_classes, WIDTHS, num_neighbors=num_neighbors, concat=concat)
    if experiment.model == "dgcnn":
        return DGCNN(3, num_classes, num_neighbors=experiment.num_neighbors)
    return PointNet(3, num_classes)
