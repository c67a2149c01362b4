"""Solvers as frozen, their controls, and rivals, with one way to call them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evaluation.final.networks import NETWORKS, Network, train_network
from evaluation.final.peers import PEERS, Peer, train_peer
from evaluation.final.rows import FinalProblem, Row, Split
from evaluation.suite.methods import METHODS, WITH_GRAPH, closed_form
from jlgcn import JLGCNClassifier

#: Rivals of larger data sets, where the others take hours or more memory than there is.
_MAX_ROWS = 20_000
_OF_LARGE = (
    *("logistic regression", "PageRank features"),
    *("PageRank, given graph", "SGC", "SIGN", "neighbour means", "GCN", "SAGE", "APPNP"),
)
#: Exact graphs of more rows take too long.
_MAX_EXACT = 5_000
#: Methods whose fits take minutes have three splits of a row.
_SLOW = ("GCNII", "JLGCN", *PEERS)
_SPLITS_OF_SLOW = 3
#: But the strongest peer has all splits of these, where three could not tell it from ours.
_ALL_SPLITS = {"GRAND": ("cora, half of the edges", "cora, all edges")}
#: Seeds of random methods on a row with one split; three where a fit takes a minute or more.
_SEEDS, _SEEDS_OF_SLOW = 5, 3
_DETERMINISTIC = (
    *("closed form", "closed form, validation", "fixed kNN graph"),
    *("given graph alone", "learned graph alone"),
)


class Found(NamedTuple):
    """What a method says of all rows.

    Attributes:
        classes: predicted classes, (N,).
        chosen: settings that were selected, and what else is worth recording.
    """

    classes: NDArray[np.int64]
    chosen: dict[str, Any]


Method = Callable[[FinalProblem, int], Found]


def methods(row: Row, split: Split, number: int = 0) -> dict[str, Method]:
    """Return the methods that are run on a split, ours first; slow ones on three splits."""
    has_graph, has_validation = split.data.edges is not None, len(split.val) > 0
    found: dict[str, Method] = {"closed form": _estimator}
    if has_validation:
        found["closed form, validation"] = _validated
    found["fixed kNN graph"] = partial(_control, n_layers=1)
    found["random metric"] = partial(_control, control="random metric")
    found["shuffled graph"] = partial(_control, control="shuffled graph")
    if has_graph:
        found["given graph alone"] = partial(
            _control, n_layers=1, n_neighbors=20, learned_degree=0.0
        )
        found["learned graph alone"] = partial(_control, learned_alone=True)
    rivals = METHODS if not has_graph else METHODS | WITH_GRAPH
    found |= {
        name: partial(_rival, method=method) for name, method in rivals.items() if name != "jlgcn"
    }
    if has_validation:
        found |= {
            name: partial(_network, network=network)
            for name, network in NETWORKS.items()
            if has_graph or not network.needs_graph
        }
    num_rows = len(split.data.y)
    if num_rows > _MAX_ROWS:
        ours = [name for name in found if name not in METHODS | WITH_GRAPH | NETWORKS]
        found = {name: found[name] for name in found if name in (*ours, *_OF_LARGE)}
    if num_rows > _MAX_EXACT or row.group == "tables":
        found.pop("JLGCN", None)
    found |= {
        name: partial(_peer, peer=peer)
        for name, peer in PEERS.items()
        if peer.suits(row, has_graph)
    }
    if number >= _SPLITS_OF_SLOW:
        found = {
            name: method
            for name, method in found.items()
            if name not in _SLOW or row.name in _ALL_SPLITS.get(name, ())
        }
    return found


def is_random(name: str) -> bool:
    """Return whether a method depends on random numbers; peers and networks do."""
    rivals = METHODS | WITH_GRAPH
    return name in ("random metric", "shuffled graph") or (
        name not in rivals and name not in _DETERMINISTIC
    )


def seeds(name: str, row: Row) -> range:
    """Return the seeds of a method on each split of a row.

    Where there are several splits, the seed of a random method is the split's: what varies over
    splits then varies over seeds, too.
    """
    if not is_random(name) or row.num_splits > 1:
        return range(1)
    return range(_SEEDS_OF_SLOW if name in (*_SLOW, "DecoupledJLGCN") else _SEEDS)


def _estimator(problem: FinalProblem, seed: int) -> Found:
    """The estimator with its defaults, by the training labels alone."""
    return _rival(problem, seed, method=closed_form)


def _validated(problem: FinalProblem, seed: int) -> Found:
    """The same with validation labels, which select and are not learned from."""
    data, val = problem.data, problem.split.val
    graph = None if data.edges is None else np.hstack([data.edges, data.edges[::-1]])
    model = JLGCNClassifier().fit(data.x, data.y, graph, validation=val)
    return Found(model.classes_.searchsorted(model.transduction_), dict(model.best_params_))


def _control(
    problem: FinalProblem,
    seed: int,
    *,
    learned_alone: bool = False,
    **parameters: Any,  # noqa: ANN401
) -> Found:
    """The estimator without one of its parts, by the labels that its best mode has."""
    data, val = problem.data, problem.split.val
    edges = None if learned_alone else data.edges
    graph = None if edges is None else np.hstack([edges, edges[::-1]])
    model = JLGCNClassifier(**parameters)
    model.fit(data.x, data.y, graph, validation=val if len(val) else None)
    return Found(model.classes_.searchsorted(model.transduction_), dict(model.best_params_))


def _rival(problem: FinalProblem, seed: int, *, method: Any) -> Found:  # noqa: ANN401
    predicted = method(problem, problem.split.shown)
    return Found(predicted.scores.argmax(1), predicted.chosen)


def _network(problem: FinalProblem, seed: int, *, network: Network) -> Found:
    return Found(*train_network(network, problem, seed))


def _peer(problem: FinalProblem, seed: int, *, peer: Peer) -> Found:
    return Found(*train_peer(peer, problem, seed))
