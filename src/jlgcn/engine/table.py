"""Parquet files of any filesystem as shards; edges between rows, joined by their ids."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from jlgcn._files import sha256_of
from jlgcn._optional import require
from jlgcn.closed_form.scaling import ColumnStatistics
from jlgcn.closed_form.shards import MAX_SHARDS, Files, Output, features_to_tensors
from jlgcn.engine.store import filesystem
from jlgcn.io.table_file import no_column
from jlgcn.ops import SparseFeatures

logger = logging.getLogger(__name__)

#: Rows of a shard, and numbers: wide rows make shards of fewer of them.
MAX_SHARD_ROWS = 2**17
_MAX_SHARD_NUMBERS = 2**26

#: Features of a shard are stored as sparse if at most this share of them is not 0.
SPARSE_SHARE = 0.25
_MIN_SPARSE_COLUMNS = 100

# Memory in which a row group is decoded, in units of what it takes then, as measured.
_DECODING = 3

# Columns that an error lists.
_SHOWN = 20

#: What is no label.
UNLABELED = (None, "", "-1", "-1.0", "nan")


@dataclass(frozen=True)
class ItemTable:
    """Parquet files of items, whose rows are numbered file after file.

    Attributes:
        uri: the folder, or the one file.
        columns: columns of features, of numbers or lists of numbers.
        id_column: column of unique ids; None for row numbers.
        label_column: column of classes; None for none.
        pieces: for every shard, parts of files: path, row group, first row, number of rows.
        stamp: hash of the files' sizes and times, by which changed files are told from old ones.
        width: about how many features a row has: lists have several.
        group_bytes: memory in which the largest row group is decoded, whatever a shard takes of it.
    """

    uri: str
    columns: tuple[str, ...]
    id_column: str | None
    label_column: str | None
    pieces: tuple[tuple[tuple[str, int, int, int], ...], ...]
    stamp: str
    width: int
    group_bytes: int

    @property
    def bounds(self) -> list[int]:
        """Number of the first row of every shard, and of all rows."""
        sizes = [sum(piece[3] for piece in shard) for shard in self.pieces]
        return [0, *np.cumsum(sizes).tolist()]

    def arguments(self) -> list[dict[str, Any]]:
        """Return the arguments of :func:`read_shard` for every shard."""
        common = asdict(self)
        for name in ("pieces", "width", "group_bytes"):
            del common[name]
        return [
            common | {"pieces": pieces, "shard": shard} for shard, pieces in enumerate(self.pieces)
        ]


def open_table(
    uri: str,
    *,
    id_column: str | None,
    label_column: str | None,
    drop: Sequence[str] = (),
    features: Sequence[str] | None = None,
    shard_rows: int | None = None,
) -> ItemTable:
    """Look at Parquet files: their columns and row groups, none of their rows.

    Args:
        uri: a folder, whose ``.parquet`` files are read in the order of their names, or a file; on
            disk or in an object store.
        id_column: column of unique ids; None for row numbers.
        label_column: column of classes; None for none.
        drop: columns that are not features.
        features: columns of a model that are features, in this order, and labels are optional; None
            for all others.
        shard_rows: most rows of a shard; None for 131,072, or fewer if they are wide.
    """
    parquet = require("pyarrow.parquet", "scale", f"reading {uri}")
    files, found = parquet_files(uri)
    first, names, parts = None, None, []
    for info in found:
        with files.open_input_file(info.path) as file:
            meta = parquet.ParquetFile(file)
            if names is None:
                first, names = meta.metadata, list(meta.schema_arrow.names)
            elif set(names) - set(meta.schema_arrow.names):
                missing = sorted(set(names) - set(meta.schema_arrow.names))[0]
                raise ValueError(
                    f"{info.path} has no column {missing!r}, which {found[0].path} has; write all "
                    "files with the same columns"
                )
            groups = [meta.metadata.row_group(i).num_rows for i in range(meta.num_row_groups)]
        parts += [(info.path, group, rows) for group, rows in enumerate(groups)]
    assert names is not None
    if features is not None and label_column not in names:
        label_column = None
    for what, name in (("id", id_column), ("label", label_column), *(("drop", d) for d in drop)):
        if name is not None and name not in names:
            raise no_column(uri, name, names, f" (asked for as {what})")
    columns = [n for n in names if n not in {id_column, label_column, *drop}]
    if features is not None:
        missing = sorted(set(features) - set(names))
        if missing:
            raise ValueError(
                f"{uri} lacks columns that are features of the model: "
                f"{', '.join(map(repr, missing[:_SHOWN]))}"
                f"{f' and {len(missing) - _SHOWN} more' if len(missing) > _SHOWN else ''}; add them"
            )
        columns = list(features)
    if not columns or not sum(rows for *_, rows in parts):
        raise ValueError(f"{uri} must have a row and a column of features; add some")
    width, num_bytes = _size_of_row(first, set(names).difference(columns))
    limit = shard_rows or rows_of_shard(width)
    count = -(-sum(rows for *_, rows in parts) // limit)
    if count > MAX_SHARDS:
        raise ValueError(
            f"shards of {limit:,} rows would be {count:,} shards, but {MAX_SHARDS:,} are the most; "
            "take shard_rows larger"
        )
    pieces = tuple(_shards(parts, limit))
    group_bytes = _DECODING * num_bytes * max(rows for *_, rows in parts)
    return ItemTable(
        *(uri, tuple(columns), id_column, label_column, pieces, stamp_of(uri)),
        *(width, group_bytes),
    )


def check_classes(uri: str, column: str, labels: Collection[str]) -> None:
    """Raise if labels are numbers with fractions, of a column of floating-point numbers."""
    arrow = require("pyarrow", "scale", f"reading {uri}")
    parquet = require("pyarrow.parquet", "scale", f"reading {uri}")
    files, found = parquet_files(uri)
    with files.open_input_file(found[0].path) as file:
        schema = parquet.read_schema(file)
    if column not in schema.names or not arrow.types.is_floating(schema.field(column).type):
        return
    if any(not float(label).is_integer() for label in labels):
        raise ValueError(
            f"column {column!r} has {len(set(labels)):,} different numbers in {len(labels):,} "
            "labels; is it a quantity? Classes must be text, integers or booleans"
        )


def rows_of_shard(num_features: int) -> int:
    """Return the most rows of a shard."""
    return max(1024, min(MAX_SHARD_ROWS, _MAX_SHARD_NUMBERS // num_features))


def parquet_files(uri: str) -> tuple[Any, list[Any]]:
    """Return the filesystem of a folder or file, and its Parquet files."""
    fs = require("pyarrow.fs", "scale", f"reading {uri}")
    files, path = filesystem(uri)
    info = files.get_file_info(path)
    if info.is_file:
        return files, [info]
    if info.type == fs.FileType.NotFound:
        raise FileNotFoundError(f"{uri} does not exist; pass a Parquet file, or a folder of some")
    found = files.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
    kept = sorted(
        (each for each in found if each.is_file and each.path.endswith(".parquet")),
        key=lambda each: str(each.path),
    )
    if not kept:
        raise FileNotFoundError(f"{uri} holds no .parquet file; pass a file, or a folder of some")
    return files, kept


def _size_of_row(meta: Any, others: set[str]) -> tuple[int, int]:  # noqa: ANN401
    """Return about how many features a row has, and bytes decoded, by the first row group."""
    total = num_bytes = 0
    group = meta.row_group(0) if meta.num_row_groups else None
    for index in range(meta.num_columns):
        if group is None or meta.schema.column(index).path.split(".")[0] in others:
            continue
        column = group.column(index)
        count = -(-column.num_values // max(1, group.num_rows))
        total += count
        num_bytes += count * (4 if column.physical_type in ("FLOAT", "INT32") else 8)
    return max(1, total), num_bytes


def _shards(
    parts: list[tuple[str, int, int]], limit: int
) -> Iterator[tuple[tuple[str, int, int, int], ...]]:
    """Gather row groups to shards, and take apart those that are larger than a shard."""
    current: list[tuple[str, int, int, int]] = []
    room = limit
    for path, group, rows in parts:
        first = 0
        while first < rows:
            taken = min(rows - first, room)
            current.append((path, group, first, taken))
            first, room = first + taken, room - taken
            if room == 0:
                yield tuple(current)
                current, room = [], limit
    if current:
        yield tuple(current)


def read_rows(
    uri: str,
    columns: Sequence[str],
    id_column: str | None,
    label_column: str | None,
    pieces: Any,  # noqa: ANN401
) -> tuple[Tensor, list[int], Any, list[str | None]]:
    """Return features, (n, F), how many are of each column, ids (Arrow) or None, and labels."""
    arrow = require("pyarrow", "scale", f"reading {uri}")
    parquet = require("pyarrow.parquet", "scale", f"reading {uri}")
    files, _ = filesystem(uri)
    wanted = [*columns, *(name for name in (id_column, label_column) if name is not None)]
    tables = []
    for path, group, first, rows in pieces:
        with files.open_input_file(path) as file:
            table = parquet.ParquetFile(file).read_row_group(group, columns=wanted)
        tables.append(table.slice(first, rows))
    try:
        # Files may hold integers, floating-point numbers or gaps alone in the same column.
        table = arrow.concat_tables(tables, promote_options="permissive")
    except arrow.ArrowTypeError as error:
        raise ValueError(
            f"files of {uri} must have columns of one type each, but {error}; write them alike"
        ) from None
    parts = [_numbers(table, name, uri) for name in columns]
    x, widths = torch.from_numpy(np.concatenate(parts, 1)), [part.shape[1] for part in parts]
    del parts
    ids = None
    if id_column is not None:
        ids = table.column(id_column).cast(arrow.large_string()).combine_chunks()
        if ids.null_count:
            raise ValueError(f"every row needs an id, but column {id_column!r} of {uri} has none")
    labels: list[str | None] = []
    if label_column is not None:
        labels = table.column(label_column).cast(arrow.string()).to_pylist()
    return x, widths, ids, labels


def _numbers(table: Any, name: str, uri: str) -> np.ndarray:  # noqa: ANN401
    """Return a column of numbers, (n, 1), or of lists of as many numbers, (n, K)."""
    arrow = require("pyarrow", "scale", "features")
    column, kinds = table.column(name).combine_chunks(), arrow.types
    width = 1
    if (
        kinds.is_list(column.type)
        or kinds.is_large_list(column.type)  # which polars writes
        or kinds.is_fixed_size_list(column.type)
    ):
        compute = require("pyarrow.compute", "scale", "features")
        lists = column
        lengths = compute.list_value_length(lists).unique().to_pylist()
        width, column = lengths[0] or 0, lists.flatten()
        if len(lengths) > 1 or width == 0 or lists.null_count:
            raise ValueError(
                f"lists of features must be equally long, but those in column {name!r} of {uri} "
                "are not; write one vector a row"
            )
    if not (
        kinds.is_integer(column.type)
        or kinds.is_floating(column.type)
        or kinds.is_boolean(column.type)
    ):
        raise ValueError(
            f"features must be numbers, but column {name!r} of {uri} is of {column.type}; encode "
            "it, name it as the id or the label, or leave it out"
        )
    numbers: np.ndarray = column.cast(arrow.float32(), safe=False).to_numpy(zero_copy_only=False)
    if not np.isfinite(numbers).all():
        raise ValueError(
            f"features must be complete and finite, but column {name!r} of {uri} is not; impute "
            "such numbers, or leave out the column"
        )
    found: np.ndarray = numbers.reshape(-1, width)
    return found


def read_shard(
    files: Files,
    uri: str,
    columns: Sequence[str],
    id_column: str | None,
    label_column: str | None,
    pieces: Any,  # noqa: ANN401
    stamp: str,
    shard: int,
    num_sampled: int,
) -> Output:
    """Read a shard: features and ids to its file, statistics and labels to the summary."""
    x, widths, ids, labels = read_rows(uri, columns, id_column, label_column, pieces)
    found = ColumnStatistics.of(x)
    known = [row for row, label in enumerate(labels) if label not in UNLABELED]
    summary = {
        name: value if isinstance(value, Tensor) else torch.tensor(value)
        for name, value in found._asdict().items()
    }
    summary |= {
        "widths": torch.tensor(widths),
        "sample": x[:: max(1, -(-len(x) // num_sampled))],
        "labeled": torch.tensor(known, dtype=torch.int64),
        "labels": to_bytes([labels[row] for row in known]),
    }
    share = int(found.num_nonzero.sum()) / max(1, x.numel())
    is_sparse = share <= SPARSE_SHARE and x.shape[1] >= _MIN_SPARSE_COLUMNS
    tensors = features_to_tensors(SparseFeatures.from_dense(x) if is_sparse else x)
    if ids is not None:
        _, offsets, content = ids.buffers()
        start = np.frombuffer(offsets, dtype=np.int64)[ids.offset : ids.offset + len(ids) + 1]
        letters = np.frombuffer(content, dtype=np.uint8)[start[0] : start[-1]]
        tensors["id_starts"] = torch.from_numpy(start - start[0])
        tensors["id_letters"] = torch.from_numpy(letters.copy())
    return Output(tensors, summary)


def ids_of(tensors: Any, first: int, count: int) -> Any:  # noqa: ANN401
    """Return the ids of a shard as an Arrow array of text: of its rows, or their numbers."""
    arrow = require("pyarrow", "scale", "ids")
    if "id_starts" not in tensors:
        return arrow.array(np.arange(first, first + count)).cast(arrow.large_string())
    parts = [arrow.py_buffer(tensors[name].numpy()) for name in ("id_starts", "id_letters")]
    return arrow.LargeStringArray.from_buffers(count, *parts)


def read_ids(files: Files, name: str, first: int, count: int) -> Any:  # noqa: ANN401
    """Return the ids of a shard: of its raw features, or of its Parquet file of predictions."""
    if ".parquet" not in name:  # options of a server may follow
        return ids_of(files.tensors(name), first, count)
    arrow = require("pyarrow", "scale", "ids")
    parquet = require("pyarrow.parquet", "scale", "ids")
    places, path = filesystem(name)
    with places.open_input_file(path) as file:
        ids = parquet.ParquetFile(file).read().column(0)
    return ids.cast(arrow.large_string()).combine_chunks()


def to_bytes(texts: Sequence[str | None]) -> Tensor:  # (bytes,), uint8
    """Return texts as a tensor, for a summary."""
    return torch.tensor(list(json.dumps(texts).encode()), dtype=torch.uint8)


def from_bytes(content: Tensor) -> list[str]:
    """Return the texts in a tensor."""
    found: list[str] = json.loads(bytes(content.tolist()))
    return found


def stamp_of(*uris: str | None) -> str:
    """Return a hash of the names, sizes and times of Parquet files."""
    found = [[] if uri is None else parquet_files(uri)[1] for uri in uris]
    stamps = [[(info.path, info.size, info.mtime_ns) for info in each] for each in found]
    return sha256_of(json.dumps(stamps).encode())
