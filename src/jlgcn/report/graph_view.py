"""Data of the interactive graph view: node positions, edges, and features of each edge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from jlgcn.estimator import JLGCNClassifier
from jlgcn.estimator.encoding import sum_by_name
from jlgcn.graphs import SparseGraph, as_graph, top_edges
from jlgcn.io.export import to_scipy
from jlgcn.report.held_out import label_codes

#: Colours of the most frequent classes, legible on white and on black; other classes are gray.
COLORS = (
    *("#3b82c4", "#e0862a", "#3f9e57", "#d1495b", "#8e63c7"),
    *("#a9745b", "#d874b4", "#9a9a23", "#22a3ad", "#6c7fd8"),
)
OTHER_COLOR = "#8a8f96"

_MAX_ROWS = 2000
_LISTED = 8  # top edges of a row in its list, of each kind
_DRAWN = 3  # top edges of a row in the picture, of each kind
_FEATURES = 6  # listed features of an edge
_LAYOUT_STEPS = 200
_START_WIDTH = 20.0
_STEP = 0.3  # first step size; it decreases linearly
_NEGATIVE_SAMPLES = 10  # random rows that repel each end of an edge, a step
_CHUNK_ENTRIES = 2**22  # differences of features in memory at a time


def graph_view(
    model: JLGCNClassifier,
    ids: Sequence[str],
    feature_names: Sequence[str],
    *,
    max_rows: int = _MAX_ROWS,
    progress: bool = False,
) -> dict[str, Any]:
    r"""Return positions, edges and edge features, as ``graph_view.js`` reads them.

    A force-directed layout with negative sampling, as in UMAP (`McInnes et al., 2018
    <https://arxiv.org/abs/1802.03426>`_). It starts from the ranks of rows along the first two
    principal components of the diffused features, or of the network's last hidden ones; then
    neighbours i, j attract each other, and random rows repel, by

    .. math::
        -\frac{2 a_{ij}}{1 + d^2} (p_i - p_j), \qquad
        \frac{2}{(0.01 + d^2)(1 + d^2)} (p_i - p_j)

    with d the distance in the plane. The axes have no meaning.

    Args:
        model: a fitted estimator.
        ids: names of its rows.
        feature_names: names of its features; contributions of one name are summed.
        max_rows (int, default 2000): most rows in the view; if there are more, labelled rows and
            their strongest neighbours are selected.
        progress (bool, default False): show progress bars.

    Returns:
        Lists that JSON can store. `edge.top` has the largest features of each edge and their
        contributions to its squared distance, see :meth:`JLGCNClassifier.explain_edge`.

    Cost: the edges of the selected rows, times 200 steps; and 4·in_channels FLOP a class for every
    listed edge. Nothing grows with the square of the rows.

    Example:
        >>> X = np.array([[0.0], [0.1], [5.0], [5.1]])
        >>> model = JLGCNClassifier().fit(X, [0, -1, 1, -1])
        >>> graph_view(model, ["a", "b", "c", "d"], ["size"])["row"]["id"]
        ['a', 'b', 'c', 'd']
    """
    learned, given = learned_and_given(model)
    labels = label_codes(model)
    total = learned * model.model_.learned_scale + given
    rows = choose_rows(total, np.flatnonzero(labels >= 0), max_rows)
    places = _layout(total[rows][:, rows], _start(model, rows), progress=progress)
    near, known = learned[rows][:, rows].tocsr(), given[rows][:, rows].tocsr()
    listed = scipy.sparse.triu(_heaviest(near, _LISTED) + _heaviest(known, _LISTED), 1).tocoo()
    drawn = _heaviest(near, _DRAWN) + _heaviest(known, _DRAWN)
    first, second = listed.row, listed.col
    distance, top, names = _explained(
        model, rows[first], rows[second], feature_names, progress=progress
    )
    used = sorted({k for features in top for k, _ in features})
    place = {k: number for number, k in enumerate(used)}
    probability = model.label_distributions_[rows]
    return {
        "classes": [str(name) for name in model.classes_],
        "colors": class_colors(model),
        "features": [str(names[k]) for k in used],
        "row": {
            "id": [str(ids[i]) for i in rows],
            "x": _rounded(places[:, 0], 4),
            "y": _rounded(places[:, 1], 4),
            "class": probability.argmax(-1).tolist(),
            "probability": _rounded(probability.max(-1), 3),
            "label": labels[rows].tolist(),
            "learned": learned[rows].astype(bool).sum(1).tolist(),
            "given": given[rows].astype(bool).sum(1).tolist(),
        },
        "edge": {
            "first": first.tolist(),
            "second": second.tolist(),
            "learned": _rounded(_entries(near, first, second), 3),
            "given": _rounded(_entries(known, first, second), 3),
            "drawn": (_entries(drawn, first, second) > 0).astype(int).tolist(),
            "distance": _rounded(distance, 4),
            "top": [[[place[k], float(f"{v:.3g}")] for k, v in features] for features in top],
        },
    }


def learned_and_given(
    model: JLGCNClassifier,
) -> tuple[scipy.sparse.csr_array, scipy.sparse.csr_array]:  # (N, N), (N, N)
    """Return the learned graph and the discounted given graph, without self-loops."""
    learned, given = _as_scipy(model.learned_graph()), model.model_.weighted_given()
    return learned, scipy.sparse.csr_array(learned.shape) if given is None else _as_scipy(given)


def choose_rows(
    graph: scipy.sparse.csr_array,  # (N, N)
    labeled: NDArray[np.int64],
    max_rows: int,
) -> NDArray[np.int64]:
    """Return rows to draw: all, or labelled rows and their strongest neighbours, breadth-first."""
    num_rows = graph.shape[0]
    if num_rows <= max_rows:
        return np.arange(num_rows)
    rng = np.random.default_rng(0)
    is_chosen = np.zeros(num_rows, dtype=bool)
    # A quarter, which leaves room for their neighbours.
    is_chosen[rng.permutation(labeled)[: max(1, max_rows // 4)]] = True
    while (room := max_rows - int(is_chosen.sum())) > 0:
        strength = np.where(is_chosen, 0.0, graph @ is_chosen.astype(np.float64))
        best = np.argsort(-strength, kind="stable")[:room]
        best = best[strength[best] > 0]
        if not len(best):  # no selected row has another neighbour
            best = rng.permutation(np.flatnonzero(~is_chosen))[:room]
        is_chosen[best] = True
    return np.flatnonzero(is_chosen)


def class_colors(model: JLGCNClassifier) -> list[str]:
    """Return a colour for each class, gray for those beyond the most frequent."""
    counts = np.bincount(model.label_distributions_.argmax(-1), minlength=len(model.classes_))
    colors = [OTHER_COLOR] * len(counts)
    shown = np.argsort(-counts, kind="stable")[: len(COLORS)]
    for color, place in zip(COLORS, sorted(shown.tolist()), strict=False):
        colors[place] = color
    return colors


def _as_scipy(graph: SparseGraph) -> scipy.sparse.csr_array:
    row, col = graph.edge_index.cpu().numpy()
    is_edge = row != col
    entries = graph.weight.cpu().numpy().astype(np.float64)[is_edge]
    size = (graph.num_nodes, graph.num_nodes)
    return scipy.sparse.csr_array((entries, (row[is_edge], col[is_edge])), shape=size)


def _heaviest(graph: scipy.sparse.csr_array, count: int) -> scipy.sparse.csr_array:
    """Return which edges are among the heaviest of either end."""
    return to_scipy(top_edges(as_graph(graph), top_k=count)).astype(bool)


def _entries(
    graph: scipy.sparse.csr_array, row: NDArray[np.int64], col: NDArray[np.int64]
) -> NDArray[np.float64]:
    if not len(row):
        return np.zeros(0)
    return np.asarray(graph.tocsr()[row, col], dtype=np.float64).ravel()


def _start(model: JLGCNClassifier, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the ranks of rows along the first two principal components, (len(rows), 2).

    Ranks, not coordinates: a class far from all others would leave them little room.
    """
    x = model.model_.embedding().cpu()[rows].double().numpy()
    x = x - x.mean(0)
    _, vectors = np.linalg.eigh(x.T @ x)
    found = x @ vectors[:, ::-1][:, :2]
    found = np.pad(found, ((0, 0), (0, 2 - found.shape[1])))
    noise = np.random.default_rng(0).normal(size=found.shape)  # equal rows would never separate
    order = np.argsort(np.argsort(found + 1e-9 * noise, axis=0), axis=0)
    centred: NDArray[np.float64] = _START_WIDTH * ((order + 0.5) / len(rows) - 0.5)
    return centred


