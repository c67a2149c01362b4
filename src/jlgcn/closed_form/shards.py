"""The steps of the closed form that see all nodes, as pure functions of shards.

A stage reads tensors from named files and returns tensors: those of a new file, and a small summary
for the driver. Nodes are numbered shard after shard. A row of a graph belongs to the shard of its
node, columns are numbers of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from jlgcn.closed_form.local import Hops
from jlgcn.closed_form.scaling import FeatureScaler
from jlgcn.graphs.candidates import UNIT_NEIGHBORS, Features
from jlgcn.ops import SparseFeatures
from jlgcn.ops.cells import CellIndex, train_cells
from jlgcn.ops.sparse_matrix import pair_distances

#: Most equal rows of a shard that are in the index: more would make a cell that takes O(N²).
MAX_EQUAL = 256

#: Most shards: by_shard sorts their numbers as 16 bits, by radix.
MAX_SHARDS = 2**16

# Principal components by which sparse rows are searched.
_SEARCHED_COMPONENTS = 128

# Queries of a search in memory at a time.
_CHUNK_QUERIES = 2**16

# Distances by which all shards together estimate the unit.
_UNIT_ENTRIES = 2**21


@dataclass(frozen=True, eq=False)
class Output:
    """What a stage returns.

    Attributes:
        tensors: the content of its file.
        summary: small tensors for the driver.
        write: writes the content of a file that holds no tensors; None for `tensors`.
        suffix: how the name of a file for others ends, which has no summary; "" for our own.
    """

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    summary: Mapping[str, Tensor] = field(default_factory=dict)
    write: Callable[[BinaryIO], None] | None = None
    suffix: str = ""


class Files(Protocol):
    """The files of earlier stages, by name."""

    def tensors(self, name: str, *, keep: bool = True) -> Mapping[str, Tensor]:
        """Return tensors that are mapped: read from disk as far as they are used.

        Args:
            name: of the file.
            keep: whether the map is kept for later tasks; a file that will be deleted must not be,
                or its blocks stay.
        """

    def path(self, name: str) -> Path:
        """Return the path of a file on this machine."""


Stage = Callable[..., Output]


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of all nodes, in a file for each shard.

    Attributes:
        files: the files.
        names: name of each shard's file.
        bounds: number of the first node of each shard, and N.
    """

    files: Files
    names: Sequence[str]
    bounds: Sequence[int]

    def tensors(self, shard: int) -> Mapping[str, Tensor]:
        """Return the tensors of a shard."""
        return self.files.tensors(self.names[shard])

    def gather(self, key: str, index: Tensor) -> Tensor:  # (K, …)
        """Return some rows of a tensor, in any order."""
        found: Tensor | None = None
        for shard, places, local in self.by_shard(index):
            rows = self.tensors(shard)[key][local]
            if found is None:
                found = rows.new_empty(len(index), *rows.shape[1:])
            found[places] = rows
        if found is None:
            found = self.tensors(0)[key][:0].clone()
        return found

    def all(self, key: str) -> Tensor:  # (N, …)
        """Return all rows of a tensor."""
        return torch.cat([self.files.tensors(name)[key] for name in self.names])

    def columns(self, key: str, first: int, last: int) -> Tensor:  # (N, last - first)
        """Return some columns of all rows."""
        parts = [self.files.tensors(name)[key][:, first:last] for name in self.names]
        return torch.cat(parts)

    def shard(self, number: int) -> Features:
        """Return the features of a shard."""
        return read_features(self.tensors(number))

    def features(self, index: Tensor) -> Features:
        """Return the features of some nodes, in any order."""
        if "x" in self.tensors(0):
            return self.gather("x", index)
        parts, order = [], []
        for shard, places, local in self.by_shard(index):
            parts.append(_as_scipy(self.tensors(shard))[local.numpy()])
            order.append(places)
        if not parts:
            return SparseFeatures.from_scipy(_as_scipy(self.tensors(0))[:0])
        return SparseFeatures.from_scipy(
            scipy.sparse.vstack(parts)[torch.cat(order).argsort().numpy()]
        )

    def by_shard(self, index: Tensor) -> list[tuple[int, Tensor, Tensor]]:
        """Return, for every shard that has some of the nodes, their places and local numbers."""
        bounds = torch.tensor(self.bounds)
        shard = (torch.searchsorted(bounds, index, right=True) - 1).numpy().astype(np.uint16)
        order = torch.from_numpy(shard.argsort(kind="stable"))  # a radix sort
        counts = np.bincount(shard, minlength=len(self.names)).tolist()
        parts = zip(range(len(counts)), order.split(counts), strict=True)
        return [(s, places, index[places] - self.bounds[s]) for s, places in parts if len(places)]


