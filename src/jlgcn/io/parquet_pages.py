"""Uncompressed sizes of Parquet pages, from their headers: a defence against compression bombs.

The footer has sizes, too, but Arrow does not compare them with the pages: a page of a few bytes may
expand to 2 GiB whatever the footer says. It never expands to more than its own header says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

#: DELTA_LENGTH_BYTE_ARRAY and DELTA_BYTE_ARRAY, in which a few bytes encode any number of strings.
_UNBOUNDED_ENCODINGS = (6, 7)

# Field ids of PageHeader in parquet.thrift.
_UNCOMPRESSED_SIZE, _COMPRESSED_SIZE = 2, 3
_ENCODINGS = ((5, 2), (7, 2), (8, 4))  # of a data page, a dictionary page, a data page V2


def unpacked_bytes(path: Path, columns: Mapping[int, Sequence[Any]]) -> dict[int, int]:
    """Return the uncompressed bytes of each column.

    Args:
        path: the Parquet file.
        columns: column chunks by column, from the footer (Arrow's ``ColumnChunkMetaData``).
    """
    packed = sum(chunk.total_compressed_size for chunks in columns.values() for chunk in chunks)
    if packed > path.stat().st_size:  # overlapping chunks would expand the same pages repeatedly
        raise ValueError(f"its columns have {packed:,} bytes, more than the file")
    with path.open("rb") as file:
        return {
            index: sum(_unpacked_bytes(file, chunk) for chunk in chunks)
            for index, chunks in columns.items()
        }


def _unpacked_bytes(file: BinaryIO, chunk: Any) -> int:  # noqa: ANN401
    place = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < place:
        place = chunk.dictionary_page_offset
    end = place + chunk.total_compressed_size
    total = 0
    while place < end:
        file.seek(place)
        header = _read_struct(file)
        sizes = [header.get((field,), -1) for field in (_UNCOMPRESSED_SIZE, _COMPRESSED_SIZE)]
        if min(sizes) < 0:
            raise ValueError(f"a page of column {chunk.path_in_schema!r} has no size")
        if any(header.get(field) in _UNBOUNDED_ENCODINGS for field in _ENCODINGS):
            raise ValueError(
                f"column {chunk.path_in_schema!r} has the encoding DELTA_BYTE_ARRAY or "
                "DELTA_LENGTH_BYTE_ARRAY, whose size in memory is unknown before it is read; use "
                "PLAIN or dictionary encoding, the default of most writers"
            )
        total += sizes[0]
        place = file.tell() + sizes[1]
    return total


def _read_struct(file: BinaryIO, prefix: tuple[int, ...] = ()) -> dict[tuple[int, ...], int]:
    """Return the integers of a struct in Thrift's compact protocol, by field ids."""
    found: dict[tuple[int, ...], int] = {}
    field = 0
    while head := _byte(file):
        step, kind = divmod(head, 16)
        field = field + step if step else _zigzag(file)
        match kind:
            case 1 | 2:  # a boolean, whose value is its type
                pass
            case 3:
                _byte(file)
            case 4 | 5 | 6:
                found[*prefix, field] = _zigzag(file)
            case 7:
                file.seek(8, 1)
            case 8:
                file.seek(_varint(file), 1)
            case 12 if len(prefix) < 2:  # no struct is deeper than the statistics of a page
                found |= _read_struct(file, (*prefix, field))
            case _:
                raise ValueError(f"a page header has a field of kind {kind}")
    return found


def _byte(file: BinaryIO) -> int:
    found = file.read(1)
    if not found:
        raise ValueError("a page header is truncated")
    return found[0]


def _varint(file: BinaryIO) -> int:
    found = 0
    for shift in range(0, 70, 7):
        byte = _byte(file)
        found |= (byte & 127) << shift
        if byte < 128:
            return found
    raise ValueError("an integer in a page header is too long")


def _zigzag(file: BinaryIO) -> int:
    found = _varint(file)
    return found >> 1 ^ -(found & 1)
