"""Shards in turn, or over machines: everything large is a function from shard to shard."""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from jlgcn._checks import available_bytes
from jlgcn._files import open_in_place, replacing


class Mapper(Protocol):
    """Does something for every shard, in any order, each on any machine that sees the files.

    What is done depends on the number of the shard and on files alone, and writes the same bytes
    when it is done again: whoever maps may lose a machine and try once more.

    Cost: that of all calls.

    Example:
        >>> def twice(function: Callable[[int], object], count: int, label: str) -> None:
        ...     for shard in [*range(count), *range(count)]:
        ...         function(shard)
        >>> run: Mapper = twice
    """

    def __call__(self, function: Callable[[int], object], count: int, label: str) -> None:
        """Call the function with every number below count; it is over when all are done."""


def in_turn(
    function: Callable[[int], object], count: int, label: str, *, progress: bool = False
) -> None:
    """Do one shard after another in this process.

    Args:
        function: what to do with the number of a shard.
        count: number of shards.
        label: what it is, for the bar.
        progress: show a bar, where there is a terminal.

    Cost: that of all calls.

    Example:
        >>> in_turn(print, 2, "print")
        0
        1
    """
    for shard in tqdm(range(count), desc=label, unit="shard", disable=None if progress else True):
        function(shard)


def new_array(path: Path, shape: tuple[int, ...], dtype: Any = np.float32) -> None:  # noqa: ANN401
    """Make a file of numbers, all 0, whose rows :func:`write_rows` fills in."""
    dtype = np.dtype(dtype)
    header = {
        "descr": np.lib.format.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": shape,
    }
    with replacing(path) as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + math.prod(shape) * dtype.itemsize)  # takes no room as yet


def write_array(path: Path, array: np.ndarray) -> None:
    """Write a file of numbers that is small enough to be written at once."""
    with replacing(path) as file:
        np.save(file, array)


def write_rows(path: Path, start: int, rows: np.ndarray) -> None:
    """Write rows at their place in a file of :func:`new_array`.

    By a write and not through a map: two machines that write to neighbouring rows of a mapped file
    would write back each other's pages.
    """
    array = np.load(path, mmap_mode="r")
    place = int(array.offset) + start * int(array.strides[0])
    with open_in_place(path, "r+b") as file:
        file.seek(place)
        file.write(np.ascontiguousarray(rows, dtype=array.dtype).data)


def mapped(path: Path) -> Tensor:
    """Return a file of numbers as a tensor that is read where it is looked at, best in order."""
    # Copy on write: nothing is ever written, but PyTorch warns of maps that cannot be.
    return torch.from_numpy(np.load(path, mmap_mode="c"))


def mapped_to_scatter(paths: Sequence[Path]) -> list[Tensor]:
    """Return files of numbers as tensors of which rows are wanted from all over.

    Where all of them fit into memory, the system may read ahead, and soon has everything. Where
    they do not, it is told not to: for each row it would read megabytes, and drop for them what
    is needed next.
    """
    arrays = [np.load(path, mmap_mode="c") for path in paths]
    if sum(array.nbytes for array in arrays) > available_bytes():
        for array in arrays:
            if isinstance(array.base, mmap.mmap) and hasattr(mmap, "MADV_RANDOM"):
                array.base.madvise(mmap.MADV_RANDOM)
    return [torch.from_numpy(array) for array in arrays]
