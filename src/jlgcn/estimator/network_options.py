"""Settings of the estimator's gradient solver, declared once for training and saved models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from jlgcn._schema import Check, maybe, real, whole, word

Solver = Literal["closed_form", "gradient"]
SOLVERS: tuple[Solver, ...] = get_args(Solver)

#: Networks of ``solver="gradient"``: the presets of JLGCN, and DecoupledJLGCN.
NetworkPreset = Literal["authors", "paper", "decoupled"]
PRESETS: tuple[NetworkPreset, ...] = get_args(NetworkPreset)

_MAX_SEED = 2**32 - 1  # of NumPy


@dataclass(kw_only=True)
class NetworkOptions:
    """Settings of ``solver="gradient"``, which trains a network.

    Attributes:
        preset (str, default "authors"): "authors" and "paper" are :class:`jlgcn.nn.JLGCN` as in the
            code and the text of the paper; "decoupled" is :class:`jlgcn.nn.DecoupledJLGCN`, for
            which `network_layers` and `backend` have no effect.
        hidden_channels (int ≥ 1 or None, default None): features between layers. None is 16, of
            "decoupled" 64.
        network_layers (int ≥ 1, default 2): layers of the network, each of which learns a graph.
        dropout (float in [0, 1), default 0.5): dropout probability of the input of every layer.
        backend ("auto", "exact", "knn" or "dense", default "auto"): representation of learned
            graphs, see :class:`jlgcn.nn.GraphLearner`. "auto" is also dense up to 512 rows, where
            that is fastest.
        max_iter (int ≥ 1, default 200): epochs of training, each on all rows.
        learning_rate (float > 0 or None, default None): initial learning rate of Adam; it is halved
            four times, after each fifth of the epochs, and constant for "decoupled". None is 0.1,
            of "decoupled" 0.01.
        validation_fraction (float in (0, 1), default 0.2): share of the labels of each class, at
            least one if the class has two, that training does not see. They select the epoch.
        random_state (int or None, default 0): seed of the split, the initial parameters, dropout
            and probes; None draws one from NumPy's generator.
    """

    preset: NetworkPreset = "authors"
    hidden_channels: int | None = None
    network_layers: int = 2
    dropout: float = 0.5
    backend: Literal["auto", "exact", "knn", "dense"] = "auto"
    max_iter: int = 200
    learning_rate: float | None = None
    validation_fraction: float = 0.2
    random_state: int | None = 0


#: Type and range of every setting, also in saved models.
NETWORK_CHECKS: dict[str, Check] = {
    "preset": word(*PRESETS),
    "hidden_channels": maybe(whole(1, 10**8)),
    "network_layers": whole(1, 1000),
    "dropout": real(0, 0.999),
    "backend": word("auto", "exact", "knn", "dense"),
    "max_iter": whole(1, 10**9),
    "learning_rate": maybe(real(0, 1e6, above=True)),
    "validation_fraction": real(0.001, 0.999),
    "random_state": maybe(whole(0, _MAX_SEED)),
}


def check_network_options(options: NetworkOptions) -> None:
    """Raise a ValueError that names the first setting out of its range."""
    for name, check in NETWORK_CHECKS.items():
        value: Any = getattr(options, name)
        check(value.item() if isinstance(value, np.generic) else value, name)