def _layout(
    graph: scipy.sparse.csr_array, places: NDArray[np.float64], *, progress: bool
) -> NDArray[np.float64]:
    """Return positions of a force-directed layout, (n, 2), about within -1 and 1."""
    num_rows = len(places)
    upper = scipy.sparse.triu(graph, 1).tocoo()
    # Relative to the heaviest edges of both ends, so that sparse regions are drawn as dense ones.
    heaviest = np.maximum(graph.max(axis=1).toarray().ravel(), 1e-30)
    share = upper.data / np.sqrt(heaviest[upper.row] * heaviest[upper.col])
    rng = np.random.default_rng(0)
    steps = range(_LAYOUT_STEPS if upper.nnz else 0)
    for step in tqdm(steps, desc="layout", disable=None if progress else True):
        is_taken = rng.random(upper.nnz) < share
        i, j = upper.row[is_taken], upper.col[is_taken]
        pull = places[i] - places[j]
        pull *= -2 / (1 + (pull**2).sum(1, keepdims=True))
        ends = np.repeat(np.concatenate([i, j]), _NEGATIVE_SAMPLES)
        push = places[ends] - places[rng.integers(num_rows, size=len(ends))]
        square = (push**2).sum(1, keepdims=True)
        push *= 2 / ((0.01 + square) * (1 + square))
        moved = _summed(i, pull, num_rows) - _summed(j, pull, num_rows)
        moved += _summed(ends, np.clip(push, -4, 4), num_rows)
        length = np.linalg.norm(moved, axis=1, keepdims=True)
        moved *= np.minimum(1, 4 / np.maximum(length, 1e-30))
        places = places + _STEP * (1 - step / _LAYOUT_STEPS) * moved
    # Each axis fills the picture, except for outliers, which would make all else small.
    low, high = np.quantile(places, (0.005, 0.995), axis=0)
    middle, reach = (low + high) / 2, np.maximum((high - low) / 2, 1e-30)
    within: NDArray[np.float64] = np.clip((places - middle) / reach, -1.05, 1.05)
    return within


