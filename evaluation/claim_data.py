"""The data behind every claim of ours: which nodes, which edges, which labels, by setting."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

from evaluation.npz import load_npz
from evaluation.sealed_test import SealedTest, seal
from evaluation.splits import random_split
from evaluation.tables import Table, load_table
from jlgcn.io.files import data_root
from jlgcn.paper import load_planetoid
from jlgcn.paper.citation import Planetoid
from jlgcn.paper.corrupt import corrupt
from jlgcn.paper.node_data import NodeData

#: Graphs whose classes are split by the seed, and where they are.
UNSPLIT = {
    "debian_packages": "graphs/debian_packages.npz",
    "blogcatalog": "graphs/blogcatalog.npz",
    "flickr": "graphs/flickr.npz",
    "amazon_photo": "graphs/amazon_photo.npz",
}
#: Graphs that come with ten splits; the seed says which.
TEN_SPLITS = {
    "actor": "heterophilous/actor.npz",
    "squirrel_filtered": "heterophilous/squirrel_filtered.npz",
}
ATTACKED = {"cora_metattack": "attacks/cora_metattack.npz"}


@dataclass(frozen=True)
class Setting:
    """What is taken away from a data set, or added to it.

    Attributes:
        edges_missing: share of the given edges that is removed.
        labels_missing: share of the training labels that is removed.
        attack: share of the edges that an attacker has changed, where the data have such graphs.
        datasets: the data sets it is for.
    """

    datasets: tuple[str, ...]
    edges_missing: float = 0.0
    labels_missing: float = 0.0
    attack: float | None = None


_CITATIONS = get_args(Planetoid)

SETTINGS: dict[str, Setting] = {
    "given": Setting((*_CITATIONS, "debian_packages")),
    "nograph": Setting(_CITATIONS, edges_missing=1.0),
    "edges75": Setting(("cora",), edges_missing=0.25),
    "edges50": Setting(("cora", "debian_packages"), edges_missing=0.5),
    "edges25": Setting(("cora",), edges_missing=0.75),
    "labels50": Setting(("cora",), labels_missing=0.5),
    "labels25": Setting(("cora",), labels_missing=0.75),
    "labels10": Setting(("cora",), labels_missing=0.9),
    "attack00": Setting(tuple(ATTACKED), attack=0.0),
    "attack10": Setting(tuple(ATTACKED), attack=0.1),
    "attack25": Setting(tuple(ATTACKED), attack=0.25),
    "tables": Setting(get_args(Table)),
    "others": Setting((*(name for name in UNSPLIT if name != "debian_packages"), *TEN_SPLITS)),
}


def has_public_split(dataset: str) -> bool:
    """Return whether all seeds have the same test nodes."""
    return dataset in _CITATIONS or dataset in ATTACKED


def draws_by_seed(setting: str, dataset: str) -> bool:
    """Return whether the seed decides the split, the edges or the labels of a claim's data."""
    found = SETTINGS[setting]
    return (
        not has_public_split(dataset) or 0 < found.edges_missing < 1 or 0 < found.labels_missing < 1
    )


def load_claim(
    setting: str, dataset: str, *, seed: int, root: Path | None = None, develops: bool = False
) -> NodeData:
    """Return the data of a claim, with the classes of its test nodes hidden (-1).

    Args:
        setting: one of :data:`SETTINGS`.
        dataset: one of its data sets.
        seed: of the split, where none is public, and of what is taken away.
        root: folder of the data; None for JLGCN_DATA.
        develops: return data for development instead: a split without any published test node,
            whose own test nodes have their classes. Where a split is public, it is drawn among the
            other nodes, whose classes alone are there: 20 labels a class and 500 to validate by, of
            attacked graphs, where 497 nodes remain, 150. Where splits are drawn by the seed, other
            seeds are used.

    Raises:
        ValueError: `develops` is set for data whose ten published splits leave too few nodes.
    """
    found = _find(setting, dataset)
    data = (
        _load_to_develop(found, dataset, seed, root)
        if develops
        else seal(_load(found, dataset, seed, root))[0]
    )
    return _without(data, found, seed)


def load_sealed(
    setting: str, dataset: str, *, seed: int, root: Path | None = None
) -> tuple[NodeData, SealedTest]:
    """Return the data of a claim as :func:`load_claim` does, and its test labels, sealed."""
    found = _find(setting, dataset)
    data, sealed = seal(_load(found, dataset, seed, root))
    return _without(data, found, seed), sealed


# Seeds of development are these and above; records of claims use 0 to 9.
_FRESH = 1000
# Validation nodes of development on attacked graphs: of 497 nodes, 133 train and 214 test.
_NUM_VAL_ATTACKED = 150


def _find(setting: str, dataset: str) -> Setting:
    if setting not in SETTINGS:
        raise ValueError(f"there is no setting {setting!r}; settings are {', '.join(SETTINGS)}")
    found = SETTINGS[setting]
    if dataset not in found.datasets:
        raise ValueError(
            f"{setting} is for {', '.join(found.datasets)}, but the data set is {dataset!r}"
        )
    return found


def _without(data: NodeData, setting: Setting, seed: int) -> NodeData:
    return corrupt(
        data,
        edges_missing=setting.edges_missing,
        labels_missing=setting.labels_missing,
        seed=seed,
    )


def _load_to_develop(setting: Setting, dataset: str, seed: int, root: Path | None) -> NodeData:
    if dataset in TEN_SPLITS:
        raise ValueError(
            f"{dataset} comes with ten splits, all of which claims are tested on: nine of ten "
            "nodes are a test node of one of them, and no split is left to develop on; develop on "
            "other data, for example others/blogcatalog"
        )
    data = _load(setting, dataset, seed + _FRESH, root)
    if not has_public_split(dataset):
        return data
    hidden, _ = seal(data)  # a split is drawn among nodes whose class is known
    num_val = _NUM_VAL_ATTACKED if dataset in ATTACKED else 500
    return random_split(hidden, num_val=num_val, seed=seed + _FRESH)


def _load(setting: Setting, dataset: str, seed: int, root: Path | None) -> NodeData:
    folder = data_root(root)
    if dataset in UNSPLIT:
        return random_split(load_npz(folder / UNSPLIT[dataset]), seed=seed)
    if dataset in TEN_SPLITS:
        return load_npz(folder / TEN_SPLITS[dataset], split=seed % 10)
    if dataset in ATTACKED:
        return load_npz(folder / ATTACKED[dataset], edges=f"edge_index_{setting.attack:.2f}")
    if dataset in _CITATIONS:
        return load_planetoid(cast(Planetoid, dataset), root)
    return load_table(cast(Table, dataset), seed=seed)
