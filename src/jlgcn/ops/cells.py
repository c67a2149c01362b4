"""An inverted file (IVF) of FAISS in steps, for more rows than one process holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from jlgcn._optional import require

#: Above so many cells, a graph of the centroids (HNSW) finds a row's cell; below, comparing it with
#: all of them by a matrix product is exact and faster.
MAX_FLAT_CELLS = 65_536

#: Cells that a query looks at: the same recall as `NeighborIndex`, 0.999 on 100,000 clustered rows.
NUM_PROBES = 16
_ROWS_OF_CELL = 256

# So few rows are one cell: the search is exact.
_ONE_CELL_ROWS = 5_000

# Rows for each cell by which cells are trained, and passes over them.
_TRAINING_ROWS = 24
_TRAINING_PASSES = 6

# Neighbours of a centroid in HNSW, and how many are looked at to find a row's cell.
_HNSW_NEIGHBORS = 32
_HNSW_LOOKS = 64


def number_of_cells(num_rows: int) -> int:
    """Return the number of cells of an index: in proportion to the rows, and at least 2·√N.

    A query looks at 16 cells, so at a bounded number of rows. Up to 5,000 rows are one cell, whose
    search is exact.

    Example:
        >>> number_of_cells(5_000), number_of_cells(10_000), number_of_cells(10_000_000)
        (1, 200, 39062)
    """
    if num_rows <= _ONE_CELL_ROWS:
        return 1
    return max(1, min(num_rows, max(2 * int(num_rows**0.5), num_rows // _ROWS_OF_CELL)))


def rows_for_training(num_cells: int) -> int:
    """Return how many rows train so many cells."""
    return num_cells * _TRAINING_ROWS


def training_distances(num_cells: int) -> int:
    """Return about how many distances to centroids the training of so many cells takes."""
    of_a_row = 2 * number_of_groups(num_cells)  # to all groups, and to the cells of its own
    return rows_for_training(num_cells) * of_a_row * _TRAINING_PASSES


def number_of_groups(num_cells: int) -> int:
    """Return the number of groups that cells are trained in, √K."""
    return max(1, int(num_cells**0.5))


def train_cells(points: Tensor, num_cells: int) -> Tensor:  # (bytes,), uint8
    """Return the coarse quantiser of an index, as FAISS writes it: centroids by two-level k-means.

    K cells are trained in √K groups of rows, each of which gets cells in proportion to its rows:
    O(M √K D), where one level takes O(M K D); it costs up to 1.2 points of recall
    (`results/benchmarks/libraries.json`). Cells of a group have consecutive numbers.

    Args:
        points: rows to train on, (M, D), float32.
        num_cells: number of centroids, K, at most M.
    """
    faiss = _faiss()
    rows, dim = points.contiguous().numpy(), points.shape[1]
    groups = faiss.IndexFlatL2(dim)
    groups.add(_k_means(rows, number_of_groups(num_cells)))
    group = groups.search(rows, 1)[1][:, 0]
    sizes = np.bincount(group, minlength=groups.ntotal)
    shares = np.diff(sizes.cumsum() * num_cells // len(rows), prepend=0)
    parts = np.split(rows[group.argsort(kind="stable")], sizes.cumsum()[:-1])
    centroids = [_k_means(part, k) for part, k in zip(parts, shares.tolist(), strict=True) if k]
    is_flat = num_cells <= MAX_FLAT_CELLS
    quantizer = faiss.IndexFlatL2(dim) if is_flat else faiss.IndexHNSWFlat(dim, _HNSW_NEIGHBORS)
    if not is_flat:
        quantizer.hnsw.efSearch = _HNSW_LOOKS
    quantizer.add(np.concatenate(centroids))
    return torch.from_numpy(faiss.serialize_index(quantizer))


def _k_means(rows: np.ndarray, num_centroids: int) -> np.ndarray:  # (K, D)
    faiss = _faiss()
    clustering = faiss.Clustering(rows.shape[1], num_centroids)
    clustering.niter, clustering.min_points_per_centroid = _TRAINING_PASSES, 1
    clustering.train(rows, faiss.IndexFlatL2(rows.shape[1]))
    found: np.ndarray = faiss.vector_to_array(clustering.centroids)
    return found.reshape(num_centroids, -1)


class CellIndex:
    """Rows in cells, of which a query looks at the 16 nearest."""

    def __init__(self, index: Any, quantizer: Any = None) -> None:  # noqa: ANN401
        self._index = index
        self._quantizer = quantizer  # FAISS does not hold it
        index.nprobe = min(NUM_PROBES, index.nlist)

    @classmethod
    def empty(cls, quantizer: Tensor) -> CellIndex:
        """Return an index without rows."""
        coarse = _faiss().deserialize_index(quantizer.numpy())
        return cls(_faiss().IndexIVFFlat(coarse, coarse.d, coarse.ntotal), coarse)

    @classmethod
    def read(cls, path: Path) -> CellIndex:
        """Return the index in a file, whose rows are mapped."""
        return cls(_faiss().read_index(str(path), _faiss().IO_FLAG_MMAP))

    @staticmethod
    def assign(quantizer: Tensor, points: Tensor) -> Tensor:  # (M, P), int64
        """Return the cells that a query looks at, the nearest first."""
        coarse = _faiss().deserialize_index(quantizer.numpy())
        count = min(NUM_PROBES, coarse.ntotal)
        return torch.from_numpy(coarse.search(points.contiguous().numpy(), count)[1])

    def add(self, points: Tensor, row: Tensor, cell: Tensor) -> None:
        """Add rows with their numbers to their cells."""
        faiss = _faiss()
        arrays = [np.ascontiguousarray(part.numpy()) for part in (points, row, cell)]
        self._index.add_core(len(points), *(faiss.swig_ptr(part) for part in arrays))

    def merge(self, other: CellIndex) -> None:
        """Add the rows of an index with the same cells."""
        own, theirs = self._index.invlists, other._index.invlists
        for cell in range(self._index.nlist):
            ids, codes = theirs.get_ids(cell), theirs.get_codes(cell)
            own.add_entries(cell, theirs.list_size(cell), ids, codes)
            theirs.release_ids(cell, ids)
            theirs.release_codes(cell, codes)
        self._index.ntotal += other._index.ntotal

    def write(self, file: BinaryIO) -> None:
        """Write the index; its rows are not copied."""
        faiss = _faiss()
        faiss.write_index(self._index, faiss.PyCallbackIOWriter(file.write))

    def cells_of(self, points: Tensor) -> Tensor:  # (M, P), int64
        """Return the cells that queries look at, the nearest first."""
        queries = points.contiguous().numpy()
        return torch.from_numpy(self._index.quantizer.search(queries, self._index.nprobe)[1])

    def search(
        self, points: Tensor, num_neighbors: int, cells_of: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the nearest rows of queries, and squared distances, (M, K); -1 where fewer.

        Args:
            points: the queries, (M, D).
            num_neighbors: K.
            cells_of: the cells that each looks at, see :meth:`assign`; None to find them.
        """
        queries = points.contiguous().numpy()
        cells = (self.cells_of(points) if cells_of is None else cells_of.long()).numpy()
        near = np.zeros(cells.shape, dtype=np.float32)  # lists of whole vectors do not need it
        # One cell after the other, while its rows are in the processor's cache: a third faster.
        order = cells[:, 0].argsort(kind="stable")
        found = np.empty((len(queries), num_neighbors), dtype=np.int64)
        distance = np.empty(found.shape, dtype=np.float32)
        distance[order], found[order] = self._index.search_preassigned(
            queries[order], num_neighbors, cells[order], near[order]
        )
        return torch.from_numpy(found), torch.from_numpy(distance)


def _faiss() -> Any:  # noqa: ANN401
    return require("faiss", "ann", "the search for neighbours in shards")
