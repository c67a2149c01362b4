"""Readers of the user's tables and edge lists, CSV or Parquet, with bounded memory."""

from __future__ import annotations

import difflib
import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from jlgcn._memory import check_unpacked
from jlgcn._optional import require
from jlgcn._validation import LARGEST_WHOLE, check_not_negative, warn_of_large_integers
from jlgcn.io.csv_dialect import csv_dialect
from jlgcn.io.parquet_pages import unpacked_bytes

logger = logging.getLogger(__name__)

_SHOWN = 3  # names in a message
_SHOWN_TEXT = 40  # characters of each

# Largest ratio of memory to file size; a file stores a column of 0 and 1 in a bit a number or less.
_LARGEST_RATIO = 1000
_BYTES_OF_ROW = 256  # id and label as Python objects
_BYTES_OF_NUMBER = 16  # in the type of the file, and as float32
_PER_TEXT_BYTE = 10  # short strings as Python objects
_PER_CSV_BYTE = 8  # the shortest number takes two bytes, with its comma
_BLOCK_BYTES = 2**20


@dataclass(frozen=True, eq=False)
class TableFile:
    """The rows of a table.

    Attributes:
        ids: ids of the rows, (N,).
        frame: columns that are features, an Arrow table of N rows.
        labels: labels as text, None in unlabelled rows, (N,); None without a label column.
        name: name of the file.
    """

    ids: list[str]
    frame: Any
    labels: list[str | None] | None
    name: str

    @property
    def feature_names(self) -> list[str]:
        """Names of the columns that are features."""
        return list(self.frame.column_names)

    @cached_property
    def x(self) -> np.ndarray:
        """All columns as numbers, (N, K), float32, NaN where one is missing; or a ValueError."""
        names = self.feature_names
        x = np.stack([_numbers(self.frame, name, self.name) for name in names], axis=1)
        infinite = np.isinf(x)
        if infinite.any():
            row, column = (int(index[0]) for index in infinite.nonzero())
            raise ValueError(
                f"features must be finite, but column {names[column]!r} of row "
                f"{self.ids[row]!r} in {self.name} is {x[row, column]}; replace it, or leave out "
                "the row"
            )
        return x

    def texts(self, name: str) -> list[str]:
        """Return a column as text, "" where it is missing."""
        return [text or "" for text in _texts(self.frame, name)]

    def __repr__(self) -> str:
        labelled = 0 if self.labels is None else sum(label is not None for label in self.labels)
        return (
            f"TableFile({len(self.ids):,} rows, {len(self.feature_names):,} features, "
            f"{labelled:,} labelled)"
        )


def read_table(
    path: str | os.PathLike[str],
    *,
    id_column: str | None = None,
    label_column: str | None = None,
    drop: Sequence[str] = (),
) -> TableFile:
    """Read the rows of a CSV or Parquet file (extra ``table``).

    Encoding and delimiter of a CSV file are found by :func:`jlgcn.io.csv_dialect.csv_dialect`. Its
    columns are read as text, and become numbers or booleans if all entries are.

    Args:
        path: Parquet if it ends with ``.parquet``, else CSV with a header.
        id_column: column of unique row ids; None for row numbers.
        label_column: column of classes, empty in unlabelled rows; None for none.
        drop: columns that are not features.

    Every other column is a feature.
    """
    path = Path(path)
    names = column_names(path)
    for what, name in (("id", id_column), ("label", label_column), *(("drop", d) for d in drop)):
        if name is not None and name not in names:
            raise no_column(path.name, name, names, f" (asked for as {what})")
    features = [name for name in names if name not in {id_column, label_column, *drop}]
    wanted = {id_column, label_column, *features}
    table = _read(path, [name for name in names if name in wanted])
    if table.num_rows == 0:
        raise ValueError(f"{path.name} has a header but no rows; add some")
    if not features:
        raise ValueError(f"{path.name} has no column to learn from, but those of ids and labels")
    ids = [str(i) for i in range(table.num_rows)]
    if id_column is not None:
        found = _texts(table, id_column)
        _check_ids(found, id_column, path)
        ids = [str(name) for name in found]
    labels = None
    if label_column is not None:
        labels = [(label or "").strip() or None for label in _texts(table, label_column)]
    frame = table.select(features)
    if path.suffix != ".parquet":
        for place, name in enumerate(features):
            frame = frame.set_column(place, name, _typed(frame.column(name)))
    return TableFile(ids, frame, labels, path.name)


