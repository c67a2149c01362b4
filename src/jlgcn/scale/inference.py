"""All nodes, layer by layer, without sampling; what does not fit into memory is on disk."""

from __future__ import annotations

import functools
import os
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from jlgcn._files import rename
from jlgcn.nn import JLGCN
from jlgcn.nn.conv import JLGCNConv
from jlgcn.scale.forward import check_options
from jlgcn.scale.mapping import Mapper, in_turn, mapped, mapped_to_scatter, new_array, write_rows
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
    run: Mapper = in_turn,
) -> Tensor:  # (N, out_channels)
    r"""Return the logits of all nodes by the graph of a whole table, streamed through files.

    A layer projects and multiplies by its weights first, then sums degrees, then products, each a
    chunk of rows at a time. The weight of an entry in layer l is made anew from the points and
    degrees of layers 1 … l, so that nothing of the size of the table is held.

    Args:
        model: the network, as it is after training.
        packed: the rows.
        table: their neighbours. Its degrees are written here, for batches to come.
        out: folder for points, features and ``logits.npy``; the former are deleted at the end.
        num_layers: layers after which to stop, for the degrees alone; None for all.
        run: what does the chunks, :func:`jlgcn.scale.in_turn` or :func:`jlgcn.scale.over_ray`.

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
    folder = Path(out).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    work = _Inference(model, packed.folder, table.folder, folder)
    count = len(work.bounds) - 1
    convs = list(model.convs)[:num_layers]
    was_training = model.training
    model.eval()
    try:
        for layer, conv in enumerate(convs):
            assert isinstance(conv, JLGCNConv)
            name = f"layer {layer + 1}"
            new_array(work.path("columns", layer), (packed.num_nodes, conv.out_channels))
            if conv.learns:
                new_array(work.path("points", layer), (packed.num_nodes, conv.learner.rank))
                new_array(work.path("degree", layer), (packed.num_nodes, 1))
            run(functools.partial(work.multiply, layer), count, f"{name}, columns")
            if conv.learns:
                run(functools.partial(work.sum_degrees, layer), count, f"{name}, degrees")
            if num_layers is None or layer < num_layers - 1:
                new_array(work.path("layer", layer), (packed.num_nodes, conv.out_channels))
                run(functools.partial(work.convolve, layer), count, f"{name}, products")
    finally:
        model.train(was_training)
    if num_layers is None or num_layers >= len(model.learners):
        degrees = [mapped(work.path("degree", layer)) for layer in range(len(model.learners))]
        _write_degrees(table, degrees)
    if num_layers is None:
        rename(work.path("layer", len(convs) - 1), folder / "logits.npy")
    for name in ("columns", "points", "degree", "layer"):
        for layer in range(len(convs)):
            work.path(name, layer).unlink(missing_ok=True)
    if num_layers is not None:
        with suppress(OSError):  # not empty: it is somebody's folder
            folder.rmdir()
        return torch.empty(0)
    return mapped(folder / "logits.npy")


def _write_degrees(table: NeighborTable, degrees: list[Tensor]) -> None:
    """Write the degrees of all layers beside a table, a column each."""
    temporary = table.folder / "degree.tmp.npy"
    new_array(temporary, (table.num_nodes, len(degrees)))
    for start in range(0, table.num_nodes, _CHUNK_ENTRIES):
        rows = torch.cat([degree[start : start + _CHUNK_ENTRIES] for degree in degrees], 1)
        write_rows(temporary, start, rows.numpy())
    rename(temporary, table.folder / "degree.npy")
    (table.degree,) = mapped_to_scatter([table.folder / "degree.npy"])


@dataclass(frozen=True)
class _Inference:
    """A network over a table; every method does one chunk of rows, and depends on files alone."""

    model: JLGCN
    packed_folder: Path
    table_folder: Path
    folder: Path

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the maps: whoever gets this opens them for itself.
        return type(self), tuple(getattr(self, field.name) for field in fields(self))

    @functools.cached_property
    def packed(self) -> PackedTable:
        """The rows."""
        return PackedTable(self.packed_folder)

    @functools.cached_property
    def table(self) -> NeighborTable:
        """Their neighbours."""
        return NeighborTable(self.table_folder, in_order=True)

    @functools.cached_property
    def bounds(self) -> list[int]:
        """The first row of each chunk, and the number of rows."""
        found, num_nodes = [0], self.table.num_nodes
        while found[-1] < num_nodes:
            limit = self.table.start[found[-1]] + _CHUNK_ENTRIES
            stop = int(torch.searchsorted(self.table.start, limit, right=True)) - 1
            found.append(min(max(stop, found[-1] + 1), num_nodes))
        return found

    def path(self, name: str, layer: int) -> Path:
        """Return where a layer's numbers are."""
        return self.folder / f"{name}-{layer}.npy"

    def conv(self, layer: int) -> JLGCNConv:
        """Return a layer."""
        conv = self.model.convs[layer]
        assert isinstance(conv, JLGCNConv)
        return conv

    @torch.no_grad()
    def multiply(self, layer: int, chunk: int) -> None:
        """Write the points of a chunk's rows, and the rows times the weights."""
        start, stop = self.bounds[chunk : chunk + 2]
        conv = self.conv(layer)
        if layer == 0:
            rows, offset = self.packed.chunk(start, stop), self.packed.offset
        else:
            rows = mapped(self.path("layer", layer - 1))[start:stop]
            rows = functional.leaky_relu(rows, self.model.negative_slope)
            offset = rows.new_zeros(rows.shape[-1])
        if conv.learns:
            points = conv.learner.project(rows, offset=offset)
            write_rows(self.path("points", layer), start, points.numpy())
        columns = functional.linear(rows, conv.lin.weight)
        write_rows(self.path("columns", layer), start, columns.numpy())

    @torch.no_grad()
    def sum_degrees(self, layer: int, chunk: int) -> None:
        """Write the degrees of a chunk's rows, once all points are known."""
        start, stop = self.bounds[chunk : chunk + 2]
        _, dst, weight, loop = self._weights(layer, start, stop, are_degrees_known=False)
        degree = loop.index_add(0, dst, weight)
        write_rows(self.path("degree", layer), start, degree.unsqueeze(-1).numpy())

    @torch.no_grad()
    def convolve(self, layer: int, chunk: int) -> None:
        """Write a chunk's rows of a layer's product, once all degrees are known."""
        start, stop = self.bounds[chunk : chunk + 2]
        (columns,) = mapped_to_scatter([self.path("columns", layer)])
        src, _, weight, loop = self._weights(layer, start, stop, are_degrees_known=True)
        size = (stop - start, self.table.num_nodes)
        crow = self.table.start[start : stop + 1] - self.table.start[start]
        rows = torch.sparse_csr_tensor(crow, src, weight, size, check_invariants=False)
        product = rows @ columns + loop.unsqueeze(-1) * columns[start:stop]
        bias = self.conv(layer).bias
        product = product if bias is None else product + bias
        write_rows(self.path("layer", layer), start, product.numpy())

    def _weights(
        self, layer: int, start: int, stop: int, *, are_degrees_known: bool
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return neighbours, rows and weights of entries, and the nodes' weights with themselves.

        Normalised by every layer but one whose degrees are not known yet.
        """
        table = self.table
        first, last = int(table.start[start]), int(table.start[stop])
        src = table.neighbor[first:last].long()
        size = table.start[start : stop + 1].diff()
        dst = torch.arange(stop - start).repeat_interleave(size)
        weight = (
            torch.zeros(last - first) if table.given is None else table.given[first:last].clone()
        )
        loop = torch.zeros(stop - start)
        for index in range(min(layer + 1, len(self.model.learners))):
            (z,) = mapped_to_scatter([self.path("points", index)])
            weight += (-(z[src] - z[start:stop][dst]).square().sum(-1)).exp()
            loop += 1
            if index < layer or are_degrees_known:
                degree = mapped_to_scatter([self.path("degree", index)])[0].squeeze(-1)
                own = self._scale(degree[start:stop])
                weight *= self._scale(degree[src]) * own[dst]
                loop *= own.square()
        return src, dst, weight, loop

    def _scale(self, degree: Tensor) -> Tensor:
        return degree.clamp(min=max(self.model.options.min_degree, 1e-30)).rsqrt()
