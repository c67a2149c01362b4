"""Networks with the settings of their authors; validation selects the epoch and the features.

Features are rows of words that sum to 1, as the authors have them, or words as the closed form
scales them; of data without words, standardised columns or embeddings as they are.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from evaluation.final.rows import FinalProblem
from evaluation.rivals import APPNP, GCNII, MLP, SAGE
from jlgcn.graphs import Graph, SparseGraph
from jlgcn.nn import DecoupledJLGCN
from jlgcn.ops import SparseFeatures
from jlgcn.paper import recipes
from jlgcn.paper.baselines import GAT, GCN
from jlgcn.paper.node_experiment import NodeExperiment, make_model
from jlgcn.training import DecoupledConfig, fit_nodes

Features = Tensor | SparseFeatures


@dataclass(frozen=True)
class Network:
    """A network and how its authors train it.

    Attributes:
        make: from numbers of features and classes, and the name of the data, to the network.
        rate: learning rate of Adam.
        decay: L2 penalty of the parameters whose names begin with `decayed`.
        decayed: prefix of names; "" for all.
        other_decay: L2 penalty of the other parameters.
        epochs: most epochs of training.
        patience: epochs without a better validation accuracy or loss that end it.
        needs_graph: whether it takes given edges; others take a kNN graph, or none.
    """

    make: Callable[[int, int, str], nn.Module]
    rate: float = 0.01
    decay: float = 5e-4
    decayed: str = "first"
    other_decay: float = 0.0
    epochs: int = 200
    patience: int = 200
    needs_graph: bool = True


def _gcnii(in_channels: int, out_channels: int, dataset: str) -> nn.Module:
    # The authors' settings of each citation network; of other data those of Cora.
    depth, width, strength, dropout = {
        "citeseer": (32, 256, 0.6, 0.7),
        "pubmed": (16, 256, 0.4, 0.5),
    }.get(dataset, (64, 64, 0.5, 0.6))
    return GCNII(in_channels, out_channels, width, depth, strength=strength, dropout=dropout)


#: By name. "JLGCN" and "DecoupledJLGCN" are trained by :func:`jlgcn.training.fit_nodes`.
NETWORKS: dict[str, Network] = {
    "MLP": Network(lambda i, o, _: MLP(i, o, 64), decayed="", needs_graph=False),
    "kNN-GCN": Network(lambda i, o, _: GCN(i, o), needs_graph=False),
    "GCN": Network(lambda i, o, _: GCN(i, o)),
    "GAT": Network(lambda i, o, _: GAT(i, o), rate=0.005, decayed="", epochs=1000, patience=100),
    "SAGE": Network(lambda i, o, _: SAGE(i, o, 64), decayed=""),
    "APPNP": Network(
        lambda i, o, _: APPNP(i, o), decay=5e-3, decayed="mlp.lins.0", epochs=1000, patience=100
    ),
    "GCNII": Network(
        _gcnii, decay=0.01, decayed="convs", other_decay=5e-4, epochs=1500, patience=100
    ),
    "JLGCN": Network(lambda i, o, _: nn.Identity(), needs_graph=False),
    "DecoupledJLGCN": Network(lambda i, o, _: nn.Identity(), needs_graph=False),
}


def train_network(
    network: Network, problem: FinalProblem, seed: int
) -> tuple[NDArray[np.int64], dict[str, Any]]:
    """Return the classes that a network predicts, and what validation selected."""
    name = next(name for name, each in NETWORKS.items() if each is network)
    y, split = torch.from_numpy(problem.data.y), problem.split
    train, val = torch.from_numpy(split.train), torch.from_numpy(split.val)
    graph: Graph = problem.given if problem.given is not None else _no_edges(len(y))
    if name == "kNN-GCN":
        graph = problem.knn_graph(20)
    best: tuple[float, NDArray[np.int64], dict[str, Any]] | None = None
    for kind, x in _inputs(problem, name).items():
        torch.manual_seed(seed)
        if name in ("JLGCN", "DecoupledJLGCN"):
            right, predicted = _train_ours(name, problem, x, y, graph, train, val)
        else:
            model = network.make(x.shape[1], problem.num_classes, _name(problem))
            right, predicted = train_by_adam(model, network, x, y, graph, train, val)
        if best is None or right > best[0]:
            best = right, predicted.numpy(), {"features": kind}
    assert best is not None
    return best[1], best[2]


def _name(problem: FinalProblem) -> str:
    return problem.data.name.partition(",")[0]


def _no_edges(num_nodes: int) -> SparseGraph:
    return SparseGraph(torch.empty(2, 0, dtype=torch.int64), num_nodes=num_nodes)


def _inputs(problem: FinalProblem, name: str) -> dict[str, Features]:
    """Return the features that a network may have: words in both scales, or scaled ones."""
    x = problem.data.x
    scaled = problem.features
    scaled = scaled.map(Tensor.float) if isinstance(scaled, SparseFeatures) else scaled.float()
    if not scipy.sparse.issparse(x):
        return {"scaled": scaled}
    total = np.maximum(np.asarray(x.sum(1)).ravel(), 1e-30)
    words = SparseFeatures.from_scipy(scipy.sparse.csr_matrix(scipy.sparse.diags(1 / total) @ x))
    match name:
        case "JLGCN":
            return {"words": words.map(Tensor.float)}
        case "DecoupledJLGCN":
            return {"scaled": scaled}
        case _:
            return {"words": words.map(Tensor.float), "scaled": scaled}


def train_by_adam(
    model: nn.Module,
    network: Network,
    x: Features,
    y: Tensor,
    graph: Graph,
    train: Tensor,
    val: Tensor,
) -> tuple[float, Tensor]:
    """Train by Adam; return validation accuracy and classes of the epoch where it is highest."""
    named = dict(model.named_parameters())
    decayed = [value for key, value in named.items() if key.startswith(network.decayed)]
    others = [value for key, value in named.items() if not key.startswith(network.decayed)]
    optimizer = torch.optim.Adam(
        [
            {"params": decayed, "weight_decay": network.decay},
            {"params": others, "weight_decay": network.other_decay},
        ],
        lr=network.rate,
    )
    best, predicted, lowest, waited = -1.0, y, float("inf"), 0
    for _ in range(network.epochs):
        model.train()
        loss = functional.cross_entropy(model(x, graph)[train], y[train])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            logits = model(x, graph)
        right = float((logits[val].argmax(-1) == y[val]).double().mean())
        loss_of_val = float(functional.cross_entropy(logits[val], y[val]))
        waited += 1
        if right > best or loss_of_val < lowest:
            waited = 0
        if right > best:
            best, predicted = right, logits.argmax(-1)
        lowest = min(lowest, loss_of_val)
        if waited >= network.patience:
            break
    return best, predicted


def _train_ours(
    name: str,
    problem: FinalProblem,
    x: Features,
    y: Tensor,
    graph: Graph,
    train: Tensor,
    val: Tensor,
) -> tuple[float, Tensor]:
    """Train the paper's network by the preset "authors", or the decoupled one."""
    config: Any
    if name == "JLGCN":
        found = recipes.RECIPES.get(f"citation/{_name(problem)}", recipes.RECIPES["citation/cora"])
        experiment = copy.copy(found.variants[0].experiment)
        assert isinstance(experiment, NodeExperiment)
        if not isinstance(x, SparseFeatures):  # whose scale the preset's metric does not know
            experiment = replace(experiment, metric_init="median")
        model = make_model(experiment, x.shape[1], problem.num_classes)
        config = experiment.train
    else:
        model = DecoupledJLGCN(x.shape[1], 64, problem.num_classes)
        is_words = isinstance(x, SparseFeatures)
        config = DecoupledConfig(metric_variance=0.1 if is_words else 1.0)
    result = fit_nodes(model, x, y, graph, train=train, val=val, config=config)
    with torch.no_grad():
        output = model(x, graph)
    logits = output if isinstance(output, Tensor) else output.logits
    return result.val_accuracy, logits.argmax(-1)
