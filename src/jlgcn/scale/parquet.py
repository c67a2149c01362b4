"""Rows of Parquet files, by path or by any address that pyarrow knows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jlgcn._optional import require


def absolute(source: str | os.PathLike[str]) -> str:
    """Return where something is, whatever folder a process works in."""
    text = os.fspath(source)
    return text if "://" in text else str(Path(text).absolute())


def filesystem(source: str | os.PathLike[str]) -> tuple[Any, str]:
    """Return the filesystem of an address, and the path in it."""
    filesystems = require("pyarrow.fs", "table", "reading Parquet")
    text = absolute(source)
    if "://" in text:
        found: tuple[Any, str] = filesystems.FileSystem.from_uri(text)
        return found
    return filesystems.LocalFileSystem(), text


def parquet_files(source: str | os.PathLike[str]) -> tuple[tuple[str, int, int], ...]:
    """Return path, rows and bytes of every Parquet file."""
    system, path = filesystem(source)
    filesystems = require("pyarrow.fs", "table", "reading Parquet")
    info = system.get_file_info(path)
    if info.type == filesystems.FileType.Directory:
        below = system.get_file_info(filesystems.FileSelector(path, recursive=True))
        found = sorted((i for i in below if i.path.endswith(".parquet")), key=lambda i: i.path)
    else:
        found = [info] if info.type == filesystems.FileType.File else []
    if not found:
        raise FileNotFoundError(
            f"there is no Parquet file at {source}; pass a file or a folder with files that end "
            "with .parquet"
        )
    return tuple(
        (i.path, int(open_parquet(system, i.path).metadata.num_rows), int(i.size)) for i in found
    )


def open_parquet(system: Any, path: str) -> Any:  # noqa: ANN401
    """Open a file; one that is no Parquet is named."""
    parquet = require("pyarrow.parquet", "table", "reading Parquet")
    arrow = require("pyarrow", "table", "reading Parquet")
    try:
        return parquet.ParquetFile(system.open_input_file(path))
    except arrow.ArrowInvalid as problem:
        raise ValueError(f"{path} cannot be read as Parquet ({problem})") from None


def rows_of(
    source: str | os.PathLike[str],
    files: tuple[tuple[str, int, int], ...],
    start: int,
    stop: int,
    features: Sequence[str],
    label: str | None,
) -> Iterator[tuple[int, Any]]:
    """Yield the number of the first row and a table, until all rows from start to stop are read."""
    system, _ = filesystem(source)
    columns = [*features, *([label] if label else [])]
    first = 0
    for path, num_rows, _ in files:
        if first < stop and first + num_rows > start:
            yield from row_groups(open_parquet(system, path), first, start, stop, columns)
        first += num_rows


def row_groups(
    file: Any,  # noqa: ANN401
    first: int,
    start: int,
    stop: int,
    columns: list[str] | None,
) -> Iterator[tuple[int, Any]]:
    """Yield the number of the first row and a table for each row group between start and stop."""
    for group in range(file.metadata.num_row_groups):
        size = file.metadata.row_group(group).num_rows
        low, high = max(start, first), min(stop, first + size)
        if low < high:
            table = file.read_row_group(group, columns=columns)
            yield low, table.slice(low - first, high - low)
        first += size