def column_names(path: str | os.PathLike[str]) -> list[str]:
    """Return the column names of a table without reading its rows (extra ``table``)."""
    path = Path(path)
    with _arrow(path):
        names = _parquet_names(path) if path.suffix == ".parquet" else _csv_names(path)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{path.name} has two columns {twice!r}; rename one of them")
    return names


def read_edges(
    path: str | os.PathLike[str], ids: Sequence[str]
) -> tuple[Tensor, Tensor | None]:  # (2, E), int64; (E,)
    """Read edges between the rows of a table from a CSV or Parquet file (extra ``table``).

    Args:
        path: file whose first two columns are row ids; a column ``weight`` is optional.
        ids: ids of the table's rows.

    Edges with an unknown id are counted, logged and dropped.

    Returns:
        Row numbers of each edge, and weights in float32; None if the file has no weights.
    """
    path = Path(path)
    names = column_names(path)
    if len(names) < 2:
        raise ValueError(
            f"{path.name} must have a column for each end of an edge, but its columns are "
            f"{_some(names)}"
        )
    table = _read(path, [*names[:2], *(name for name in names[2:] if name == "weight")])
    if path.suffix != ".parquet" and "weight" in table.column_names[2:]:
        table = table.set_column(2, "weight", _typed(table.column(2)))
    place = {name: index for index, name in enumerate(ids)}
    ends = [_texts(table, name) for name in table.column_names[:2]]
    found = np.array([[place.get(end or "", -1) for end in side] for side in ends], dtype=np.int64)
    found = found.reshape(2, table.num_rows)
    is_known = (found >= 0).all(0)
    weight = None
    if "weight" in table.column_names[2:]:
        values = torch.from_numpy(_numbers(table, "weight", path.name))
        check_not_negative(values, f"weight in {path.name}, edge")
        weight = values[torch.from_numpy(is_known)]
    if not is_known.all():
        unknown = {end or "" for side in ends for end in side if (end or "") not in place}
        logger.warning(
            "dropped %s of %s edges in %s, whose ids are not in the table, such as %s",
            f"{int((~is_known).sum()):,}",
            f"{table.num_rows:,}",
            path.name,
            _some(sorted(unknown)),
        )
    return torch.from_numpy(found[:, is_known]), weight


@contextmanager
def _arrow(path: Path) -> Iterator[None]:
    """Raise a ValueError with a remedy for a file that Arrow cannot read."""
    arrow = require("pyarrow", "table", f"reading {path.name}")
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; pass the path of a CSV or Parquet file")
    try:
        yield
    except (arrow.ArrowException, OSError, MemoryError, OverflowError) as problem:
        raise _unreadable(path, problem) from None


def _unreadable(path: Path, problem: Exception) -> ValueError:
    kind = "Parquet" if path.suffix == ".parquet" else "CSV"
    reason = (str(problem).splitlines() or [type(problem).__name__])[0]
    remedy = "write it again as a table"
    if re.search(r"Expected \d+ columns", reason):
        remedy = "every row needs as many cells as the header; put a cell with delimiters in quotes"
    elif path.suffix.lower() in (".xlsx", ".xls", ".ods"):
        remedy = "save the sheet as CSV"
    return ValueError(f"{path} cannot be read as {kind} ({reason}); {remedy}")


