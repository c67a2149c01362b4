"""Packed tables as memory maps, and as the stores that loaders of PyTorch Geometric read."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch_geometric.data import EdgeAttr, FeatureStore, GraphStore, TensorAttr
from torch_geometric.data.graph_store import EdgeLayout

from jlgcn.scale.mapping import mapped, mapped_to_scatter
from jlgcn.scale.packing import PackPlan, read_plan

if TYPE_CHECKING:
    from jlgcn.scale.table import NeighborTable


# Rows whose mean stands for that of all.
_NUM_SPREAD = 10_000


class PackedTable:
    """The rows of a packed table; only those that are asked for are read.

    Args:
        folder: what :func:`jlgcn.scale.pack` wrote.

    Attributes:
        num_nodes: rows, N.
        num_features: features of a row.
        num_edge_shards: shards of known edges.

    Cost: two memory maps for each shard, for reading in order and from all over; the classes are
    read when they are asked for, 8·N bytes.

    Example:
        >>> import pyarrow, pyarrow.parquet, tempfile
        >>> from jlgcn.scale import pack
        >>> folder = Path(tempfile.mkdtemp())
        >>> table = pyarrow.table({"a": [0.5, 1.5, 2.5], "b": [1.0, 2.0, 3.0]})
        >>> pyarrow.parquet.write_table(table, folder / "table.parquet")
        >>> _ = pack(folder / "table.parquet", folder / "packed", rows=2)
        >>> PackedTable(folder / "packed").rows(torch.tensor([2, 0]))
        tensor([[2.5000, 3.0000],
                [0.5000, 1.0000]])
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).absolute()  # a process of another machine works elsewhere
        self.plan: PackPlan = read_plan(folder)
        names = self.plan.shards
        missing = [name for name in names if not (self.folder / f"{name}.npy").exists()]
        if missing:
            raise ValueError(
                f"{folder} has {len(missing)} shards too few, {missing[0]} among them; run the "
                "same jlgcn pack again, which goes on where it stopped"
            )
        nodes = [name for name in names if name.startswith("nodes")]
        self._shards = [self._map(name) for name in nodes]
        self._scattered = mapped_to_scatter([self.folder / f"{name}.npy" for name in nodes])
        self._classes = [
            self._map(name.replace("nodes", "classes"))
            for name in nodes
            if self.plan.label is not None
        ]
        self._edges = [self._map(name) for name in names if name.startswith("edges")]
        self.num_nodes = self.plan.num_rows
        self.num_features = len(self.plan.features)
        self.num_edge_shards = len(self._edges)

    def _map(self, name: str) -> Tensor:
        return mapped(self.folder / f"{name}.npy")

    @functools.cached_property
    def y(self) -> Tensor:
        """The class of every row, or -1, (N,), int64."""
        if self.plan.label is None:
            return torch.full((self.num_nodes,), -1, dtype=torch.int64)
        y = torch.empty(self.num_nodes, dtype=torch.int64)
        for part, shard in zip(y.split(self.plan.rows), self._classes, strict=True):
            part.copy_(shard)
        return y

    @functools.cached_property
    def num_classes(self) -> int:
        """Number of classes; 0 without labels."""
        return int(self.y.max()) + 1

    @functools.cached_property
    def offset(self) -> Tensor:
        """The mean of some rows, evenly spread, (num_features,), from which points are measured.

        Distances do not depend on it, but all parts of a table must be measured from the same.
        """
        count = min(_NUM_SPREAD, self.num_nodes)
        return self.rows(torch.arange(count) * self.num_nodes // count).mean(0)

    def rows(self, index: Tensor) -> Tensor:  # (M,) to (M, num_features), float32
        """Return some rows."""
        return self._gathered(self._scattered, index).float()

    def classes(self, index: Tensor) -> Tensor:  # (M,) to (M,), int64
        """Return the classes of some rows, or -1; unlike :attr:`y`, only these are read."""
        if not self._classes:
            return torch.full(index.shape, -1, dtype=torch.int64)
        return self._gathered(self._classes, index).long()

    def _gathered(self, shards: list[Tensor], index: Tensor) -> Tensor:
        if len(shards) == 1:
            return shards[0].index_select(0, index)
        out = shards[0].new_empty((len(index), *shards[0].shape[1:]))
        shard = index // self.plan.rows
        for number in shard.unique().tolist():
            here = (shard == number).nonzero().squeeze(-1)
            out[here] = shards[number].index_select(0, index[here] - number * self.plan.rows)
        return out

    def chunk(self, start: int, stop: int) -> Tensor:  # (stop - start, num_features), float32
        """Return rows that follow each other."""
        parts = []
        for number in range(start // self.plan.rows, -(-stop // self.plan.rows)):
            first = number * self.plan.rows
            parts.append(self._shards[number][max(0, start - first) : stop - first].float())
        return torch.cat(parts)

    def edges(self, shard: int | None = None) -> tuple[Tensor, Tensor]:
        """Return the known edges of a shard, or all, (2, E), int64, and weights, (E,), float32."""
        shards = self._edges if shard is None else [self._edges[shard]]
        found = torch.cat([*shards, torch.empty(3, 0, dtype=torch.float64)], -1)
        return found[:2].long(), found[2].float()

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the maps, which would be copied: a process that is sent this opens its own.
        return type(self), (self.folder,)

    def __repr__(self) -> str:
        return f"PackedTable({self.num_nodes:,} rows, {self.num_features:,} features)"


class TableFeatureStore(FeatureStore):  # type: ignore[misc]
    """Features, classes and whole-graph degrees of nodes, for loaders of PyTorch Geometric.

    Each batch has, beside ``x`` and ``y``, the number of neighbours that a node has in the table,
    ``num_neighbors``, which says how many a sampled one stands for, and ``degree``, (N, layers).

    Args:
        packed: the rows.
        table: their neighbours.

    Cost: what is asked for.

    Example:
        >>> import tempfile
        >>> from jlgcn.scale import planted_table
        >>> store = TableFeatureStore(*planted_table(tempfile.mkdtemp(), 50))
        >>> [attr.attr_name for attr in store.get_all_tensor_attrs()]
        ['x', 'y', 'num_neighbors', 'degree']
    """

    def __init__(self, packed: PackedTable, table: NeighborTable) -> None:
        super().__init__()
        self.packed = packed
        self.table = table

    def get_all_tensor_attrs(self) -> list[Any]:
        """Return what there is of each node."""
        names = ("x", "y", "num_neighbors", "degree")
        return [TensorAttr(group_name=None, attr_name=name) for name in names]

    def _get_tensor(self, attr: Any) -> Tensor:  # noqa: ANN401
        index = attr.index if isinstance(attr.index, Tensor) else torch.arange(self.table.num_nodes)
        match attr.attr_name:
            case "x":
                return self.packed.rows(index)
            case "y":
                return self.packed.classes(index)
            case "num_neighbors":
                return self.table.start[index + 1] - self.table.start[index]
            case "degree":
                return self.table.degree[index]
            case name:
                raise KeyError(f"there is no {name!r}; nodes have x, y, num_neighbors and degree")

    def _get_tensor_size(self, attr: Any) -> tuple[int, ...]:  # noqa: ANN401
        one = TensorAttr(group_name=None, attr_name=attr.attr_name, index=torch.arange(1))
        return (self.table.num_nodes, *self._get_tensor(one).shape[1:])

    def _put_tensor(self, tensor: Any, attr: Any) -> bool:  # noqa: ANN401
        return False  # what is packed is not changed

    def _remove_tensor(self, attr: Any) -> bool:  # noqa: ANN401
        return False


class TableGraphStore(GraphStore):  # type: ignore[misc]
    """The places of a neighbour table, for samplers of PyTorch Geometric.

    Args:
        table: the neighbours.

    Cost: the entries as int64, when a sampler asks for them; ours never does.

    Example:
        >>> import tempfile
        >>> from jlgcn.scale import planted_table
        >>> packed, table = planted_table(tempfile.mkdtemp(), 50)
        >>> row, start = TableGraphStore(table)[TableGraphStore.PLACES]
        >>> len(start), len(row) == table.num_entries
        (51, True)
    """

    #: What the places are called.
    PLACES = EdgeAttr(edge_type=None, layout=EdgeLayout.CSC, is_sorted=True)

    def __init__(self, table: NeighborTable) -> None:
        super().__init__()
        self.table = table

    def get_all_edge_attrs(self) -> list[Any]:
        """Return the one kind of edges there is."""
        return [self.PLACES]

    def _get_edge_index(self, edge_attr: Any) -> tuple[Tensor, Tensor] | None:  # noqa: ANN401
        if edge_attr.layout != EdgeLayout.CSC:
            return None
        return self.table.neighbor.long(), self.table.start

    def _put_edge_index(self, edge_index: Any, edge_attr: Any) -> bool:  # noqa: ANN401
        return False  # tables are built, not changed

    def _remove_edge_index(self, edge_attr: Any) -> bool:  # noqa: ANN401
        return False
