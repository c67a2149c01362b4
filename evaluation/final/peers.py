"""Peers with the settings of their papers, and how they are trained; nothing is searched.

Features are words, 0 or 1, as the authors have them; GRAND's are rows that sum to 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from evaluation.final.networks import Network, train_by_adam
from evaluation.final.rows import FinalProblem, Row
from evaluation.peers import GRAND, GNNGuard, SGFormer
from evaluation.slaps import SLAPS
from jlgcn.graphs import SparseGraph
from jlgcn.ops import SparseFeatures


@dataclass(frozen=True, eq=False)
class Nodes:
    """What a peer is trained on.

    Attributes:
        dataset: name of the data.
        x: words of each node.
        y: classes, (N,), of which those of `train` are learned and those of `val` select.
        num_classes: number of classes.
        graph: the given graph.
        train: nodes to learn from, (T,).
        val: nodes that select the epoch, (V,).
    """

    dataset: str
    x: SparseFeatures
    y: Tensor
    num_classes: int
    graph: SparseGraph
    train: Tensor
    val: Tensor

    def right(self, logits: Tensor) -> float:
        """Return the accuracy on the validation nodes."""
        return float((logits[self.val].argmax(-1) == self.y[self.val]).double().mean())


Trained = tuple[float, Tensor]  # validation accuracy, and classes of all nodes


@dataclass(frozen=True)
class Peer:
    """A peer, and the rows that it was made for.

    Attributes:
        fit: from nodes, and perhaps the most epochs, to validation accuracy and all classes.
        datasets: data whose settings the paper has, or that are like them.
        groups: groups of rows.
        needs_graph: whether it takes rows with edges, or those without.
    """

    fit: Callable[..., Trained]
    datasets: tuple[str, ...] = ("cora", "cora_metattack", "citeseer")
    groups: tuple[str, ...] = ("partial", "labels", "attacked", "whole", "public")
    needs_graph: bool = True

    def suits(self, row: Row, has_graph: bool) -> bool:
        """Return whether the peer is run on a row."""
        is_known = row.dataset in self.datasets and row.group in self.groups
        return is_known and has_graph == self.needs_graph


def fit_grand(nodes: Nodes, epochs: int = 5000) -> Trained:
    """Train GRAND by the mean of classification and consistency losses over augmentations.

    Settings are those of its authors' scripts for each data set. The epoch of the lowest validation
    loss is selected; training ends 200 epochs after the last that lowered it or raised accuracy.
    """
    citeseer = nodes.dataset == "citeseer"
    num_samples, temperature, strength = (2, 0.3, 0.7) if citeseer else (4, 0.5, 1.0)
    model = GRAND(nodes.x.shape[1], nodes.num_classes)
    if citeseer:
        model.order, model.input_dropout, model.dropout = 2, 0.0, 0.2
    length = nodes.x.square_norms().clamp(min=1)  # number of words
    x = nodes.x.scaled(1 / length, torch.ones(nodes.x.shape[1]))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    labels = nodes.y[nodes.train]
    lowest, highest, waited = float("inf"), -1.0, 0
    found = 0.0, nodes.y
    for _ in range(epochs):
        model.train()
        logits = [model(x, nodes.graph) for _ in range(num_samples)]
        loss = torch.stack([cross_entropy(each[nodes.train], labels) for each in logits]).mean()
        loss = loss + strength * consistency(torch.stack(logits), temperature)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            output = model(x, nodes.graph)
        right = nodes.right(output)
        loss_of_val = float(cross_entropy(output[nodes.val], nodes.y[nodes.val]))
        waited = 0 if loss_of_val <= lowest or right >= highest else waited + 1
        if loss_of_val <= lowest:
            found = right, output.argmax(-1)
        lowest, highest = min(lowest, loss_of_val), max(highest, right)
        if waited >= 200:
            break
    return found


def consistency(
    logits: Tensor,  # (S, N, C)
    temperature: float,
) -> Tensor:  # ()
    """Return the mean squared distance of predictions to their sharpened mean, a constant."""
    predicted = logits.softmax(-1)
    sharpened = (predicted.detach().mean(0).log() / temperature).softmax(-1)
    return (predicted - sharpened).square().sum(-1).mean()


def fit_sgformer(nodes: Nodes, epochs: int = 500) -> Trained:
    """Train SGFormer with the settings of its authors' scripts for each data set."""
    rate, decay, attention_decay, graph_weight, dropout = {
        "citeseer": (0.005, 0.01, 0.01, 0.7, 0.3),
        "pubmed": (0.005, 5e-4, 0.01, 0.8, 0.3),
    }.get(nodes.dataset, (0.01, 5e-4, 1e-3, 0.8, 0.2))
    model = SGFormer(
        nodes.x.shape[1],
        nodes.num_classes,
        graph_weight=graph_weight,
        attention_dropout=dropout,
    )
    network = Network(
        lambda *_: model,
        rate,
        decay=attention_decay,
        decayed="attention",
        other_decay=decay,
        epochs=epochs,
    )
    x = nodes.x
    return train_by_adam(model, network, x, nodes.y, nodes.graph, nodes.train, nodes.val)