def read_features(tensors: Mapping[str, Tensor]) -> Features:
    """Return the features in a file."""
    return tensors["x"] if "x" in tensors else SparseFeatures.from_scipy(_as_scipy(tensors))


def _as_scipy(tensors: Mapping[str, Tensor]) -> Any:  # noqa: ANN401
    value, col, crow = (tensors[name].numpy() for name in ("value", "col", "crow"))
    return scipy.sparse.csr_array((value, col, crow), shape=(len(crow) - 1, int(tensors["width"])))


def features_to_tensors(x: Features) -> dict[str, Tensor]:
    """Return the tensors of a file of features."""
    if isinstance(x, Tensor):
        return {"x": x}
    width = torch.tensor(x.shape[1])
    return {"crow": x.crow.int(), "col": x.col.int(), "value": x.value, "width": width}


# Features


def scale_features(files: Files, raw: str, scaler: str, settings: dict[str, Any]) -> Output:
    """Scale the features of a shard, with the Gram matrix of few columns."""
    x = scaled(files, scaler, settings, read_features(files.tensors(raw)))
    summary = {"gram": _gram(x)} if x.shape[1] < 1024 else {}
    return Output(features_to_tensors(x), summary)


def scaled(files: Files, scaler: str, settings: dict[str, Any], x: Features) -> Features:
    """Return features, scaled; those of a kind that is not for words become dense."""
    found = files.tensors(scaler)
    if isinstance(x, SparseFeatures) and settings["kind"] != "words":
        x = torch.from_numpy(x.to_scipy().toarray())
    return FeatureScaler(shift=found["shift"], scale=found["scale"], **settings)(x)


def gram_product(files: Files, x: str, basis: str) -> Output:
    """Return Xᵀ (X Q) of a shard, for a basis Q."""
    features, q = read_features(files.tensors(x)), files.tensors(basis)["basis"]
    return Output(summary={"product": features.mT @ (features @ q)})


def gram_of_image(files: Files, x: str, basis: str) -> Output:
    """Return (X Q)ᵀ (X Q) of a shard, for a basis Q."""
    return Output(
        summary={"gram": _gram(read_features(files.tensors(x)) @ files.tensors(basis)["basis"])}
    )


def project(files: Files, x: str, projection: str) -> Output:
    """Return the principal components of a shard, and their moments."""
    components = read_features(files.tensors(x)) @ files.tensors(projection)["projection"]
    summary = {"moment": _gram(components), "total": components.double().sum(0)}
    return Output({"features": components}, summary)


def _gram(x: Features) -> Tensor:
    if isinstance(x, SparseFeatures):
        return torch.from_numpy((x.to_scipy().T @ x.to_scipy()).toarray()).double()
    return x.double().mT @ x.double()


def pick(files: Files, names: list[str], bounds: list[int], key: str, index: str) -> Output:
    """Return some rows of a tensor, or of the features for the key "x"."""
    rows, wanted = Rows(files, names, bounds), files.tensors(index)["index"]
    if key != "x":
        return Output(summary={"rows": rows.gather(key, wanted)})
    return Output(summary={"rows": Hops(rows.features(wanted), None).rows(_range(wanted))[0]})


