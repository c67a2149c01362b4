"""Which nodes may be joined: nearest rows and known edges, both directions united, on disk."""

from __future__ import annotations

import functools
import logging
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from jlgcn._files import locked, new_folder, remove_folder, remove_leftovers
from jlgcn.nn import GraphLearner
from jlgcn.ops import nearest_neighbors
from jlgcn.ops.knn import MAX_EXACT_ROWS
from jlgcn.scale.candidates import SHARD_ROWS, TableSearch, cell_index, search_by_shards, with_known
from jlgcn.scale.mapping import Mapper, mapped, mapped_to_scatter, write_array
from jlgcn.scale.store import PackedTable

logger = logging.getLogger(__name__)

# Rows that are projected, searched or compared at a time.
CHUNK_ROWS = 1 << 16

# What a table's folder holds, and what killed writers may have left in it.
_FILES = re.compile(r"\.?(start|neighbor|given|degree(\.tmp)?)\.npy(\.[0-9a-f]{16}\.tmp)?")


class NeighborTable:
    """The neighbours of every node: its nearest rows, those it is nearest to, and known ones.

    Rows are compressed and symmetric, without a node itself, whose weight is always 1.

    Args:
        folder: what :meth:`build` wrote.
        in_order: it will be read from one end to the other, not from all over.

    Attributes:
        start: where the neighbours of each node begin, (N + 1,), int64.
        neighbor: the neighbours, ascending, (E,), int32 or int64.
        given: weight of the known edge at each place, 0 where there is none, (E,); None without
            known edges.
        degree: degree of every node in every layer, before it is normalised, (N, layers), as
            :func:`jlgcn.scale.infer` found it; ones until then.

    Cost: memory maps; about 2·k·N entries for k nearest rows.

    Example:
        >>> import tempfile
        >>> from jlgcn.scale import planted_table
        >>> packed, table = planted_table(tempfile.mkdtemp(), 50, num_neighbors=3)
        >>> bool((table.start.diff() >= 3).all())
        True
    """

    def __init__(self, folder: str | os.PathLike[str], *, in_order: bool = False) -> None:
        self.folder = Path(folder).absolute()
        self.in_order = in_order
        if not self.folder.is_dir():
            raise FileNotFoundError(
                f"there is no table at {folder}; build one (NeighborTable.build), or delete the "
                "run's checkpoints to begin anew"
            )
        paths = {name: self.folder / f"{name}.npy" for name in ("start", "neighbor")}
        optional = {name: self.folder / f"{name}.npy" for name in ("given", "degree")}
        paths |= {name: path for name, path in optional.items() if path.exists()}
        files = list(paths.values())
        tensors = [mapped(path) for path in files] if in_order else mapped_to_scatter(files)
        found: dict[str, Tensor] = dict(zip(paths, tensors, strict=True))
        self.start, self.neighbor = found["start"], found["neighbor"]
        self.given = found.get("given")
        self.degree = found["degree"] if "degree" in found else torch.ones(self.num_nodes, 1)

    @property
    def num_nodes(self) -> int:
        """Number of nodes, N."""
        return self.start.shape[0] - 1

    @property
    def num_entries(self) -> int:
        """Number of places, E; an edge counts twice."""
        return self.neighbor.shape[0]

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the maps, which would be copied: a process that is sent this opens its own.
        return functools.partial(type(self), in_order=self.in_order), (self.folder,)

    def __repr__(self) -> str:
        return f"NeighborTable({self.num_nodes:,} nodes, {self.num_entries:,} entries)"

    @classmethod
    def build(
        cls,
        packed: PackedTable,
        learner: GraphLearner,
        num_neighbors: int,
        folder: str | os.PathLike[str],
        *,
        run: Mapper | None = None,
        shard_rows: int = SHARD_ROWS,
    ) -> NeighborTable:
        """Search the nearest rows under a metric, unite them with known edges, write the table.

        Args:
            packed: the rows.
            learner: the metric, of a network's first layer.
            num_neighbors: nearest rows of each, k.
            folder: where to; it is there when it is whole, in place of a table that was there.
                Processes that build in one parent folder take turns.
            run: what does the search shard by shard, :func:`jlgcn.scale.in_turn` or
                :func:`jlgcn.scale.over_ray`; None searches all rows at once, in memory.
            shard_rows: rows of a shard.

        Cost: at once, up to 50,000 rows all pairs, 2·N²·rank FLOP; above, FAISS (extra ``ann``),
        N·log N, and memory N·(4·rank + 20·k) bytes. By shards FAISS always, and the memory of a
        shard; a region of rows may answer a little more than its share.

        Raises:
            FileExistsError: the folder holds something else than a table.
        """
        final = Path(folder).absolute()
        final.parent.mkdir(parents=True, exist_ok=True)
        with locked(final.parent):
            remove_leftovers(final.parent, re.compile(re.escape(final.name)))
            _check_is_table(final)
            with new_folder(final) as temporary:
                if run is not None:
                    width = min(num_neighbors, packed.num_nodes - 1)
                    scratch = temporary / "shards"
                    search = TableSearch(packed.folder, learner, width, scratch, shard_rows)
                    search_by_shards(search, temporary, run)
                else:
                    places = _symmetric(_nearest(project(packed, learner), num_neighbors))
                    if packed.plan.num_edges:
                        places, given = _with_given(places, packed)
                        write_array(temporary / "given.npy", given)
                    write_array(temporary / "start.npy", places.indptr.astype(np.int64))
                    dtype = np.int32 if places.shape[0] < 2**31 else np.int64
                    neighbor = places.indices.astype(dtype, copy=False)
                    write_array(temporary / "neighbor.npy", neighbor)
                if final.exists():
                    remove_folder(final)
        return cls(final)

    @torch.no_grad()
    def recall(
        self,
        packed: PackedTable,
        learner: GraphLearner,
        num_neighbors: int,
        *,
        num_sampled: int = 256,
    ) -> float:
        r"""Return how much of the heaviest weights of some nodes the table has.

        .. math::
            \frac{\sum_i \sum_{j \in T_k(i)} \exp(-\|z_i - z_j\|^2)}
            {\sum_i \sum_{j \in N_k(i)} \exp(-\|z_i - z_j\|^2)}

        with N the k nearest of all rows and T the k nearest in the table. What counts is weight,
        not identity: where rows lie so close that a small turn of the metric exchanges all nearest
        ones, the old ones are as good.

        Args:
            packed: the rows.
            learner: the metric as it is now.
            num_neighbors: k.
            num_sampled: nodes i, evenly spread: nothing random is drawn.

        Cost: 2·num_sampled·N·rank FLOP.
        """
        count = min(num_sampled, self.num_nodes)
        nodes = torch.arange(count) * self.num_nodes // count
        asked = learner.project(packed.rows(nodes), offset=packed.offset)
        width = min(num_neighbors, self.num_nodes - 1)
        best = torch.full((count, width), torch.inf)
        for start in range(0, self.num_nodes, CHUNK_ROWS):
            rows = packed.chunk(start, min(start + CHUNK_ROWS, self.num_nodes))
            z = learner.project(rows, offset=packed.offset)
            # From differences: the weight of equal rows is 1, whatever their offset.
            distance = torch.cdist(asked, z, compute_mode="donot_use_mm_for_euclid_dist")
            here = ((nodes >= start) & (nodes < start + len(z))).nonzero().squeeze(-1)
            distance[here, nodes[here] - start] = torch.inf
            near = distance.topk(min(width, len(z)), largest=False).values
            best = torch.cat([best, near], 1).topk(width, largest=False).values
        found = 0.0
        for node, z in zip(nodes.tolist(), asked, strict=True):
            known = self.neighbor[self.start[node] : self.start[node + 1]].long()
            near = learner.project(packed.rows(known), offset=packed.offset)
            weight = (-(near - z).square().sum(-1)).exp()
            found += float(weight.topk(min(width, len(weight))).values.sum())
        return min(1.0, found / float((-best.square()).exp().sum().clamp(min=1e-30)))