def no_column(file: str, name: str, names: Sequence[str], why: str = "") -> ValueError:
    """Return the error of a column that a file does not have, with the names nearest to it."""
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}? Its" if near else "its"
    return ValueError(f"{file} has no column {name!r}{why}; {hint} columns are {_some(names, 20)}")


def _parquet_names(path: Path) -> list[str]:
    return list(require("pyarrow.parquet", "table", "Parquet").read_schema(path).names)


def _csv_names(path: Path) -> list[str]:
    csv = require("pyarrow.csv", "table", "CSV")
    with csv.open_csv(path, **_csv_options(csv, path, whole=False)) as rows:
        return list(rows.schema.names)


def _csv_options(csv: Any, path: Path, *, whole: bool) -> dict[str, Any]:  # noqa: ANN401
    encoding, delimiter = csv_dialect(path, whole=whole)
    return {
        "read_options": csv.ReadOptions(encoding=encoding),
        "parse_options": csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
    }


def _read(path: Path, columns: list[str]) -> Any:  # noqa: ANN401
    with _arrow(path):
        return (_read_parquet if path.suffix == ".parquet" else _read_csv)(path, columns)


def _read_parquet(path: Path, columns: list[str]) -> Any:  # noqa: ANN401
    parquet = require("pyarrow.parquet", "table", "Parquet")
    kinds = require("pyarrow", "table", "Parquet").types
    found = parquet.read_metadata(path)
    leaves = [found.schema.column(index) for index in range(found.num_columns)]
    # Arrow takes "a.b" for a field of "a", even if it is a column.
    wanted = [
        index
        for index, leaf in enumerate(leaves)
        if any(f"{leaf.path}.".startswith(f"{name}.") for name in columns)
    ]
    # Dictionary-encoded as in the file: each string once.
    texts = [leaves[index].path for index in wanted if leaves[index].physical_type == "BYTE_ARRAY"]
    with parquet.ParquetFile(path, read_dictionary=texts) as file:
        for name in columns:
            kind = file.schema_arrow.field(name).type
            if kinds.is_nested(kind) or (name in texts and not kinds.is_dictionary(kind)):
                raise ValueError(
                    f"columns must be of numbers or text, but column {name!r} of {path.name} is of "
                    f"{kind}; convert it to columns of numbers, or leave it out"
                )
        _check_parquet(path, found, wanted)
        return file.read(columns=columns).select(columns)


def _check_parquet(path: Path, found: Any, wanted: list[int]) -> None:  # noqa: ANN401
    """Raise if columns of a Parquet file would take more memory than its size justifies."""
    groups = [found.row_group(index) for index in range(found.num_row_groups)]
    num_rows = sum(group.num_rows for group in groups)
    chunks = {index: [group.column(index) for group in groups] for index in wanted}
    try:
        unpacked = unpacked_bytes(path, chunks)
    except ValueError as problem:
        raise _unreadable(path, problem) from None
    total = _BYTES_OF_ROW * num_rows
    for index, parts in chunks.items():
        leaf = found.schema.column(index)
        num_values = max(num_rows, sum(part.num_values for part in parts))
        total += max(_BYTES_OF_NUMBER, leaf.length) * num_values
        total += unpacked[index] * (_PER_TEXT_BYTE if leaf.physical_type == "BYTE_ARRAY" else 1)
    remedy = "write some of its rows or columns, or all of it as CSV"
    check_unpacked(path, total, remedy, largest_ratio=_LARGEST_RATIO)


def _read_csv(path: Path, columns: list[str]) -> Any:  # noqa: ANN401
    csv = require("pyarrow.csv", "table", "CSV")
    text = require("pyarrow", "table", "CSV").string()
    _check_compressed(path)
    convert = csv.ConvertOptions(
        strings_can_be_null=True,
        include_columns=columns,
        column_types=dict.fromkeys(columns, text),  # or else 007 would become 7
    )
    return csv.read_csv(path, convert_options=convert, **_csv_options(csv, path, whole=True))


