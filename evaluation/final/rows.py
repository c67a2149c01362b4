"""Rows of the final evaluation: which data, what is taken away from them, which labels are shown.

A row has several splits. A split shows labels to learn from, perhaps others to select by
(validation), and seals those that are scored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast, get_args

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from evaluation.claim_data import ATTACKED, TEN_SPLITS, UNSPLIT
from evaluation.final.sealed import SealedTest
from evaluation.npz import load_npz
from evaluation.splits import random_split
from evaluation.suite.data import Data, data_sets, newsgroups
from evaluation.suite.methods import SuiteProblem
from jlgcn.estimator.rivals import Fold
from jlgcn.io.files import data_root
from jlgcn.paper import load_planetoid
from jlgcn.paper.citation import Planetoid
from jlgcn.paper.corrupt import corrupt
from jlgcn.paper.node_data import NodeData

#: Splits and draws of the final evaluation have these seeds and the next ones; development had
#: smaller ones.
FIRST_SEED = 5000

Kind = Literal["fresh", "public", "published", "draws"]
_CITATIONS = get_args(Planetoid)
_NUM_VALIDATION = 500


@dataclass(frozen=True)
class Row:
    """A data set in one setting.

    Attributes:
        name: its name in tables.
        group: what the reader has: see :data:`GROUPS`.
        dataset: name of the data.
        kind: "fresh" (20 labels a class and 500 validation nodes, drawn among all nodes; all others
            are scored), "public" (the one split of the literature), "published" (ten splits that
            come with the data) or "draws" (a few labels a class and no validation).
        num_splits: number of splits.
        edges_missing: share of the given edges that is removed, by the split.
        labels_missing: share of the training labels that is removed, by the split.
        labels: labels of each class, of "draws".
        attack: share of the edges that an attacker changed.
    """

    name: str
    group: str
    dataset: str
    kind: Kind = "fresh"
    num_splits: int = 10
    edges_missing: float = 0.0
    labels_missing: float = 0.0
    labels: int = 20
    attack: float = 0.0


@dataclass(frozen=True, eq=False)
class Split:
    """What a method sees of a row.

    Attributes:
        data: features, edges and classes, -1 where they are neither shown nor for validation.
        train: rows with a label to learn from, (T,).
        val: rows whose labels select, (V,); empty without validation.
        sealed: the rows that are scored, and their classes.
    """

    data: Data
    train: NDArray[np.int64]
    val: NDArray[np.int64]
    sealed: SealedTest

    @property
    def shown(self) -> NDArray[np.int64]:
        """Classes of training rows, -1 elsewhere, (N,)."""
        shown = np.full(len(self.data.y), -1)
        shown[self.train] = self.data.y[self.train]
        return shown


class FinalProblem(SuiteProblem):
    """A split, and what rivals share of it; validation labels select, where there are some."""

    def __init__(self, split: Split) -> None:
        super().__init__(split.data)
        self.split = split

    def selection(self, shown: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[Fold]]:
        """Return classes, and the folds; with validation, training and validation rows alone."""
        if not len(self.split.val):
            return super().selection(shown)
        return self.data.y, [(self.split.train, self.split.val)]


GROUPS = {
    "text": "texts, few labels",
    "none": "no graph",
    "partial": "part of a graph",
    "labels": "a tenth of the labels",
    "attacked": "an attacked graph",
    "whole": "a whole graph",
    "misleading": "a heterophilous graph",
    "tables": "tables",
    "public": "public splits",
}

# Data that nothing was developed on, beside those of claims.
_GRAPHS = UNSPLIT | {name: f"graphs/{name}.npz" for name in ("amazon_cs", "coauthor_cs")}
_TEN = TEN_SPLITS | {"chameleon_filtered": "heterophilous/chameleon_filtered.npz"}

_TABLES = (
    *("wine", "cancer", "digits", "bands", "bupa", "contraceptive", "heart", "ionosphere"),
    *("letter", "mammographic", "movement_libras", "phoneme", "saheart", "segment", "spambase"),
    *("tae", "tic-tac-toe", "vehicle", "wisconsin"),
)


def rows() -> dict[str, Row]:
    """Return all rows by name, the most important first."""
    found = []
    for name in ("cora", "citeseer"):
        found.append(Row(f"{name}, no graph", "none", name, edges_missing=1.0))
    found.append(Row("pubmed, no graph", "none", "pubmed", num_splits=5, edges_missing=1.0))
    for share, words in ((0.5, "half of the edges"), (0.75, "a quarter of the edges")):
        found.append(Row(f"cora, {words}", "partial", "cora", edges_missing=share))
    found += [
        Row(f"newsgroups, {labels} labels a class", "text", "newsgroups", "draws", 5, labels=labels)
        for labels in (2, 5)
    ]
    found.append(Row("cora, a tenth of the labels", "labels", "cora", labels_missing=0.9))
    found.append(Row("cora, 25 % attacked", "attacked", "cora_metattack", "public", 1, attack=0.25))
    for name in ("cora", "citeseer"):
        found.append(Row(f"{name}, all edges", "whole", name))
    packages = Row("packages, half of the edges", "partial", "debian_packages", num_splits=3)
    found.append(replace(packages, edges_missing=0.5))
    found.append(replace(packages, name="packages, all edges", group="whole"))
    found.append(Row("pubmed, all edges", "whole", "pubmed", num_splits=5))
    found += [
        Row(f"{name}, 5 labels a class", "tables", name, "draws", 10, labels=5) for name in _TABLES
    ]
    for name in ("amazon_cs", "coauthor_cs"):
        found.append(Row(f"{name}, all edges", "whole", name, num_splits=5))
        found.append(Row(f"{name}, no graph", "none", name, num_splits=5, edges_missing=1.0))
    for name in ("blogcatalog", "flickr", "amazon_photo"):
        found.append(Row(f"{name}, all edges", "whole", name, num_splits=5))
    attacked = Row("cora, 10 % attacked", "attacked", "cora_metattack", "public", 1, attack=0.1)
    found += [attacked, replace(attacked, name="cora, not attacked", group="whole", attack=0.0)]
    found += [Row(f"{name}, ten splits", "misleading", name, "published") for name in sorted(_TEN)]
    for name in _CITATIONS:
        found.append(Row(f"{name}, public split", "public", name, "public", 1))
        row = Row(f"{name}, public split, no graph", "public", name, "public", 1)
        found.append(replace(row, edges_missing=1.0))
    return {row.name: row for row in found}


def rows_of(folder: Path) -> dict[str, Row]:
    """Return rows for the NPZ files of a folder: data that were not at hand.

    Graphs are read by :func:`evaluation.npz.load_npz`: with indices of a split, it is used; with
    masks, all of them are; without, ten splits are drawn. Files without edges are tables (`x`, `y`)
    or texts (`texts`, a list of strings, and `y`), of which 5 and 20 labels a class are shown in
    ten draws.
    """
    found: list[Row] = []
    for path in sorted(folder.glob("*.npz")):
        with np.load(path, allow_pickle=False) as file:
            names = set(file.files)
            num_masks = len(file["train_masks"]) if "train_masks" in names else 0
        if num_masks:
            found.append(Row(path.stem, "whole", str(path), "published", num_masks))
        elif names & {"edges", "edge_index"}:
            has_split = "train" in names
            kind: Kind = "public" if has_split else "fresh"
            found.append(Row(path.stem, "whole", str(path), kind, 1 if has_split else 10))
        else:
            group = "text" if "texts" in names else "tables"
            found += [
                Row(
                    f"{path.stem}, {labels} labels a class",
                    group,
                    str(path),
                    "draws",
                    10,
                    labels=labels,
                )
                for labels in (5, 20)
            ]
    if not found:
        raise ValueError(f"there is no NPZ file in {folder}; pass a folder with some")
    return {row.name: row for row in found}


def load(row: Row, split: int, root: Path | None = None) -> Split:
    """Return a split of a row, with the classes that are scored sealed."""
    if row.kind == "draws":
        return _draw(row, split, root)
    data = _load(row, split, root)
    test, labels = data.test, data.y[data.test]
    if bool((labels < 0).any()):
        raise ValueError(f"{int((labels < 0).sum())} test nodes of {row.name} have no class")
    data = corrupt(
        data,
        edges_missing=row.edges_missing,
        labels_missing=row.labels_missing,
        seed=FIRST_SEED + split,
    )
    y = torch.full_like(data.y, -1)
    seen = torch.cat([data.train, data.val])
    y[seen] = data.y[seen]
    edges = data.edge_index[:, data.edge_index[0] < data.edge_index[1]].numpy()
    found = Data(
        row.name,
        "graph",
        _features(data.x),
        y.numpy(),
        edges if edges.shape[1] else None,
    )
    return Split(found, data.train.numpy(), data.val.numpy(), SealedTest(test, labels))


def _draw(row: Row, split: int, root: Path | None) -> Split:
    """Return a draw of labels from all rows of a table or of texts."""
    folder = Path() if row.dataset.endswith(".npz") else data_root(root)
    if row.dataset.endswith(".npz"):
        data = _file_data(row)
    elif row.dataset == "newsgroups":
        data = newsgroups(folder)
    else:
        data = data_sets(folder)[row.dataset]()
    shown = data.draw(row.labels, FIRST_SEED + split)
    train, scored = np.flatnonzero(shown >= 0), np.flatnonzero((shown < 0) & (data.y >= 0))
    sealed = SealedTest(torch.from_numpy(scored), torch.from_numpy(data.y[scored]))
    none = np.empty(0, dtype=np.int64)
    return Split(replace(data, y=shown), train, none, sealed)


def _load(row: Row, split: int, root: Path | None) -> NodeData:
    name = row.dataset
    if name.endswith(".npz"):
        data = load_npz(name, split=split if row.kind == "published" else 0)
        return data if row.kind != "fresh" else _drawn(data, split)
    folder = data_root(root)
    if name in ATTACKED:
        return load_npz(folder / ATTACKED[name], edges=f"edge_index_{row.attack:.2f}")
    if name in _TEN:
        return load_npz(folder / _TEN[name], split=split)
    if name in _CITATIONS:
        data = load_planetoid(cast(Planetoid, name), root)
        if row.kind == "public":
            return data
    else:
        data = load_npz(folder / _GRAPHS[name])
    return _drawn(data, split)


def _drawn(data: NodeData, split: int) -> NodeData:
    return random_split(data, num_val=_NUM_VALIDATION, seed=FIRST_SEED + split)


def _file_data(row: Row) -> Data:
    """Return a table or texts of a file; texts as counts of their 5,000 most frequent words."""
    with np.load(row.dataset, allow_pickle=False) as file:
        y = file["y"].astype(np.int64)
        if row.group == "text":
            from sklearn.feature_extraction.text import CountVectorizer

            words = CountVectorizer(max_features=5_000, stop_words="english")
            counts = words.fit_transform(file["texts"].tolist())
            return Data(row.name, "words", counts.astype(np.float32), y)
        return Data(row.name, "table", file["x"].astype(np.float64), y)


def _features(x: Tensor) -> NDArray[np.float32] | scipy.sparse.csr_matrix:
    """Return words as a sparse matrix, other features as an array."""
    is_sparse = bool((x >= 0).all()) and float((x > 0).float().mean()) < 0.1
    return scipy.sparse.csr_matrix(x.numpy()) if is_sparse else x.numpy()