def _check_is_table(folder: Path) -> None:
    """Raise if a folder holds anything that a new table must not replace."""
    if folder.is_symlink():
        raise FileExistsError(f"a table cannot replace {folder}, which is a link; delete it first")
    names = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    others = [name for name in names if not _FILES.fullmatch(name)]
    if others:
        raise FileExistsError(
            f"a table would replace {folder}, but that holds {others[0]!r}, which is no part of a "
            "table; choose another folder"
        )


@torch.no_grad()
def project(packed: PackedTable, learner: GraphLearner) -> Tensor:  # (N, rank)
    """Return the points of all rows, a chunk at a time."""
    z = torch.empty(packed.num_nodes, learner.rank)
    for start in range(0, packed.num_nodes, CHUNK_ROWS):
        stop = min(start + CHUNK_ROWS, packed.num_nodes)
        z[start:stop] = learner.project(packed.chunk(start, stop), offset=packed.offset)
    return z


def _nearest(z: Tensor, num_neighbors: int) -> np.ndarray:
    """Return nearest rows, ascending, (N, k), int32 where it is enough; a row itself for none."""
    num_rows = z.shape[0]
    dtype = np.int32 if num_rows < 2**31 else np.int64
    found: np.ndarray
    if num_rows <= MAX_EXACT_ROWS:
        found = nearest_neighbors(z, num_neighbors, search="exact").numpy().astype(dtype)
    else:
        found = _search(z, num_neighbors, dtype)
    own = np.arange(num_rows, dtype=dtype)[:, None]
    np.copyto(found, own, where=np.less(found, 0))
    found.sort(1)
    return found