def _summed(
    index: NDArray[np.int64], values: NDArray[np.float64], size: int
) -> NDArray[np.float64]:
    columns = [np.bincount(index, values[:, axis], minlength=size) for axis in range(2)]
    return np.stack(columns, axis=1)


def _explained(
    model: JLGCNClassifier,
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    feature_names: Sequence[str],
    *,
    progress: bool,
) -> tuple[NDArray[np.float64], list[list[tuple[int, float]]], list[str]]:
    """Return squared distances of pairs, the features of the largest contributions, and names.

    :meth:`JLGCNClassifier.explain_edge` for many pairs at once.
    """
    size = max(1, _CHUNK_ENTRIES // model.model_.x.shape[1])
    device = model.model_.logits.device
    distances, top, names = [], [], list(feature_names)
    starts = range(0, len(first), size)
    for start in tqdm(starts, desc="edges explained", disable=None if progress else True):
        ends = (
            torch.from_numpy(rows[start : start + size].astype(np.int64)).to(device)
            for rows in (first, second)
        )
        added, names = sum_by_name(model.model_.contributions(*ends).cpu(), feature_names)
        place = added.abs().topk(min(_FEATURES, added.shape[1])).indices
        distances.append(added.sum(-1).numpy())
        for columns, values in zip(place.tolist(), added.gather(1, place).tolist(), strict=True):
            pair = zip(columns, values, strict=True)
            top.append([(column, value) for column, value in pair if value != 0])
    return np.concatenate(distances) if distances else np.zeros(0), top, names


def _rounded(values: NDArray[np.floating], digits: int) -> list[float]:
    """Return numbers of some significant digits, which keeps the page small."""
    return [float(f"{value:.{digits}g}") for value in values.tolist()]
