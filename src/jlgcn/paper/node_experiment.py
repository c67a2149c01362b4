"""Experiments on citation networks: the nodes of one graph."""

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
from jlgcn.training import NodeData, TrainConfig, fit_nodes


@dataclass(frozen=True)
class NodeExperiment(Experiment):
    """A network for a citation network, and how to train it.

    Attributes:
        dataset: which citation network.
        num_others: nodes kept beside those of the split; None for all.
        edges_missing: share of the given edges that is removed first, by the seed.
        labels_missing: share of the training labels that is removed first, by the seed.
        model: the paper's network, or a baseline from PyTorch Geometric, to which nothing below
            applies but `protocol` and `train`.
        preset: the paper's text or its authors' code.
        hidden_channels: features between the layers.
        num_layers: number of layers.
        num_learned: how many layers, from the first, learn a graph; None for all.
        rank: rank of every metric; None for that of its input.
        metric_init: how metrics begin; None for as the preset says.
        train_metric: whether metrics are trained.
        graph_after_dropout: whether graphs see dropout; None for as the preset says.
        dropout: share of every layer's input that is dropped.
        input_dropout: the same for the first layer; None for `dropout`.
        backend: how learned graphs are held.
        num_neighbors: neighbours of a node where they are held as kNN.
        keep_graphs: keep the weights among the first so many nodes, in every layer, for a picture.
        protocol: "honest" looks at the test nodes once, after selection; "authors" traces them in
            every epoch as well, and reports the best apart.
        train: how to train.
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
        """Train on the nodes of a citation network."""
        data = load(self, seed, where.root, download=where.download) if data is None else data
        x = normalize_rows(data.x)
        model, result = fit_nodes(
            lambda: make_model(self, x.shape[1], data.num_classes),
            data,
            x=x,
            config=self.train,
            seed=seed,
            trace_test=self.protocol == "authors",
            options=where.options,
        )
        files = {}
        if self.keep_graphs > 0:
            assert isinstance(model, JLGCN)
            device = where.options.device
            files["graphs"] = first_weights(model, x.to(device), data.to(device), self.keep_graphs)
        return Fitted(result, data.sha256, files)


def load(
    experiment: NodeExperiment, seed: int, root: Path | None = None, *, download: bool = False
) -> NodeData:
    """Return the data of an experiment, without what it asks to be missing."""
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
    """Return the network of an experiment, drawn from the current random state."""
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
    """Return the weights among the first nodes, given and of each layer's graph, four digits."""
    nodes = torch.arange(num_nodes, device=x.device)
    given = data.graph()
    graphs = {"given": given}
    graphs |= {f"layer {i}": graph for i, graph in enumerate(model(x, given).graphs, start=1)}
    return {
        name: [round_digits(row) for row in graph.rows(nodes)[:, nodes]]
        for name, graph in graphs.items()
    }