def _search(z: Tensor, num_neighbors: int, dtype: Any) -> np.ndarray:  # noqa: ANN401
    points = (z - z.mean(0)).numpy()
    index = cell_index(points)
    found = np.empty((len(points), num_neighbors), dtype=dtype)
    for start in range(0, len(points), CHUNK_ROWS):
        rows = np.arange(start, min(start + CHUNK_ROWS, len(points)))
        near = index.search(points[rows], num_neighbors + 1)[1]
        is_self = near == rows[:, None]
        is_self[:, -1] |= ~is_self.any(1)  # equal rows came first: drop the farthest
        found[rows] = near[~is_self].reshape(len(rows), num_neighbors)
    return found


def _symmetric(nearest: np.ndarray) -> Any:  # noqa: ANN401
    """Return both directions of every pair as compressed rows, without a node itself."""
    num_rows, width = nearest.shape
    # The number of entries decides which integers SciPy counts with; both directions have twice.
    dtype = np.int32 if 2 * nearest.size < 2**31 else np.int64
    start = np.arange(num_rows + 1, dtype=dtype) * dtype(width)
    ones = np.ones(nearest.size, dtype=bool)
    places = scipy.sparse.csr_array((ones, nearest.reshape(-1), start), shape=(num_rows, num_rows))
    places.sum_duplicates()
    return _without_loops(places + places.T.tocsr())


def _without_loops(places: Any) -> Any:  # noqa: ANN401
    row = np.repeat(np.arange(places.shape[0], dtype=places.indices.dtype), np.diff(places.indptr))
    keep = places.indices != row
    if keep.all():
        return places
    count = np.bincount(row[keep], minlength=places.shape[0])
    start = np.concatenate([[0], np.cumsum(count)])
    kept = (places.data[keep], places.indices[keep], start)
    return scipy.sparse.csr_array(kept, shape=places.shape)


def _with_given(places: Any, packed: PackedTable) -> tuple[Any, np.ndarray]:  # noqa: ANN401
    """Return the places of both, and the weight of the known edge at each, 0 where there is none.

    An edge that is known in two directions has the larger of its weights.
    """
    (row, col), weight = packed.edges()
    forward = scipy.sparse.coo_array((weight.numpy(), (row.numpy(), col.numpy())), places.shape)
    edges = _without_loops(forward.tocsr())
    return with_known(places, edges.maximum(edges.T.tocsr()))