def _range(like: Tensor) -> Tensor:
    return torch.arange(len(like))


# Candidates


def train_index(
    files: Files, names: list[str], bounds: list[int], key: str, num_cells: int, num_rows: int
) -> Output:
    """Return the coarse quantiser of an inverted file, trained on evenly spaced rows."""
    count = min(num_rows, bounds[-1])
    index = torch.arange(count) * bounds[-1] // count
    points = _searched(Rows(files, names, bounds).gather(key, index), key)
    return Output({"quantizer": train_cells(points, num_cells)})


def assign_cells(files: Files, points: str, x: str, key: str, quantizer: str) -> Output:
    """Return the cells that a row of a shard looks at, "near", and the one that it is in, "cell".

    -1 for rows that are not in the index: those of zeros of sparse features, which are nobody's
    neighbours, and more than :data:`MAX_EQUAL` equal rows.
    """
    found = _searched(files.tensors(points)[key], key).contiguous()
    kept = _few_equal(found)
    features = files.tensors(x)
    if "crow" in features:
        kept &= features["crow"].diff() > 0
    near = CellIndex.assign(files.tensors(quantizer)["quantizer"], found).int()
    return Output({"near": near, "cell": near[:, 0].where(kept, -1)})


def order_rows(files: Files, cells: list[str], bounds: list[int], old: str | None = None) -> Output:
    """Number rows cell after cell: neighbours get near numbers, and are read from near places.

    Args:
        files: the files.
        cells: cells of the rows of each shard; none where there are `old` ones.
        bounds: number of the first row of each shard, and N.
        old: the order of the first rows, after which new ones stay as they are.

    Returns:
        "order", the row of the table at each number, and "number" of each row of the table, (N,).
    """
    if old is None:
        cell = Rows(files, cells, bounds).all("cell")
        cell[cell < 0] = torch.iinfo(torch.int32).max
        order = torch.from_numpy(cell.numpy().argsort(kind="stable")).int()
    else:
        first = files.tensors(old)["order"]
        order = torch.cat([first, torch.arange(len(first), bounds[-1], dtype=torch.int32)])
    number = torch.empty_like(order)
    number[order.long()] = torch.arange(len(order), dtype=torch.int32)
    return Output({"order": order, "number": number})


def renumber(
    files: Files, names: list[str], key: str, order: str, bounds: list[int], shard: int
) -> Output:
    """Return a tensor's rows of a shard in the order of :func:`order_rows`."""
    wanted = files.tensors(order)["order"][slice(*bounds[shard : shard + 2])].long()
    rows = Rows(files, names, bounds)
    if key == "x":
        return Output(features_to_tensors(rows.features(wanted)))
    return Output({key: rows.gather(key, wanted)})


def renumber_edges(files: Files, edges: str, order: str, bounds: list[int]) -> Output:
    """Return edges between rows of the table as edges between their numbers, sorted by row."""
    found, number = files.tensors(edges), files.tensors(order)["number"].long()
    row, col = number[found["row"].long()], number[found["col"].long()]
    by_row = torch.from_numpy((row * bounds[-1] + col).numpy().argsort(kind="stable"))
    row = row[by_row]
    starts = torch.searchsorted(row, torch.tensor(bounds))
    tensors = {"row": row, "col": col[by_row].int(), "weight": found["weight"][by_row]}
    return Output(tensors | {"starts": starts})


def _searched(rows: Tensor, key: str) -> Tensor:
    """Return the columns that are searched: all of dense features, some principal components."""
    return rows.float() if key == "x" else rows[:, :_SEARCHED_COMPONENTS].float()


def searched(x: Features, components: Tensor) -> Tensor:
    """Return the columns of new rows that are searched, of their features or components."""
    return _searched(x, "x") if isinstance(x, Tensor) else _searched(components, "features")


