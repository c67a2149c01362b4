"""All nodes, layer by layer, without sampling; what does not fit into memory is on disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from tqdm import tqdm

from jlgcn.nn import JLGCN
from jlgcn.nn.conv import JLGCNConv
from jlgcn.scale.forward import check_options
from jlgcn.scale.store import PackedTable
from jlgcn.scale.table import NeighborTable

# Entries of a table that are looked at together.
_CHUNK_ENTRIES = 1 << 20


@torch.no_grad()
def infer(
    model: JLGCN,
    packed: PackedTable,
    table: NeighborTable,
    out: str | os.PathLike[str],
    *,
    num_layers: int | None = None,
    progress: bool = False,
) -> Tensor:  # (N, out_channels)
    r"""Return the logits of all nodes by the graph of a whole table, streamed through files.

    A layer projects and multiplies by its weights first, then sums degrees, then products, each a
    chunk of rows at a time. The weight of an entry in layer l is made anew from the points and
    degrees of layers 1 … l, so that nothing of the size of the table is held.

    Args:
        model: the network, as it is after training.
        packed: the rows.
        table: their neighbours. Its degrees are written here, for batches to come.
        out: folder for points, features and ``logits.npy``; of the former the last layer's go.
        num_layers: layers after which to stop, for the degrees alone; None for all.
        progress: show a bar of nodes a second and time left, where there is a terminal.

    Returns:
        Logits, as a memory map.

    Cost: layer l takes 2·E·(l·rank + channels) FLOP for E entries. On disk 4·N·(layers·(rank + 1) +
    2·channels) bytes; in memory a chunk, and of the files what the system leaves there.

    Example:
        >>> import tempfile
        >>> from jlgcn.scale import planted_table
        >>> folder = tempfile.mkdtemp()
        >>> packed, table = planted_table(folder, 50)
        >>> infer(JLGCN(8, 16, 3, options="paper"), packed, table, f"{folder}/out").shape
        torch.Size([50, 3])
    """
    check_options(model.options)
    was_training = model.training
    model.eval()
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    convs = list(model.convs)[:num_layers]
    bar = tqdm(
        total=packed.num_nodes * len(convs),
        desc="infer",
        unit="node",
        unit_scale=True,
        disable=None if progress else True,
    )
    degree = _map(table.folder / "degree.tmp.npy", packed.num_nodes, len(model.learners))
    chunks = _Chunks(table)
    x: Tensor | None = None
    with bar:
        for index, conv in enumerate(convs):
            assert isinstance(conv, JLGCNConv)
            columns = _map(folder / f"columns-{index}.npy", packed.num_nodes, conv.out_channels)
            if conv.learns:
                points = _map(folder / f"points-{index}.npy", packed.num_nodes, conv.learner.rank)
            for start, stop in chunks.rows():
                if x is None:
                    rows = packed.chunk(start, stop)
                else:
                    rows = functional.leaky_relu(x[start:stop], model.negative_slope)
                if conv.learns:
                    points[start:stop] = conv.learner.project(rows)
                columns[start:stop] = functional.linear(rows, conv.lin.weight)
            if conv.learns:
                chunks.add_layer(points, degree[:, index], model.options.min_degree)
            if num_layers is None or index < num_layers - 1:
                x = _map(folder / f"layer-{index}.npy", packed.num_nodes, conv.out_channels)
                for start, stop in chunks.rows():
                    product = chunks.product(start, stop, columns)
                    x[start:stop] = product if conv.bias is None else product + conv.bias
                    bar.update(stop - start)
    if num_layers is None or num_layers >= len(model.learners):
        os.replace(table.folder / "degree.tmp.npy", table.folder / "degree.npy")
        table.degree = degree
    model.train(was_training)
    for path in folder.glob("columns-*.npy"):
        path.unlink()  # maps stay until they are let go
    if num_layers is not None or x is None:
        shutil.rmtree(folder)
        return torch.empty(0)
    os.replace(folder / f"layer-{len(convs) - 1}.npy", folder / "logits.npy")
    for path in (*folder.glob("points-*.npy"), *folder.glob("layer-*.npy")):
        path.unlink()
    return x


class _Chunks:
    """The rows of a table, some at a time, and the weights that layers so far give them."""

    def __init__(self, table: NeighborTable) -> None:
        self.table = table
        self.points: list[Tensor] = []
        self.scales: list[Tensor] = []

    def rows(self) -> Iterator[tuple[int, int]]:
        """Yield the first and the last row of each chunk."""
        start, num_nodes = 0, self.table.num_nodes
        while start < num_nodes:
            limit = self.table.start[start] + _CHUNK_ENTRIES
            stop = int(torch.searchsorted(self.table.start, limit, right=True)) - 1
            stop = min(max(stop, start + 1), num_nodes)
            yield start, stop
            start = stop

    def add_layer(self, points: Tensor, degree: Tensor, min_degree: float) -> None:
        """Find the degrees of a layer that learns a graph from these points."""
        self.points.append(points)
        for start, stop in self.rows():
            _, dst, weight, loop = self._weights(start, stop)
            degree[start:stop] = loop.index_add(0, dst, weight)
        self.scales.append(degree.clamp(min=max(min_degree, 1e-30)).rsqrt())

    def product(self, start: int, stop: int, columns: Tensor) -> Tensor:
        """Return rows of the product of the last layer's graph."""
        src, _, weight, loop = self._weights(start, stop)
        size = (stop - start, self.table.num_nodes)
        crow = self.table.start[start : stop + 1] - self.table.start[start]
        rows = torch.sparse_csr_tensor(crow, src, weight, size, check_invariants=False)
        return rows @ columns + loop.unsqueeze(-1) * columns[start:stop]

    def _weights(self, start: int, stop: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return neighbours, rows and weights of entries, and the nodes' weights with themselves.

        Normalised by every layer but one whose degrees are not known yet.
        """
        first, last = int(self.table.start[start]), int(self.table.start[stop])
        src = self.table.neighbor[first:last].long()
        size = self.table.start[start : stop + 1].diff()
        dst = torch.arange(stop - start).repeat_interleave(size)
        given = self.table.given
        weight = torch.zeros(last - first) if given is None else given[first:last].clone()
        loop = torch.zeros(stop - start)
        for index, z in enumerate(self.points):
            own = z[start:stop]
            weight += (-(z[src] - own[dst]).square().sum(-1)).exp()
            loop += 1
            if index < len(self.scales):
                scale = self.scales[index]
                weight *= scale[src] * scale[start:stop][dst]
                loop *= scale[start:stop].square()
        return src, dst, weight, loop


def _map(path: Path, num_rows: int, width: int) -> Tensor:
    """Return a new file of numbers as a tensor."""
    array = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(num_rows, width))
    return torch.from_numpy(array)