def fit_gnnguard(nodes: Nodes, epochs: int = 200) -> Trained:
    """Train GNNGuard for 200 epochs at rate 0.01 without weight decay, as its authors' code."""
    model = GNNGuard(nodes.x.shape[1], nodes.num_classes)
    network = Network(lambda *_: model, decay=0.0, epochs=epochs)
    x = nodes.x
    return train_by_adam(model, network, x, nodes.y, nodes.graph, nodes.train, nodes.val)


def fit_slaps(nodes: Nodes, epochs: int = 2000) -> Trained:
    """Train SLAPS (MLP-D) with the settings of its authors' scripts for each data set.

    The graph is learned by denoising alone in the first fifth of the epochs, and by both losses
    then. Training does not end earlier, and the first epoch of the highest validation accuracy is
    selected.
    """
    if nodes.dataset == "citeseer":
        rate, graph_rate = 0.001, 0.01
        model = SLAPS(
            nodes.x.shape[1],
            nodes.num_classes,
            num_neighbors=20,
            activation="tanh",
            denoiser_channels=1024,
            denoiser_edge_dropout=0.5,
        )
    else:
        rate, graph_rate = 0.01, 0.001
        model = SLAPS(nodes.x.shape[1], nodes.num_classes)
    graph_parameters = [model.first_scale, model.second_scale, *model.denoiser.parameters()]
    optimizer = torch.optim.Adam(
        [
            {"params": graph_parameters, "lr": graph_rate},
            {"params": model.classifier.parameters(), "lr": rate, "weight_decay": 0.05},
        ]
    )
    highest, classes = -1.0, nodes.y
    for epoch in range(epochs):
        model.train()
        graph = model.learn(nodes.x)
        loss = 10 * model.denoising_loss(nodes.x, graph)
        is_classified = epoch >= epochs // 5
        if is_classified:
            logits = model.classify(nodes.x, graph)
            loss = loss + cross_entropy(logits[nodes.train], nodes.y[nodes.train])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if is_classified:
            model.eval()
            with torch.no_grad():
                logits = model.classify(nodes.x, graph)
            right = nodes.right(logits)
            if right > highest:
                highest, classes = right, logits.argmax(-1)
    return highest, classes


#: By name.
PEERS: dict[str, Peer] = {
    "GRAND": Peer(fit_grand),
    "SGFormer": Peer(fit_sgformer, ("cora", "cora_metattack", "citeseer", "pubmed")),
    "GNNGuard": Peer(fit_gnnguard, groups=("attacked", "whole")),
    "SLAPS": Peer(fit_slaps, ("cora", "citeseer"), ("none", "public"), needs_graph=False),
}


def train_peer(
    peer: Peer, problem: FinalProblem, seed: int
) -> tuple[NDArray[np.int64], dict[str, Any]]:
    """Return the classes that a peer predicts, and its validation accuracy."""
    data, split = problem.data, problem.split
    empty = SparseGraph.without_edges(len(data.y))
    nodes = Nodes(
        data.name.partition(",")[0],
        SparseFeatures.from_scipy(data.x.astype(np.float32)),
        torch.from_numpy(data.y),
        problem.num_classes,
        empty if problem.given is None else problem.given,
        torch.from_numpy(split.train),
        torch.from_numpy(split.val),
    )
    torch.manual_seed(seed)
    right, classes = peer.fit(nodes)
    return classes.numpy(), {"val_accuracy": round(right, 4)}
