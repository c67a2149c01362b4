"""The data behind every claim of ours: which nodes, which edges, which labels, by setting."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

from jlgcn.data import (
    NodeData,
    data_root,
    load_npz,
    load_planetoid,
    load_table,
    random_split,
    take_away,
)
from jlgcn.data.citation import Planetoid
from jlgcn.data.tables import Table

#: Graphs whose classes are split by the seed, and where they are.
_UNSPLIT = {
    "debian_packages": "graphs/debian_packages.npz",
    "blogcatalog": "graphs/blogcatalog.npz",
    "flickr": "graphs/flickr.npz",
    "amazon_photo": "graphs/amazon_photo.npz",
}
#: Graphs that come with ten splits; the seed says which.
_TEN_SPLITS = {
    "actor": "heterophilous/actor.npz",
    "squirrel_filtered": "heterophilous/squirrel_filtered.npz",
}
_ATTACKED = {"cora_metattack": "attacks/cora_metattack.npz"}


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
    "attack00": Setting(tuple(_ATTACKED), attack=0.0),
    "attack10": Setting(tuple(_ATTACKED), attack=0.1),
    "attack25": Setting(tuple(_ATTACKED), attack=0.25),
    "tables": Setting(get_args(Table)),
    "others": Setting((*(name for name in _UNSPLIT if name != "debian_packages"), *_TEN_SPLITS)),
}


def has_public_split(dataset: str) -> bool:
    """Return whether all seeds have the same test nodes."""
    return dataset in _CITATIONS or dataset in _ATTACKED


def load_claim(
    setting: str, dataset: str, *, seed: int, root: Path | None = None, develops: bool = False
) -> NodeData:
    """Return the data of a claim.

    Args:
        setting: one of :data:`SETTINGS`.
        dataset: one of its data sets.
        seed: of the split, where none is public, and of what is taken away.
        root: folder of the data; None for JLGCN_DATA.
        develops: for everything that is decided while a method is developed. Where a split is
            public, a fresh one is drawn, of 20 labels a class and 500 to validate by, without any
            test node of the public one; where splits are drawn by the seed, other seeds are used.
            Attacks are made for one split, and of data that come with ten every node is somebody's
            test node: there the split stays, and only validation nodes may be looked at.
    """
    if setting not in SETTINGS:
        raise ValueError(f"there is no setting {setting!r}; settings are {', '.join(SETTINGS)}")
    found = SETTINGS[setting]
    if dataset not in found.datasets:
        raise ValueError(
            f"{setting} is for {', '.join(found.datasets)}, but the data set is {dataset!r}"
        )
    data = _load(found, dataset, seed + (_FRESH if develops else 0), root)
    if develops and dataset in _CITATIONS:
        data = random_split(data, exclude=data.test, seed=seed + _FRESH)
    return take_away(
        data,
        edges_missing=found.edges_missing,
        labels_missing=found.labels_missing,
        seed=seed,
    )


# Seeds of development are these and above; records of claims use 0 to 9.
_FRESH = 1000


def _load(setting: Setting, dataset: str, seed: int, root: Path | None) -> NodeData:
    folder = data_root(root)
    if dataset in _UNSPLIT:
        return random_split(load_npz(folder / _UNSPLIT[dataset]), seed=seed)
    if dataset in _TEN_SPLITS:
        return load_npz(folder / _TEN_SPLITS[dataset], split=seed % 10)
    if dataset in _ATTACKED:
        return load_npz(folder / _ATTACKED[dataset], edges=f"edge_index_{setting.attack:.2f}")
    if dataset in _CITATIONS:
        return load_planetoid(cast(Planetoid, dataset), root)
    return load_table(cast(Table, dataset), seed=seed)
