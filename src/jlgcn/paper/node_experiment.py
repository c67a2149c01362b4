"""Experiments on citation networks: transductive node classification."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from jlgcn.nn import JLGCN, PRESETS
from jlgcn.nn.learner import Backend
from jlgcn.nn.options import MetricInit, Preset
from jlgcn.paper.citation import Planetoid, load_planetoid, normalize_rows, subsample
from jlgcn.paper.corrupt import corrupt
from jlgcn.paper.experiment import Experiment, Fitted, Protocol, Where, round_digits
from jlgcn.paper.node_data import NodeData
from jlgcn.training import TrainConfig, fit_nodes


@dataclass(frozen=True)
class NodeExperiment(Experiment):
    """Configuration of an experiment on a citation network.

    Attributes:
        dataset ("cora", "citeseer" or "pubmed"): citation network.
        num_others (int ≥ 0 or None): nodes that are kept outside the split; None for all.
        edges_missing (float in [0, 1]): fraction of given edges to remove, by the seed.
        labels_missing (float in [0, 1]): fraction of training labels to remove, by the seed.
        model ("jlgcn", "gcn" or "gat"): network; of the fields below, baselines use `protocol` and
            `train` only.
        preset ("authors" or "paper"): code of the authors, or text of the paper.
        hidden_channels (int ≥ 1): features between the layers.
        num_layers (int ≥ 1): number of layers.
        num_learned (int ≥ 1 or None): layers, from the first, that learn a graph; None for all.
        rank (int ≥ 1 or None): rank of every metric; None for full rank.
        metric_init ("median", "random", "identity" or None): initialisation of the metrics; None
            for the preset's.
        train_metric (bool): False freezes the metrics.
        graph_after_dropout (bool or None): learn graphs from features after dropout; None for the
            preset's choice.
        dropout (float in [0, 1]): dropout probability of the input of every layer.
        input_dropout (float in [0, 1] or None): the same for the first layer; None for `dropout`.
        backend ("auto", "exact", "knn" or "dense"): representation of learned graphs.
        num_neighbors (int ≥ 1): neighbours of a node for kNN.
        keep_graphs (int ≥ 0): record the weights among this many first nodes, for a figure.
        protocol ("honest" or "authors"): "honest" evaluates the test nodes once, after selection;
            "authors" also evaluates them in every epoch and reports the best separately.
        train (TrainConfig): optimisation hyperparameters.
    """

    task: ClassVar[str] = "nodes"

    dataset: Planetoid = "cora"
    num_others: int | None = None
    edges_missing: float = 0.0
    labels_missing: float = 0.0
    model: Literal["jlgcn", "gcn", "gat"] = "jlgcn"
    preset: Preset = "authors"
    hidden_channels: int = 16
    num_layers: int = 2
    num_learned: int | None = None
    rank: int | None = 16
    metric_init: MetricInit | None = None
    train_metric: bool = True
    graph_after_dropout: bool | None = None
    dropout: float = 0.5
    input_dropout: float | None = None
    backend: Backend = "exact"
    num_neighbors: int = 16
    keep_graphs: int = 0
    protocol: Protocol = "honest"
    train: TrainConfig = field(default_factory=TrainConfig)

    def fit(self, seed: int, where: Where, data: NodeData | None = None) -> Fitted:
        """Train and evaluate on a citation network."""
        data = load(self, seed, where.root, download=where.download) if data is None else data
        x = normalize_rows(data.x)
        torch.manual_seed(seed)
        model = make_model(self, x.shape[1], data.num_classes)
        result = fit_nodes(
            model,
            x,
            data.y,
            data.graph(),
            train=data.train,
            val=data.val,
            test=data.test,
            config=self.train,
            trace_test=self.protocol == "authors",
            device=where.device,
            options=where.options,
        )
        files = {}
        if self.keep_graphs > 0:
            assert isinstance(model, JLGCN)
            device = where.device
            files["graphs"] = first_weights(model, x.to(device), data.to(device), self.keep_graphs)
        return Fitted(result, data.sha256, files)


def load(
    experiment: NodeExperiment, seed: int, root: Path | None = None, *, download: bool = False
) -> NodeData:
    """Return the data set of an experiment, corrupted as it says."""
    data = load_planetoid(experiment.dataset, root, download=download)
    if experiment.num_others is not None:
        data = subsample(data, experiment.num_others)
    return corrupt(
        data,
        edges_missing=experiment.edges_missing,
        labels_missing=experiment.labels_missing,
        seed=seed,
    )


def make_model(experiment: NodeExperiment, in_channels: int, num_classes: int) -> nn.Module:
    """Return the initialised network of an experiment."""
    if experiment.model != "jlgcn":
        from jlgcn.paper.baselines import GAT, GCN

        baseline = GCN if experiment.model == "gcn" else GAT
        return baseline(in_channels, num_classes)
    options = PRESETS[experiment.preset]
    if experiment.metric_init is not None:
        options = replace(options, metric_init=experiment.metric_init)
    if experiment.graph_after_dropout is not None:
        options = replace(options, graph_after_dropout=experiment.graph_after_dropout)
    model = JLGCN(
        in_channels,
        experiment.hidden_channels,
        num_classes,
        experiment.num_layers,
        experiment.rank,
        num_learned=experiment.num_learned,
        dropout=experiment.dropout,
        input_dropout=experiment.input_dropout,
        options=options,
        backend=experiment.backend,
        num_neighbors=experiment.num_neighbors,
    )
    for learner in model.learners:
        learner.metric.requires_grad_(experiment.train_metric)
    return model


@torch.no_grad()
def first_weights(
    model: JLGCN, x: Tensor, data: NodeData, num_nodes: int
) -> dict[str, list[list[float]]]:
    """Return the weights among the first nodes in the given graph and in each layer's."""
    nodes = torch.arange(num_nodes, device=x.device)
    given = data.graph()
    graphs = {"given": given}
    graphs |= {f"layer {i}": graph for i, graph in enumerate(model(x, given).graphs, start=1)}
    return {
        name: [round_digits(row) for row in graph.rows(nodes)[:, nodes]]
        for name, graph in graphs.items()
    }