def _few_equal(points: Tensor) -> Tensor:  # (n,), bool
    """Return which rows are among the first of those that are equal to them."""
    rows = points.numpy().view(np.dtype((np.void, 4 * points.shape[1]))).ravel()
    equal = np.unique(rows, return_inverse=True)[1]
    order = equal.argsort(kind="stable")
    starts = np.searchsorted(equal[order], np.arange(equal.max(initial=-1) + 1))
    rank = np.empty(len(equal), dtype=np.int64)
    rank[order] = np.arange(len(equal)) - starts[equal[order]]
    return torch.from_numpy(rank < MAX_EQUAL)


def merge_index(
    files: Files,
    points: list[str],
    key: str,
    cells: list[str],
    first: list[int],
    quantizer: str,
    index: str | None = None,
) -> Output:
    """Merge the rows of shards, and an index, into the file of one that is then mapped.

    Args:
        files: the files.
        points: rows of each shard.
        key: their tensor.
        cells: their cells.
        first: number of the first row of each.
        quantizer: the cells' centroids.
        index: an index with other rows; None for none.
    """
    merged = CellIndex.empty(files.tensors(quantizer)["quantizer"])
    if index is not None:
        merged.merge(CellIndex.read(files.path(index)))
    for name, of_rows, start in zip(points, cells, first, strict=True):
        cell = files.tensors(of_rows)["cell"].long()
        row = (cell >= 0).nonzero().flatten()
        merged.add(_searched(files.tensors(name)[key], key)[row], row + start, cell[row])
    return Output(write=merged.write)


def search(
    files: Files,
    index: str,
    points: str,
    key: str,
    cells: str,
    x: list[str],
    bounds: list[int],
    shard: int,
    num_candidates: int,
) -> Output:
    """Search the nearest neighbours of a shard's rows; -1, and inf, where there are fewer."""
    found, own = CellIndex.read(files.path(index)), _searched(files.tensors(points)[key], key)
    near = files.tensors(cells)["near"]
    rows = torch.arange(bounds[shard], bounds[shard + 1])
    places, distances = [], []
    features = Rows(files, x, bounds)
    is_sparse = "crow" in files.tensors(x[shard])
    for start in range(0, len(own), _CHUNK_QUERIES):
        part = slice(start, start + _CHUNK_QUERIES)
        chunk = rows[part]
        place, distance = found.search(own[part], num_candidates + 1, near[part])
        place, distance = _without_self(place, distance, chunk)
        if is_sparse:
            distance = _exact_distances(features, chunk, place)
        places.append(place.int())
        distances.append(distance)
    place, distance = torch.cat(places), torch.cat(distances)
    step = max(1, bounds[-1] * UNIT_NEIGHBORS // _UNIT_ENTRIES)
    near = distance[::step].topk(min(UNIT_NEIGHBORS, distance.shape[1]), largest=False).values
    return Output({"index": place, "distance": distance}, {"near": near[near.isfinite()]})


def _without_self(
    index: Tensor, distance: Tensor, rows: Tensor
) -> tuple[Tensor, Tensor]:  # (n, K) each
    """Drop each row's own number, or its last (farthest) neighbour where it is not there."""
    is_self = index == rows.unsqueeze(-1)
    is_self[:, -1] |= ~is_self.any(-1)
    index, distance = (
        each[~is_self].view(len(index), index.shape[1] - 1) for each in (index, distance)
    )
    return index, distance.masked_fill(index < 0, torch.inf)


def _exact_distances(features: Rows, rows: Tensor, index: Tensor) -> Tensor:  # (n, K)
    near, place = index.clamp(min=0).unique(return_inverse=True)
    own, others = features.features(rows), features.features(near)
    assert isinstance(own, SparseFeatures)
    row = _range(rows).repeat_interleave(index.shape[1])
    distance = pair_distances(own, row, place.flatten(), others).view(index.shape)
    is_missing = (index < 0) | (own.crow.diff() == 0).unsqueeze(-1)
    return distance.masked_fill(is_missing, torch.inf)
