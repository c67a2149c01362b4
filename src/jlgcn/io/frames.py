"""Columns of data frames of pandas, polars and Arrow as plain arrays."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jlgcn._optional import require

#: Text that stands for a missing entry, besides null.
GAPS = frozenset(
    (
        *(
            "",
            "-",
            "--",
            "?",
            "...",
            "NA",
            "N/A",
            "n/a",
            "#N/A",
            "#NA",
            "<NA>",
            "NaN",
            "nan",
            "-nan",
        ),
        *("NULL", "Null", "null", "NaT", "#VALUE!", "#REF!", "#DIV/0!"),
    )
)

#: Letters of a text that are read.
MAX_LETTERS = 20_000


class Numbers(NamedTuple):
    """A column of numbers: float64, (N,), NaN where an entry is missing."""

    values: NDArray[np.float64]

    def as_words(self) -> Words:
        """Return the numbers as text, whole ones without a decimal point."""
        found, codes = np.unique(self.values, return_inverse=True)
        words = [str(int(v)) if v.is_integer() else repr(v) for v in found.tolist() if v == v]
        return Words(np.where(np.isnan(self.values), -1, codes), words)


class Dates(NamedTuple):
    """A column of dates: seconds since 1970 (UTC), float64, (N,), NaN where one is missing."""

    seconds: NDArray[np.float64]


class Words(NamedTuple):
    """A column of text, each distinct string once.

    Attributes:
        codes: index into `words`, (N,), -1 where an entry is missing.
        words: distinct strings.
    """

    codes: NDArray[np.int64]
    words: list[str]

    def spread(self, of_words: NDArray[Any], missing: float = 0.0) -> NDArray[Any]:
        """Return values of the distinct strings as values of the rows, (N, ...)."""
        end = np.full((1, *of_words.shape[1:]), missing, dtype=of_words.dtype)
        return np.concatenate([of_words, end])[self.codes]


class Unreadable(NamedTuple):
    """A column of something else, such as lists."""

    kind: str


Column = Numbers | Dates | Words | Unreadable


def is_frame(x: Any) -> bool:  # noqa: ANN401
    """Return whether `x` is a data frame of pandas, polars or Arrow."""
    return hasattr(x, "column_names") or (hasattr(x, "columns") and hasattr(x, "dtypes"))


def is_numeric_frame(frame: Any) -> bool:  # noqa: ANN401
    """Return whether all columns of a data frame are numbers or booleans without gaps."""
    kinds = frame.schema.types if hasattr(frame, "column_names") else list(frame.dtypes)
    if not all(_is_numeric(kind) for kind in kinds):
        return False
    try:
        return not np.isnan(np.asarray(frame, dtype=np.float64)).any()
    except (TypeError, ValueError):  # pandas.NA
        return False


def _is_numeric(kind: Any) -> bool:  # noqa: ANN401
    if hasattr(kind, "kind"):  # NumPy's, and extension types of pandas
        return kind.kind in "biuf"
    if hasattr(kind, "is_numeric"):  # polars
        return bool(kind.is_numeric()) or str(kind) == "Boolean"
    return str(kind).startswith(("int", "uint", "float", "double", "half", "bool"))


def read_columns(frame: Any) -> dict[str, Column]:  # noqa: ANN401
    """Return the columns of a data frame by name (extra ``table``)."""
    arrow = require("pyarrow", "table", "a data frame with other columns than numbers")
    names = [str(name) for name in getattr(frame, "column_names", frame.columns)]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"X has two columns {twice!r}; rename one of them")
    if hasattr(frame, "column_names"):
        columns = frame.columns
    elif hasattr(frame, "iloc"):
        columns = [_of_pandas(arrow, frame.iloc[:, place]) for place in range(len(names))]
    else:
        columns = [arrow.chunked_array([series.to_arrow()]) for series in frame.get_columns()]
    return {name: read_column(column) for name, column in zip(names, columns, strict=True)}


def _of_pandas(arrow: Any, series: Any) -> Any:  # noqa: ANN401
    try:
        found = arrow.Array.from_pandas(series)
    except (arrow.ArrowInvalid, arrow.ArrowTypeError, arrow.ArrowNotImplementedError):
        missing = series.isna().tolist()
        values = [None if gap else str(v) for v, gap in zip(series, missing, strict=True)]
        found = arrow.array(values, type=arrow.string())
    return found if isinstance(found, arrow.ChunkedArray) else arrow.chunked_array([found])


def read_column(column: Any) -> Column:  # noqa: ANN401
    """Return a chunked array of Arrow as a column."""
    arrow = require("pyarrow", "table", "a column")
    kinds, kind = arrow.types, column.type
    if kinds.is_null(kind):
        return Numbers(np.full(len(column), math.nan))
    if kinds.is_boolean(kind):
        column = column.cast(arrow.string())
    elif kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind):
        values = column.cast(arrow.float64(), safe=False).to_numpy()
        return Numbers(np.asarray(values, dtype=np.float64))
    elif kinds.is_date(kind) or kinds.is_timestamp(kind):
        stamps = column.cast(arrow.timestamp("us"), safe=False).cast(arrow.int64())
        return Dates(np.asarray(stamps.cast(arrow.float64()).to_numpy() / 1e6))
    elif not kinds.is_dictionary(kind):
        if not (kinds.is_string(kind) or kinds.is_large_string(kind) or _is_view(kinds, kind)):
            return Unreadable(str(kind))
        column = column.cast(arrow.large_string())
    return _words(column)


def _is_view(kinds: Any, kind: Any) -> bool:  # noqa: ANN401
    return hasattr(kinds, "is_string_view") and bool(kinds.is_string_view(kind))


def _words(column: Any) -> Words:  # noqa: ANN401
    """Return a column of text, stripped, whose distinct strings are read once a chunk."""
    place: dict[str, int] = {}
    codes = []
    for chunk in column.chunks:
        part = chunk if hasattr(chunk, "dictionary") else chunk.dictionary_encode()
        of_chunk = [_clean(word) for word in part.dictionary.to_pylist()]
        found = [-1 if w is None else place.setdefault(w, len(place)) for w in of_chunk]
        indices = part.indices.fill_null(len(found)).to_numpy(zero_copy_only=False)
        codes.append(np.array([*found, -1], dtype=np.int64)[indices])
    joined = np.concatenate(codes) if codes else np.zeros(0, dtype=np.int64)
    return Words(joined, list(place))


def _clean(word: Any) -> str | None:  # noqa: ANN401
    text = " ".join(str(word)[:MAX_LETTERS].split()) if word is not None else ""
    if text in GAPS:
        return None
    return text.lower() if text.lower() in ("true", "false") else text
