"""k-nearest-neighbour search: exact brute force in PyTorch, approximate by FAISS for many rows."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from jlgcn._optional import require
from jlgcn.ops.blocks import BLOCK_ENTRIES
from jlgcn.ops.precision import compute_dtype, no_autocast
from jlgcn.ops.sparse_matrix import SparseFeatures
from jlgcn.ops.svd import principal_directions

Search = Literal["auto", "exact", "faiss"]
SEARCHES: tuple[Search, ...] = ("auto", "exact", "faiss")

#: Largest number of rows for which search="auto" is exact; above, it uses FAISS.
MAX_EXACT_ROWS = 50_000

# So few queries are compared with all points faster than an index is trained.
_FEW_QUERIES = 256

# Principal components by which FAISS searches sparse rows.
_PROJECTED_COLUMNS = 128


def nearest_neighbors(
    z: Tensor | SparseFeatures,  # (N, S)
    num_neighbors: int,
    *,
    queries: Tensor | SparseFeatures | None = None,  # (M, S)
    search: Search = "auto",
    num_probes: int = 16,
) -> Tensor:  # (N, min(num_neighbors, N - 1)) or (M, min(num_neighbors, N)), int64
    """Return the indices of the k nearest rows of each row, excluding itself, in no fixed order.

    The search is not differentiable.

    Args:
        z: points. An all-zero row of sparse features is nobody's neighbour: it has the smallest
            norm, so that it would be near to every row, and it carries no information.
        num_neighbors (int ≥ 1): k; fewer if there are fewer other rows.
        queries: points whose neighbours among `z` are searched; None searches for the rows of `z`.
        search ("auto", "exact" or "faiss", default "auto"): "exact" compares all pairs by blocks of
            rows; "faiss" uses an inverted file index (IVF) with about 2·√N cells and may miss
            neighbours (extra ``ann``); sparse rows are projected on 128 principal components for
            it. "auto" is exact up to 50,000 rows.
        num_probes (int, default 16): IVF cells searched per query; more are slower, with a higher
            recall.

    Returns:
        Indices; -1 where FAISS found fewer than k, or fewer than k rows are nonzero.

    Cost: exact 2·N²·S FLOP, or 2·M·N·S for queries, with the mean number of entries of a sparse
    row in place of S; FAISS about √N times less. Memory linear in N + M.

    Example:
        >>> nearest_neighbors(torch.tensor([[0.0], [1.0], [3.0]]), 1).squeeze()
        tensor([1, 0, 1])
    """
    num_rows = z.shape[0] if queries is None else queries.shape[0]
    index = NeighborIndex(z, search=search, num_probes=num_probes)
    if num_neighbors < 1:
        raise ValueError(f"num_neighbors must be at least 1, but it is {num_neighbors}")
    num_neighbors = max(0, min(num_neighbors, z.shape[0] - (queries is None)))
    if num_neighbors == 0:
        return torch.empty(num_rows, 0, dtype=torch.int64, device=z.device)
    return index.search(num_neighbors, queries)


class NeighborIndex:
    """Nearest rows among fixed points, for queries that come in many calls.

    What does not depend on the queries (centred points, their norms, a trained FAISS index) is
    computed at most once. Up to 256 queries of dense points are compared with all of them exactly.

    Args:
        z: points, see :func:`nearest_neighbors`.
        search ("auto", "exact" or "faiss", default "auto"): see :func:`nearest_neighbors`.
        num_probes (int, default 16): IVF cells searched per query.

    Example:
        >>> index = NeighborIndex(torch.tensor([[0.0], [1.0], [3.0]]))
        >>> index.search(1, torch.tensor([[2.6]]))
        tensor([[2]])
    """

    def __init__(
        self,
        z: Tensor | SparseFeatures,  # (N, S)
        *,
        search: Search = "auto",
        num_probes: int = 16,
    ) -> None:
        if search not in SEARCHES:
            raise ValueError(f"search must be one of {', '.join(SEARCHES)}, but it is {search!r}")
        if len(z.shape) != 2:
            raise ValueError(
                f"z must be a matrix, (nodes, rank), but its shape is {tuple(z.shape)}; "
                "search the graphs of a batch one by one"
            )
        self.z = z
        self.is_exact = search == "exact" or (search == "auto" and z.shape[0] <= MAX_EXACT_ROWS)
        self.num_probes = num_probes

    def search(
        self,
        num_neighbors: int,
        queries: Tensor | SparseFeatures | None = None,  # (M, S)
    ) -> Tensor:  # (M, num_neighbors), int64
        """Return the nearest points of each query, or of each point but itself."""
        z = self.z
        if isinstance(z, SparseFeatures):
            assert queries is None or isinstance(queries, SparseFeatures)
            if self.is_exact:
                return _sparse(z, num_neighbors, queries)
            return self._search_projected(num_neighbors, queries)
        assert queries is None or isinstance(queries, Tensor)
        points, offset = self._centred
        if queries is not None:
            queries = queries.detach().to(points.dtype) - offset
        if self.is_exact or (queries is not None and len(queries) <= _FEW_QUERIES):
            return _exact(points, self._square, num_neighbors, queries)
        return self._search_faiss(num_neighbors, queries)

    @cached_property
    def _centred(self) -> tuple[Tensor, Tensor]:
        # Centring does not change distances and avoids cancellation in ‖z‖² - 2 z·z'.
        assert isinstance(self.z, Tensor)
        z = self.z.detach().to(compute_dtype(self.z))
        offset = z.mean(0)
        return z - offset, offset

    @cached_property
    def _square(self) -> Tensor:
        return self._centred[0].square().sum(-1)

    @cached_property
    def _projection(self) -> tuple[Tensor, Tensor]:
        """Principal directions of sparse points, and the points that are not all zero."""
        assert isinstance(self.z, SparseFeatures)
        directions = principal_directions(self.z, _PROJECTED_COLUMNS)
        return directions, (self.z.crow.diff() > 0).nonzero().flatten()

    @cached_property
    def _faiss(self) -> Any:  # noqa: ANN401
        z = self.z
        faiss = require("faiss", "ann", f"the search for neighbours among {z.shape[0]:,} rows")
        if isinstance(z, SparseFeatures):
            directions, kept = self._projection
            z = (z @ directions)[kept]
        else:
            z = self._centred[0]
        points = z.float().cpu().contiguous().numpy()
        num_rows, rank = points.shape
        num_cells = max(1, 2 * math.isqrt(num_rows))
        index = faiss.IndexIVFFlat(faiss.IndexFlatL2(rank), rank, num_cells)
        index.nprobe = min(self.num_probes, num_cells)
        index.cp.max_points_per_centroid = 64  # enough for cells; the default is four times slower
        index.cp.min_points_per_centroid = 1  # small inputs are allowed and need no warning
        index.train(points)
        index.add(points)
        return index

    def _search_faiss(self, num_neighbors: int, queries: Tensor | None) -> Tensor:
        asked = self._centred[0] if queries is None else queries
        found = self._faiss.search(
            asked.float().cpu().contiguous().numpy(), num_neighbors + (queries is None)
        )[1]
        index = torch.from_numpy(found).to(asked.device)
        # A row is its own nearest neighbour, unless equal rows come first: one more was asked for.
        return index if queries is not None else _without_self(index)

    def _search_projected(self, num_neighbors: int, queries: SparseFeatures | None) -> Tensor:
        """Search sparse rows by their principal components."""
        assert isinstance(self.z, SparseFeatures)
        directions, kept = self._projection
        asked = self.z if queries is None else queries
        points = (asked @ directions).float().cpu().contiguous().numpy()
        found = self._faiss.search(points, num_neighbors + (queries is None))[1]
        place = torch.from_numpy(found).to(self.z.device)
        index = torch.where(place >= 0, kept[place.clamp(min=0)], -1)
        return index if queries is not None else _without_self(index)


def _exact(z: Tensor, square: Tensor, num_neighbors: int, queries: Tensor | None) -> Tensor:
    points = z if queries is None else queries
    index = torch.empty(points.shape[0], num_neighbors, dtype=torch.int64, device=z.device)
    block_size = max(1, BLOCK_ENTRIES // z.shape[0])
    with no_autocast(z.device):
        for start in range(0, points.shape[0], block_size):
            rows = torch.arange(start, min(start + block_size, points.shape[0]), device=z.device)
            # ‖z_i‖² is the same for the whole row, so it cannot change the order.
            distance = torch.addmm(square, points[rows], z.mT, alpha=-2)
            if queries is None:
                distance[rows - start, rows] = torch.inf
            index[rows] = distance.topk(num_neighbors, largest=False, sorted=False).indices
    return index


def _sparse(x: SparseFeatures, num_neighbors: int, queries: SparseFeatures | None) -> Tensor:
    points = (x if queries is None else queries).to_scipy()
    square = x.square_norms()
    square[x.crow.diff() == 0] = torch.inf
    index = torch.empty(points.shape[0], num_neighbors, dtype=torch.int64, device=x.device)
    block_size = max(1, BLOCK_ENTRIES // max(x.shape))
    for start in range(0, points.shape[0], block_size):
        block = torch.from_numpy(points[start : start + block_size].toarray()).to(x.device)
        distance = (x @ block.mT.contiguous()).mT.mul(-2).add(square).contiguous()
        if queries is None:
            rows = torch.arange(len(block), device=x.device)
            distance[rows, rows + start] = torch.inf
        nearest = distance.topk(num_neighbors, largest=False, sorted=False)
        index[start : start + len(block)] = nearest.indices.where(~nearest.values.isinf(), -1)
    return index


def _without_self(found: Tensor) -> Tensor:
    """Drop from each row its own index, or its last (farthest) entry where it is not there."""
    num_rows, num_found = found.shape
    is_self = found == torch.arange(num_rows, device=found.device).unsqueeze(-1)
    is_self[:, -1] |= ~is_self.any(-1)
    return found[~is_self].view(num_rows, num_found - 1)
