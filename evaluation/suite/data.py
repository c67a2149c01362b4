"""Data sets of the suite: development data only, no published test node."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

from jlgcn.paper import load_planetoid
from jlgcn.paper.citation import Planetoid

Matrix: TypeAlias = Any  # an array or a sparse matrix

#: Most rows of a data set; larger ones are sampled once.
MAX_ROWS = 5_000
MAX_TEXTS = 4_000

#: Labels a class; or, as strings, labels drawn from all rows: a share of them, or a number.
LABELS: tuple[int | str, ...] = (2, 5, 20)
SHARE = "1 %"
AT_WORK = "500"

_ROWS_OF_FEW_DRAWS = 2_000
_MIN_LABELS = 2
_STEPS = 100  # of a random walk that samples a graph
_RETURN = 0.15  # its probability of returning to its start
_TWICE = ("wdbc", "optdigits")  # which repeat breast cancer and digits


@dataclass(frozen=True, eq=False)
class Data:
    """A data set of the suite.

    Attributes:
        name: its name.
        kind: "table", "embeddings", "words", "cells" or "graph".
        x: features, (N, F), dense or sparse.
        y: classes, (N,); -1 for rows whose class is never read.
        edges: given edges, (2, E), each once; None without a graph.
        budgets: label budgets.
        methods: the only methods that are run; None for all.
    """

    name: str
    kind: str
    x: Any
    y: NDArray[np.int64]
    edges: NDArray[np.int64] | None = None
    budgets: tuple[int | str, ...] = LABELS
    methods: tuple[str, ...] | None = None

    @property
    def num_draws(self) -> int:
        """Draws of labels: ten, and five above 2,000 rows."""
        return 10 if len(self.y) <= _ROWS_OF_FEW_DRAWS else 5

    def draw(self, budget: int | str, seed: int) -> NDArray[np.int64]:
        """Return the classes with all but a few hidden, as -1.

        Args:
            budget: labels of each class, of which at most half of a class are shown; or, as a
                string, a share or number of all rows, drawn at random.
            seed: number of the draw.
        """
        # Every class has two labels at least, so that all methods can be cross-validated.
        order = np.random.default_rng(seed).permutation(len(self.y))
        order = order[self.y[order] >= 0]
        shown = np.full(len(self.y), -1)
        if isinstance(budget, str):
            some = order[: max(2, round(len(order) / 100)) if budget == SHARE else int(budget)]
            shown[some] = self.y[some]
        for label in np.unique(self.y[order]):
            members = order[self.y[order] == label]
            number = _MIN_LABELS if isinstance(budget, str) else min(budget, len(members) // 2)
            if (shown == label).sum() < number:
                shown[members[:number]] = label
        return shown


def data_sets(root: Path) -> dict[str, Callable[[], Data]]:
    """Return a loader for every data set of the suite, by name."""
    described = json.loads((root / "tables/keel.json").read_text())["tables"]
    found: dict[str, Callable[[], Data]] = {
        name: partial(_keel, root, name, described[name])
        for name in described
        if name not in _TWICE
    }
    for name in ("wine", "cancer", "digits"):
        found[name] = partial(_bundled, name)
    found["newsgroups"] = partial(_texts, root, "newsgroups")
    found["newsgroups, words"] = partial(_newsgroups_words, root)
    found["wordnet"] = partial(_texts, root, "wordnet")
    found["wordnet, edges"] = partial(_wordnet_with_edges, root)
    found["cells"] = partial(_cells, root)
    for name in ("cora", "citeseer"):
        found[name] = partial(_citations, root, name, with_edges=True)
        found[f"{name}, no edges"] = partial(_citations, root, name, with_edges=False)
    found["packages"] = partial(_packages, root)
    for share, name in ((1.0, "all packages"), (0.5, "all packages, half of the edges")):
        found[name] = partial(_all_packages, root, name, share)
    return found


def _sampled(size: int, most: int) -> NDArray[np.int64]:
    return np.random.default_rng(0).permutation(size)[:most]


def _keel(root: Path, name: str, described: dict[str, Any]) -> Data:
    with np.load(root / "tables/keel.npz") as file:
        x, y = file[f"{name}/x"].astype(np.float64), file[f"{name}/y"]
    categories = {int(column) for column in described["categorical_columns"]}
    columns = [
        (x[:, [k]] == np.unique(x[:, k])) if k in categories else x[:, [k]]
        for k in range(x.shape[1])
    ]
    rows = _sampled(len(y), MAX_ROWS)
    wide = np.hstack(columns).astype(np.float64)[rows]
    budgets = (*LABELS, SHARE) if described["group"] == "imbalanced" else LABELS
    return Data(name, "table", wide, y[rows], budgets=budgets)


def _bundled(name: str) -> Data:
    load = {"wine": load_wine, "cancer": load_breast_cancer, "digits": load_digits}[name]
    x, y = load(return_X_y=True)
    return Data(name, "table", x, y.astype(np.int64))


def _texts(root: Path, name: str) -> Data:
    file_name = "newsgroups" if name == "newsgroups" else "wordnet_nouns"
    with np.load(root / f"text/{file_name}.npz") as file:
        rows = _sampled(len(file["y"]), MAX_TEXTS)
        x, y = file["x"][rows].astype(np.float32), file["y"][rows].astype(np.int64)
    return Data(name, "embeddings", x, y)


def newsgroups(root: Path) -> Data:
    """Return the embeddings of all newsgroup texts."""
    with np.load(root / "text/newsgroups.npz") as file:
        x, y = file["x"].astype(np.float32), file["y"].astype(np.int64)
    return Data("newsgroups", "embeddings", x, y)


def _newsgroups_words(root: Path) -> Data:
    """Return counts of the 5,000 most frequent words in the same texts."""
    from sklearn.feature_extraction.text import CountVectorizer

    with np.load(root / "text/newsgroups.npz") as file:
        rows = _sampled(len(file["y"]), MAX_TEXTS)
        content, starts = file["texts_utf8"].tobytes(), file["texts_offsets"]
        texts = [content[starts[i] : starts[i + 1]].decode() for i in rows]
        y = file["y"][rows].astype(np.int64)
    x = CountVectorizer(max_features=5_000, stop_words="english").fit_transform(texts)
    return Data("newsgroups, words", "words", x.astype(np.float32), y)


def _wordnet_with_edges(root: Path) -> Data:
    with np.load(root / "text/wordnet_nouns.npz") as file:
        x, y, edges = file["x"], file["y"].astype(np.int64), file["edge_index"]
    return _walked("wordnet, edges", x.astype(np.float32), y, edges, MAX_TEXTS)


def _packages(root: Path) -> Data:
    return _walked("packages", *_read_packages(root), MAX_ROWS)


def _all_packages(root: Path, name: str, share: float) -> Data:
    """Return all packages with a share of the edges, for methods that take so many rows."""
    x, y, edges = _read_packages(root)
    kept = np.random.default_rng(0).random(edges.shape[1]) < share
    methods = ("jlgcn", "logistic regression", "neighbour means", "PageRank, given graph")
    return Data(name, "graph", x, y, edges[:, kept].astype(np.int64), (AT_WORK,), methods)


def _read_packages(root: Path) -> tuple[Matrix, NDArray[np.int64], NDArray[Any]]:
    with np.load(root / "graphs/debian_packages.npz") as file:
        parts = tuple(file[f"x_{name}"] for name in ("data", "indices", "indptr"))
        y, edges, shape = file["y"].astype(np.int64), file["edge_index"], tuple(file["x_shape"])
    return scipy.sparse.csr_matrix(parts, shape=shape, dtype=np.float32), y, edges


def _walked(name: str, x: Matrix, y: NDArray[np.int64], edges: NDArray[Any], size: int) -> Data:
    """Return the nodes of random walks with return, a sample that keeps neighbourhoods.

    Classes of fewer than four nodes are left out of scores and labels.
    """
    num_nodes = len(y)
    ends = np.hstack([edges, edges[::-1]])
    matrix = scipy.sparse.csr_matrix((np.ones(ends.shape[1]), tuple(ends)), shape=(num_nodes,) * 2)
    generator = np.random.default_rng(0)
    found: dict[int, None] = {}
    while len(found) < size:
        start = node = int(generator.integers(num_nodes))
        for _ in range(_STEPS):
            found[node] = None
            neighbors = matrix.indices[matrix.indptr[node] : matrix.indptr[node + 1]]
            if len(neighbors) == 0 or generator.random() < _RETURN:
                node = start
            else:
                node = int(generator.choice(neighbors))
    rows = np.array(list(found)[:size])
    place = np.full(num_nodes, -1)
    place[rows] = np.arange(len(rows))
    kept = place[edges][:, (place[edges] >= 0).all(0)]
    codes = y[rows]
    is_rare = np.bincount(codes)[codes] < 2 * _MIN_LABELS
    _, classes = np.unique(codes[~is_rare], return_inverse=True)
    codes[is_rare], codes[~is_rare] = -1, classes
    return Data(name, "graph", x[rows], codes, kept.astype(np.int64))


def _cells(root: Path) -> Data:
    with np.load(root / "cells/pbmc68k_reduced.npz") as file:
        return Data("cells", "cells", file["x_pca"].copy(), file["y"].astype(np.int64))


def _citations(root: Path, name: str, *, with_edges: bool) -> Data:
    data = load_planetoid(cast(Planetoid, name), root)
    y = data.y.numpy().copy()
    y[data.test.numpy()] = -1
    edges = data.edge_index.numpy()
    edges = edges[:, edges[0] < edges[1]]
    x = scipy.sparse.csr_matrix(data.x.numpy())
    if with_edges:
        return Data(name, "graph", x, y, edges)
    return Data(f"{name}, no edges", "words", x, y)
