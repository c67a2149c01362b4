"""A sampler over neighbour tables, for PyTorch Geometric's own loaders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler import BaseSampler, SamplerOutput

from jlgcn.scale.store import PackedTable, TableFeatureStore, TableGraphStore
from jlgcn.scale.table import NeighborTable


class TableSampler(BaseSampler):  # type: ignore[misc]
    r"""Draws the neighbours of nodes, and theirs, from a neighbour table.

    Of d neighbours, min(d, f) are drawn without replacement, each with the same probability f / d:
    those at places ⌊(t + u) d / f⌋ of the row, t = 0 … f - 1, with one uniform u a row. A sum over
    those that are drawn, times d / f, has the sum over all as its mean. It costs f numbers a row,
    where shuffling would cost d; and neither pyg-lib nor another compiled extension is needed.

    Args:
        table: the neighbours.
        fanouts: f of the nodes asked for, of their neighbours, and so on; -1 for all.

    Cost: the entries drawn, and a sort of them.

    Example:
        >>> import tempfile
        >>> from jlgcn.scale import planted_table
        >>> from torch_geometric.sampler import NodeSamplerInput
        >>> packed, table = planted_table(tempfile.mkdtemp(), 50)
        >>> sampler = TableSampler(table, [2, 2])
        >>> out = sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor([7])))
        >>> out.num_sampled_edges[0], out.node[0]
        (2, tensor(7))
    """

    def __init__(self, table: NeighborTable, fanouts: Sequence[int]) -> None:
        super().__init__()
        if not fanouts or any(f == 0 or f < -1 for f in fanouts):
            raise ValueError(
                f"fanouts must be positive, or -1 for all neighbours, one for each layer, but they "
                f"are {list(fanouts)}"
            )
        self.table = table
        self.fanouts = tuple(fanouts)

    def sample_from_nodes(self, index: Any, **_: object) -> SamplerOutput:  # noqa: ANN401
        """Return nodes asked for, those drawn, hop by hop, and the entries that join them."""
        node = index.node
        known, order = node.sort()
        rows, cols, entries = [], [], []
        num_nodes, num_edges = [len(node)], []
        for fanout in self.fanouts:
            first = len(node) - num_nodes[-1]
            dst, entry = self._draw(node[first:], fanout)
            found, place = self.table.neighbor[entry].long().unique(return_inverse=True)
            at = torch.searchsorted(known, found).clamp(max=max(0, len(known) - 1))
            is_new = known[at] != found
            local = order[at]
            local[is_new] = torch.arange(len(node), len(node) + int(is_new.sum()))
            node = torch.cat([node, found[is_new]])
            known, sorting = torch.cat([known, found[is_new]]).sort()
            order = torch.cat([order, local[is_new]])[sorting]
            rows.append(local[place])
            cols.append(dst + first)
            entries.append(entry)
            num_nodes.append(int(is_new.sum()))
            num_edges.append(len(entry))
        return SamplerOutput(
            node=node,
            row=torch.cat(rows),
            col=torch.cat(cols),
            edge=torch.cat(entries),
            num_sampled_nodes=num_nodes,
            num_sampled_edges=num_edges,
            metadata=(index.input_id, index.time),
        )

    def sample_from_edges(self, index: Any, neg_sampling: Any = None) -> SamplerOutput:  # noqa: ANN401
        """Refuse: nodes have classes here, edges have none."""
        raise NotImplementedError(
            "a TableSampler draws the neighbours of nodes; use NodeLoader, not LinkLoader"
        )

    def _draw(self, node: Tensor, fanout: int) -> tuple[Tensor, Tensor]:
        """Return which of the nodes each entry belongs to, and where it stands in the table."""
        start = self.table.start[node]
        size = self.table.start[node + 1] - start
        count = size if fanout == -1 else size.clamp(max=fanout)
        dst = torch.arange(len(node)).repeat_interleave(count)
        t = torch.arange(len(dst)) - (count.cumsum(0) - count)[dst]
        u = torch.rand(len(node), dtype=torch.float64)
        step = size.double() / count.clamp(min=1)
        place = ((t + u[dst]) * step[dst]).long().minimum(size[dst] - 1)
        return dst, start[dst] + place


def table_loader(
    packed: PackedTable,
    table: NeighborTable,
    nodes: Tensor,  # (M,), int64
    fanouts: Sequence[int],
    *,
    batch_size: int = 1024,
    shuffle: bool = False,
    num_workers: int = 0,
) -> NodeLoader:
    """Return PyTorch Geometric's loader over packed rows and their table.

    Args:
        packed: the rows.
        table: their neighbours.
        nodes: nodes whose classes are wanted.
        fanouts: see :class:`TableSampler`.
        batch_size: nodes of a batch.
        shuffle: draw an order anew in each pass.
        num_workers: processes that sample ahead.

    Cost: a batch reads at most batch_size·Π fanouts rows.

    Example:
        >>> import tempfile
        >>> from jlgcn.scale import planted_table
        >>> packed, table = planted_table(tempfile.mkdtemp(), 50)
        >>> batch = next(iter(table_loader(packed, table, torch.arange(8), [3, 3])))
        >>> batch.batch_size, batch.x.shape[1]
        (8, 8)
    """
    return NodeLoader(
        (TableFeatureStore(packed, table), TableGraphStore(table)),
        node_sampler=TableSampler(table, fanouts),
        input_nodes=nodes,
        batch_size=batch_size,
        shuffle=shuffle,
        num_workers=num_workers,
        persistent_workers=False,
    )
