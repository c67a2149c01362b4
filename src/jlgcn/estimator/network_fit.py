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
from jlgcn.nn import JLGCN
from jlgcn.nn.learner import MAX_DENSE_NODES, Backend
from jlgcn.nn.options import JLGCNOptions, resolve_options
from jlgcn.ops import SparseFeatures
from jlgcn.training import FitResult, RunOptions, TrainConfig, fit_nodes

#: Neighbours of a row in a kNN graph where `n_neighbors` is None.
NUM_NEIGHBORS = 16

# The learning rate is constant for a fifth of the epochs, as in the paper's code (100 of 500).
_NUM_RATES = 5


def fit_network(
    x: Features,  # (N, in_channels)
    y: Tensor,  # (N,), int64
    graph: SparseGraph | None = None,
    *,
    train: Tensor,  # (M,), int64
    options: NetworkOptions,
    num_neighbors: int = NUM_NEIGHBORS,
    progress: bool = False,
) -> NetworkModel:
    """Train a JLGCN on rows with some labels; held-out labels select the epoch.

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
        network = JLGCN(
            x.shape[1],
            options.hidden_channels,
            int(y[train].max()) + 1,
            options.network_layers,
            dropout=options.dropout,
            options=_network_options(options),
            backend=_backend(options.backend, x.shape[0]),
            num_neighbors=num_neighbors,
        ).to(y.device)
        result = _trained(network, x, known, given, learned_from, validation, options, progress)
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


def _trained(
    network: JLGCN,
    x: Features,
    y: Tensor,
    given: SparseGraph | None,
    train: Tensor,
    validation: Tensor,
    options: NetworkOptions,
    progress: bool,
) -> FitResult:
    config = TrainConfig(
        epochs=int(options.max_iter),
        lr=float(options.learning_rate),
        lr_step=math.ceil(options.max_iter / _NUM_RATES),
    )
    run = RunOptions(progress=progress, label="training")
    try:
        with _health_in_words_of_the_estimator():
            return fit_nodes(
                network, x, y, given, train=train, val=validation, config=config, options=run
            )
    except FloatingPointError as error:
        raise ValueError(
            f"the network diverged ({error}); pass a smaller learning_rate than "
            f"{options.learning_rate}"
        ) from None
    except MemoryError as error:
        raise ValueError(f'{error}; pass a smaller n_neighbors, or solver="closed_form"') from None


@contextmanager
def _health_in_words_of_the_estimator() -> Iterator[None]:
    """Replace the remedy of warnings about a learned graph by one that an estimator has."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        if issubclass(warning.category, GraphHealthWarning):
            fact = str(warning.message).partition(";")[0]
            remedy = 'compare with solver="closed_form", or pass another preset or learning_rate'
            warnings.warn(f"{fact}; {remedy}", GraphHealthWarning, stacklevel=5)
        else:
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


def _network_options(options: NetworkOptions) -> JLGCNOptions:
    preset = resolve_options(options.preset)
    return replace(preset, metric_init="median") if preset.metric_init == "random" else preset


def _backend(backend: Backend, num_nodes: int) -> Backend:
    return "dense" if backend == "auto" and num_nodes <= MAX_DENSE_NODES else backend


def _root_mean_square_norm(x: Features) -> float:
    entries = x.value if isinstance(x, SparseFeatures) else x
    norm = float((entries.double().square().sum() / x.shape[0]).sqrt())
    return norm if norm > 0 else 1.0  # all features are 0
