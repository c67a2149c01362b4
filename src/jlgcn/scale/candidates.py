"""Nearest rows and known edges of tables that no machine holds: stages from shard to shard.

Rows are shared out by where they lie. Centres are rows drawn at random; neighbouring centres make a
*region*, of about as many rows as a shard has. Every row goes to the region of its nearest centre,
and visits those of its next ones; a region answers for all rows that are in it or visit it, by an
index of FAISS of its own. A shard then takes the best answers of all regions for its rows, tells
other shards which of their rows it has chosen, and unites what it chose, what chose it, and edges
that are known. Nothing is joined by key: what a stage writes is sorted by who reads it next.
"""

from __future__ import annotations

import bisect
import functools
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch

from jlgcn._files import replacing
from jlgcn._optional import require
from jlgcn.nn import GraphLearner
from jlgcn.scale.mapping import Mapper, new_array, write_array, write_rows
from jlgcn.scale.store import PackedTable

#: Rows of a shard of a search.
SHARD_ROWS = 1 << 18

# Rows of a cell of an index, cells that are searched for a row, and rows of a cell at most: where
# very many rows are equal, all of them would be compared with all.
CELL_ROWS = 128
NUM_PROBES = 8
_MAX_CELL_ROWS = 16 * CELL_ROWS