def _typed(column: Any) -> Any:  # noqa: ANN401
    """Return a column of text as whole numbers, numbers or booleans, if all entries are."""
    arrow = require("pyarrow", "table", "CSV")
    compute = require("pyarrow.compute", "table", "CSV")
    if compute.any(compute.match_substring_regex(column, r"^\s*[-+]?0\d")).as_py():
        return column  # codes, such as 007
    for kind in (arrow.int64(), arrow.float64(), arrow.bool_()):
        try:
            return compute.utf8_trim_whitespace(column).cast(kind)
        except arrow.ArrowInvalid:
            continue
    return column


def _check_compressed(path: Path) -> None:
    """Raise as soon as a compressed CSV file has expanded to more than its size justifies."""
    num_bytes = num_rows = 0
    # Compressed or not by the suffix, as for `read_csv`.
    with require("pyarrow", "table", "CSV").input_stream(path) as stream:
        if stream.seekable():
            return  # not compressed
        while block := stream.read(_BLOCK_BYTES):
            num_bytes += len(block)
            num_rows += block.count(b"\n")
            total = _PER_CSV_BYTE * num_bytes + _BYTES_OF_ROW * num_rows
            check_unpacked(path, total, "unpack it first", largest_ratio=_LARGEST_RATIO)


def _texts(table: Any, name: str) -> list[str | None]:  # noqa: ANN401
    arrow = require("pyarrow", "table", "a table")
    column = table.column(name)
    if not arrow.types.is_dictionary(column.type):
        values = column.to_pylist()
        return [None if value is None or value != value else str(value) for value in values]  # NaN
    texts: list[str | None] = []
    for chunk in column.chunks:  # equal rows share one string object
        words = [None if word is None else str(word) for word in chunk.dictionary.to_pylist()]
        indices = chunk.indices.to_pylist()
        texts += [None if index is None else words[index] for index in indices]
    return texts


def _numbers(table: Any, name: str, file: str) -> np.ndarray:  # noqa: ANN401
    arrow = require("pyarrow", "table", "a table")
    column = table.column(name)
    kinds = arrow.types
    is_number = kinds.is_integer(column.type) or kinds.is_floating(column.type)
    if kinds.is_null(column.type):  # all entries are missing
        return np.full(table.num_rows, np.nan, dtype=np.float32)
    if kinds.is_boolean(column.type) or kinds.is_decimal(column.type) or is_number:
        values = column.cast(arrow.float64()).to_numpy()
        if kinds.is_integer(column.type) and (np.abs(values) > LARGEST_WHOLE).any():
            warn_of_large_integers(f"column {name!r} of {file}")
        with np.errstate(over="ignore"):  # overflow becomes inf, which `read_table` refuses
            return np.asarray(values, dtype=np.float32)
    kind = column.type.value_type if kinds.is_dictionary(column.type) else column.type
    example = next((text for text in _texts(table, name) if text is not None), "")
    raise ValueError(
        f"features must be numbers, but column {name!r} of {file} is of {kind}, such "
        f"as {example[:_SHOWN_TEXT]!r}; write a number there, or leave out the column, the row or "
        "the entry"
    )


def _check_ids(ids: Sequence[str | None], column: str | None, path: Path) -> None:
    seen: dict[str | None, int] = {}
    for row, name in enumerate(ids):
        if name is None:
            raise ValueError(
                f"every row needs an id, but row {row} of {path.name} has none in column "
                f"{column!r}; fill it in, or use another id column"
            )
        if name in seen:
            raise ValueError(
                f"ids must be unique, but rows {seen[name]} and {row} of {path.name} are both "
                f"{name[:_SHOWN_TEXT]!r}; drop one, or use another id column"
            )
        seen[name] = row


def _some(names: Sequence[str], most: int = _SHOWN) -> str:
    shown = ", ".join(repr(name[:_SHOWN_TEXT]) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
