"""Training of the paper's network on the rows of a table; held-out labels select the epoch."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor

from jlgcn.errors import GraphHealthWarning
from jlgcn.estimator.network_model import NetworkModel, as_float64
from jlgcn.estimator.network_options import NetworkOptions, check_network_options
from jlgcn.graphs import SparseGraph
from jlgcn.graphs.candidates import Features
from jlgcn.nn import JLGCN, DecoupledJLGCN
from jlgcn.nn.learner import MAX_DENSE_NODES, Backend
from jlgcn.nn.options import resolve_options
from jlgcn.ops import SparseFeatures
from jlgcn.training import DecoupledConfig, RunOptions, TrainConfig, fit_nodes

#: Neighbours of a row in a kNN graph where `n_neighbors` is None.
NUM_NEIGHBORS = 16

# Hidden features and learning rate of the paper's network, and hidden features of the decoupled
# one. The learning rate is constant for a fifth of the epochs, as in the paper's code (100 of 500).
_HIDDEN, _RATE, _DECOUPLED_HIDDEN = 16, 0.1, 64
_NUM_RATES = 5

# Shares of the epochs after which the decoupled network's metric is regressed.
_METRIC_STEPS = (1 / 3, 1 / 2, 2 / 3)


def fit_network(
    x: Features,  # (N, in_channels)
    y: Tensor,  # (N,), int64
    graph: SparseGraph | None = None,
    *,
    train: Tensor,  # (M,), int64
    options: NetworkOptions,
    num_neighbors: int = NUM_NEIGHBORS,
    class_weight: Tensor | None = None,  # (C,)
    progress: bool = False,
) -> NetworkModel:
    """Train a network on rows with some labels; held-out labels select the epoch.

    Features are divided by the root mean square of their rows' norms, as the paper's have rows of
    norm 1. A metric that the preset draws at random is scaled to the features
    (``metric_init="median"``): the paper's range suits the width of its data sets, and makes
    graphs of other tables empty or complete.

    Args:
        x: scaled features.
        y: classes; only those of `train` are read.
        graph: the given graph, or None.
        train: labelled rows.
        options: settings of the network and its training.
        num_neighbors: neighbours of a row in a kNN graph.
        class_weight: weight of each class; None for 1.
        progress: show a progress bar on a terminal.

    Cost: `max_iter` epochs, each a forward and a backward pass over all rows and a forward pass
    for validation: quadratic in the rows for exact graphs, a search for neighbours for kNN.
    """
    check_network_options(options)
    unit = _root_mean_square_norm(x)
    x = as_float64(x, 1 / unit)
    x = x.map(Tensor.float) if isinstance(x, SparseFeatures) else x.float()
    given = None if graph is None else graph.to(dtype=torch.float32)
    known = torch.full_like(y, -1)
    known[train] = y[train]
    seed = int(check_random_state(options.random_state).randint(2**31))
    is_held_out = hold_out(y[train], options.validation_fraction, seed)
    learned_from, validation = train[~is_held_out], train[is_held_out]
    if not len(validation):
        warnings.warn(
            "no class has two labels, so none is held out and training labels select the epoch; "
            "label two rows of each class",
            UserWarning,
            stacklevel=2,
        )
        validation = learned_from
    with torch.random.fork_rng(devices=[y.device] if y.is_cuda else []):
        torch.manual_seed(seed)
        config = _config(options, x)
        network = _network(options, x, int(y[train].max()) + 1, num_neighbors).to(y.device)
        with _advice(config.lr):
            result = fit_nodes(
                network,
                x,
                known,
                given,
                train=learned_from,
                val=validation,
                class_weight=class_weight,
                config=config,
                options=RunOptions(progress=progress, label="training"),
            )
    with torch.no_grad():
        output = network(x, given)
    curve = [[row[name] for name in ("loss", "val_accuracy", "val_loss")] for row in result.history]
    return NetworkModel(
        network=network,
        x=x,
        unit=unit,
        given=given,
        logits=output.logits,
        hidden=tuple(output.features[1:]),
        train=train,
        labels=y[train],
        validation=validation,
        best_epoch=result.best_epoch,
        curve=torch.tensor(curve, dtype=torch.float64, device=y.device),
    )


def _network(
    options: NetworkOptions, x: Features, num_classes: int, num_neighbors: int
) -> JLGCN | DecoupledJLGCN:
    hidden = options.hidden_channels
    if options.preset == "decoupled":
        return DecoupledJLGCN(
            x.shape[1],
            _DECOUPLED_HIDDEN if hidden is None else hidden,
            num_classes,
            num_neighbors=num_neighbors,
            dropout=options.dropout,
        )
    preset = resolve_options(options.preset)
    if preset.metric_init == "random":
        preset = replace(preset, metric_init="median")
    return JLGCN(
        x.shape[1],
        _HIDDEN if hidden is None else hidden,
        num_classes,
        options.network_layers,
        dropout=options.dropout,
        options=preset,
        backend=_backend(options.backend, x.shape[0]),
        num_neighbors=num_neighbors,
    )


def _config(options: NetworkOptions, x: Features) -> TrainConfig:
    epochs, rate = int(options.max_iter), options.learning_rate
    if options.preset == "decoupled":
        config = DecoupledConfig()
        return replace(
            config,
            epochs=epochs,
            lr=config.lr if rate is None else float(rate),
            metric_epochs=tuple(max(1, round(share * epochs)) for share in _METRIC_STEPS),
            # Words want a smaller one (evaluation/studies/learn_graph.py).
            metric_variance=0.1 if isinstance(x, SparseFeatures) else 1.0,
        )
    return TrainConfig(
        epochs=epochs,
        lr=_RATE if rate is None else float(rate),
        lr_step=math.ceil(epochs / _NUM_RATES),
    )


@contextmanager
def _advice(rate: float) -> Iterator[None]:
    """Replace remedies in errors and in warnings about a learned graph by those of an estimator."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        except FloatingPointError as error:
            raise ValueError(
                f"the network diverged ({error}); pass a smaller learning_rate than {rate}"
            ) from None
        except MemoryError as error:
            raise ValueError(
                f'{error}; pass a smaller n_neighbors, or solver="closed_form"'
            ) from None
    for warning in caught:
        if issubclass(warning.category, GraphHealthWarning):
            fact = str(warning.message).partition(";")[0]
            remedy = 'compare with solver="closed_form", or pass another preset or learning_rate'
            warnings.warn(f"{fact}; {remedy}", GraphHealthWarning, stacklevel=5)
        elif "in both train and val" not in str(warning.message):  # warned of before the fit
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )


def hold_out(labels: Tensor, fraction: float, seed: int) -> Tensor:  # (M,), bool
    """Return which labels to hold out: a share of each class, but neither all nor none of it.

    Args:
        labels: classes of the labelled rows, (M,), int64.
        fraction: share of each class.
        seed: seed of the draw.

    Example:
        >>> hold_out(torch.tensor([0, 0, 0, 0, 1]), 0.5, seed=0).sum()
        tensor(2)
    """
    rng = np.random.default_rng(seed)
    classes = labels.cpu().numpy()
    is_held_out = np.zeros(len(classes), dtype=bool)
    for name in np.unique(classes):
        rows = rng.permutation(np.flatnonzero(classes == name))
        number = min(len(rows) - 1, max(1, round(fraction * len(rows))))
        is_held_out[rows[:number]] = True
    return torch.from_numpy(is_held_out).to(labels.device)


def _backend(backend: Backend, num_nodes: int) -> Backend:
    return "dense" if backend == "auto" and num_nodes <= MAX_DENSE_NODES else backend


def _root_mean_square_norm(x: Features) -> float:
    entries = x.value if isinstance(x, SparseFeatures) else x
    norm = float((entries.double().square().sum() / x.shape[0]).sqrt())
    return norm if norm > 0 else 1.0  # all features are 0