@dataclass(frozen=True)
class TableSearch:
    """One search: all that its stages depend on beside the files they read.

    Attributes:
        packed: folder of the rows.
        learner: the metric.
        num_neighbors: nearest rows of each, k.
        folder: for what stages leave to each other; made by the search, and deleted.
        shard_rows: rows of a shard.
    """

    packed: Path
    learner: GraphLearner
    num_neighbors: int
    folder: Path
    shard_rows: int = SHARD_ROWS

    @functools.cached_property
    def rows(self) -> PackedTable:
        """The rows."""
        return PackedTable(self.packed)

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the rows: whoever gets this opens them for itself.
        return type(self), tuple(getattr(self, field.name) for field in fields(self))

    @property
    def num_shards(self) -> int:
        """Number of shards, and of regions."""
        return -(-self.rows.num_nodes // self.shard_rows)

    def bounds(self, shard: int) -> tuple[int, int]:
        """Return the first row of a shard, and the first one behind it."""
        start = shard * self.shard_rows
        return start, min(start + self.shard_rows, self.rows.num_nodes)

    def path(self, name: str, shard: int) -> Path:
        """Return where a stage leaves what it made of a shard."""
        return self.folder / f"{name}-{shard:05d}.npy"

    def save(self, name: str, shard: int, array: np.ndarray) -> None:
        """Leave something for the next stage: whole, or not at all."""
        write_array(self.path(name, shard), array)

    def parts(self, name: str, count: int, key: str, low: int, high: int) -> np.ndarray:
        """Return the records of all shards whose key, by which they are sorted, is in a range."""
        parts = []
        for shard in range(count):
            records = np.load(self.path(name, shard), mmap_mode="r")
            # NumPy's own search would copy all keys, and so read the whole file.
            first, last = (bisect.bisect_left(records[key], bound) for bound in (low, high))
            parts.append(np.array(records[first:last]))
        return np.concatenate(parts)


def search_by_shards(search: TableSearch, out: Path, run: Mapper) -> None:
    """Find the neighbours of all rows and write a table's files.

    Args:
        search: what to search.
        out: folder for ``start.npy``, ``neighbor.npy`` and, with known edges, ``given.npy``.
        run: what does the shards.

    Cost: N·log N time for N rows; memory of a shard and of the centres, N/128 of them.
    """
    search.folder.mkdir()
    count = search.num_shards
    run(functools.partial(_draw_centers, search), 1, "centres")
    run(functools.partial(_assign, search), count, "regions")
    run(functools.partial(_answer, search), count, "nearest rows")
    run(functools.partial(_choose, search), count, "choices")
    run(functools.partial(_sort_edges, search), search.rows.num_edge_shards, "known edges")
    run(functools.partial(_unite, search), count, "neighbours")
    sizes = [len(np.load(search.path("neighbor", s), mmap_mode="r")) for s in range(count)]
    num_nodes = search.rows.num_nodes
    index = np.int32 if num_nodes < 2**31 else np.int64
    new_array(out / "start.npy", (num_nodes + 1,), np.int64)
    new_array(out / "neighbor.npy", (sum(sizes),), index)
    if search.rows.num_edge_shards:
        new_array(out / "given.npy", (sum(sizes),))
    firsts = np.concatenate([[0], np.cumsum(sizes)])
    run(functools.partial(_copy, search, out, firsts), count, "table")
    shutil.rmtree(search.folder)


def _draw_centers(search: TableSearch, _: int) -> None:
    """Draw rows as centres, in an order in which neighbours follow each other."""
    num_nodes = search.rows.num_nodes
    count = max(search.num_shards, num_nodes // CELL_ROWS)
    drawn = np.random.default_rng(0).choice(num_nodes, count, replace=False)
    z = _points(search, torch.from_numpy(np.sort(drawn)))
    order = np.concatenate(list(_in_halves(z, np.arange(len(z)), 64)))
    with replacing(search.folder / "centers") as file:
        writer = _faiss().PyCallbackIOWriter(file.write)
        _faiss().write_index(_index_of_centers(z[order]), writer)


def _in_halves(z: np.ndarray, rows: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Yield rows by halving them across their widest direction until few are left."""
    if len(rows) <= size:
        yield rows
        return
    widest = np.ptp(z[rows], axis=0).argmax()
    order = rows[np.argsort(z[rows, widest], kind="stable")]
    yield from _in_halves(z, order[: len(rows) // 2], size)
    yield from _in_halves(z, order[len(rows) // 2 :], size)


def _assign(search: TableSearch, shard: int) -> None:
    """Write where each row of a shard belongs and which regions it visits, sorted by region."""
    centers = _faiss().read_index(str(search.folder / "centers"))
    rows = np.arange(*search.bounds(shard))
    z = _points(search, torch.from_numpy(rows))
    cells = centers.search(z, min(NUM_PROBES, centers.ntotal))[1]
    region = cells * search.num_shards // centers.ntotal
    region[cells < 0] = -1  # a graph of centres may find fewer
    # A region once, however many of its cells a row asks for.
    is_first = np.ones(region.shape, dtype=bool)
    for later in range(1, region.shape[1]):
        is_first[:, later] = (region[:, later : later + 1] != region[:, :later]).all(1)
    place, probe = np.nonzero(is_first & (region >= 0))
    records = np.empty(
        len(place),
        [("region", "i4"), ("row", "i8"), ("cell", "i4"), ("z", "f4", (z.shape[1],))],
    )
    records["region"] = region[place, probe]
    records["row"] = rows[place]
    records["cell"] = np.where(probe == 0, cells[place, 0], -1)  # -1 for visitors
    records["z"] = z[place]
    search.save("assigned", shard, records[np.argsort(records["region"], kind="stable")])


def _answer(search: TableSearch, region: int) -> None:
    """Write the nearest rows of a region for all that asked, sorted by who asked."""
    asked = search.parts("assigned", search.num_shards, "region", region, region + 1)
    members = asked[asked["cell"] >= 0]
    members = members[_at_most(members["cell"], _MAX_CELL_ROWS)]
    k = search.num_neighbors
    answers = np.empty(len(asked), [("row", "i8"), ("near", "i8", (k,)), ("distance", "f4", (k,))])
    answers["row"], answers["near"], answers["distance"] = asked["row"], -1, np.inf
    if len(members):
        # One more than asked for: a row is its own nearest.
        index = cell_index(np.ascontiguousarray(members["z"]))
        distance, near = index.search(np.ascontiguousarray(asked["z"]), min(k + 1, len(members)))
        near = np.where(near < 0, -1, members["row"][near])
        distance[(near < 0) | (near == asked["row"][:, None])] = np.inf
        order = np.argsort(distance, 1, kind="stable")[:, :k]
        width = order.shape[1]
        answers["near"][:, :width] = np.take_along_axis(near, order, 1)
        answers["distance"][:, :width] = np.take_along_axis(distance, order, 1)
    search.save("answers", region, answers[np.argsort(answers["row"], kind="stable")])


def _choose(search: TableSearch, shard: int) -> None:
    """Write the nearest rows of a shard's rows, and for other shards who chose which row."""
    start, stop = search.bounds(shard)
    found = search.parts("answers", search.num_shards, "row", start, stop)
    row = np.repeat(found["row"], search.num_neighbors)
    near, distance = found["near"].reshape(-1), found["distance"].reshape(-1)
    is_found = np.isfinite(distance)
    row, near, distance = row[is_found], near[is_found], distance[is_found]
    order = np.lexsort((near, distance, row))  # equal distances by number: the same every time
    row, near = row[order], near[order]
    rank = np.arange(len(row)) - np.searchsorted(row, row)
    chosen = np.empty(int((rank < search.num_neighbors).sum()), [("near", "i8"), ("row", "i8")])
    chosen["row"] = row[rank < search.num_neighbors]
    chosen["near"] = near[rank < search.num_neighbors]
    search.save("chosen", shard, chosen)
    search.save("choosers", shard, chosen[np.lexsort((chosen["row"], chosen["near"]))])


def _sort_edges(search: TableSearch, shard: int) -> None:
    """Write the edges of a file, from either end, sorted by the row they are listed at."""
    ends, weight = search.rows.edges(shard)
    edges = np.empty(
        2 * len(weight), [("row", "i8"), ("col", "i8"), ("weight", "f4"), ("reverse", "?")]
    )
    edges["row"], edges["col"] = torch.cat([ends, ends.flip(0)], 1).numpy()
    edges["weight"] = torch.cat([weight, weight]).numpy()
    edges["reverse"] = np.arange(len(edges)) >= len(weight)
    edges = edges[edges["row"] != edges["col"]]
    search.save("edges", shard, edges[np.argsort(edges["row"], kind="stable")])


def _unite(search: TableSearch, shard: int) -> None:
    """Write the neighbours of a shard's rows: chosen, choosing and known."""
    start, stop = search.bounds(shard)
    shape = (stop - start, search.rows.num_nodes)

    def matrix(row: np.ndarray, col: np.ndarray, data: np.ndarray) -> Any:  # noqa: ANN401
        return scipy.sparse.csr_array((data, (row - start, col)), shape)

    chosen = np.load(search.path("chosen", shard))
    choosers = search.parts("choosers", search.num_shards, "near", start, stop)
    row = np.concatenate([chosen["row"], choosers["near"]])
    col = np.concatenate([chosen["near"], choosers["row"]])
    places = matrix(row, col, np.ones(len(row), dtype=bool))
    places.sum_duplicates()
    if search.rows.num_edge_shards:
        edges = search.parts("edges", search.rows.num_edge_shards, "row", start, stop)
        forward, reverse = (
            matrix(edges["row"][side], edges["col"][side], edges["weight"][side])
            for side in (~edges["reverse"], edges["reverse"])
        )
        places, given = with_known(places, forward.maximum(reverse))
        search.save("given", shard, given)
    search.save("count", shard, np.diff(places.indptr))
    search.save("neighbor", shard, places.indices)


def _copy(search: TableSearch, out: Path, firsts: np.ndarray, shard: int) -> None:
    """Write a shard's part of the table."""
    start, _ = search.bounds(shard)
    write_rows(out / "neighbor.npy", firsts[shard], np.load(search.path("neighbor", shard)))
    if search.rows.num_edge_shards:
        write_rows(out / "given.npy", firsts[shard], np.load(search.path("given", shard)))
    ends = firsts[shard] + np.cumsum(np.load(search.path("count", shard)), dtype=np.int64)
    write_rows(out / "start.npy", start + 1, ends)


@torch.no_grad()
def _points(search: TableSearch, rows: torch.Tensor) -> np.ndarray:
    packed = search.rows
    z = search.learner.project(packed.rows(rows), offset=packed.offset)
    return np.ascontiguousarray(z.numpy(), dtype=np.float32)


def _at_most(cell: np.ndarray, count: int) -> np.ndarray:
    """Return places of entries, evenly spread, of which no cell has more than so many."""
    order = np.argsort(cell, kind="stable")
    ordered = cell[order]
    first = np.searchsorted(ordered, ordered)
    size = np.searchsorted(ordered, ordered, side="right") - first
    rank = np.arange(len(cell)) - first
    is_kept = (rank * count) // np.maximum(size, count) != ((rank - 1) * count) // np.maximum(
        size, count
    )
    return np.sort(order[is_kept])


# The index that one machine searches: of a region, or of all rows where they fit.


def cell_index(points: np.ndarray) -> Any:  # noqa: ANN401
    """Return an index of FAISS: cells around rows drawn at random, found by a graph of these.

    The number of cells grows with the number of rows, and the graph finds the nearest of them in
    log N; an index of √N cells that are compared one by one would cost √N a row.
    """
    num_rows, rank = points.shape
    num_cells = max(1, num_rows // CELL_ROWS)
    # Rows drawn at random are as good centres as means of many iterations, and cost nothing.
    drawn = np.random.default_rng(0).choice(num_rows, num_cells, replace=False)
    centers = _index_of_centers(np.ascontiguousarray(points[np.sort(drawn)]))
    index = _faiss().IndexIVFFlat(centers, rank, num_cells)
    index.is_trained = True
    index.nprobe = min(NUM_PROBES, num_cells)
    index.add(points)
    return index


def _index_of_centers(points: np.ndarray) -> Any:  # noqa: ANN401
    faiss = _faiss()
    index = faiss.IndexHNSWFlat(points.shape[1], 16)
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)  # several threads join the centres in an order of chance
    index.add(points)
    faiss.omp_set_num_threads(threads)
    index.hnsw.efSearch = 2 * NUM_PROBES
    return index


def _faiss() -> Any:  # noqa: ANN401
    return require("faiss", "ann", "the search for neighbours among many rows")


def with_known(places: Any, edges: Any) -> tuple[Any, np.ndarray]:  # noqa: ANN401
    """Return the places of both, and the weight of the known edge at each, 0 where there is none.

    Args:
        places: rows of a table, compressed.
        edges: weights of known edges, compressed, the same shape.
    """
    edges = edges.tocoo()
    known = scipy.sparse.csr_array((np.ones(edges.nnz, dtype=bool), edges.coords), places.shape)
    both = (places + known).tocsr()
    both.sort_indices()
    numbers = scipy.sparse.csr_array(
        (np.arange(1, both.nnz + 1), both.indices, both.indptr), both.shape
    )
    given = np.zeros(both.nnz, dtype=np.float32)
    given[np.asarray(numbers[edges.coords]).reshape(-1) - 1] = edges.data
    return both, given
