"""What the pages of a Parquet file unpack to, read from their headers before any is unpacked.

The footer has sizes too, but Arrow does not compare them with the pages: a page of a few bytes may
unpack to 2 GiB whatever the footer says. It never unpacks to more than its own header says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

#: DELTA_LENGTH_BYTE_ARRAY and DELTA_BYTE_ARRAY, in which a few bytes are any number of texts.
_UNBOUNDED_ENCODINGS = (6, 7)

# Fields of a PageHeader in parquet.thrift.
_UNCOMPRESSED_SIZE, _COMPRESSED_SIZE = 2, 3
_ENCODINGS = ((5, 2), (7, 2), (8, 4))  # of a data page, a dictionary page, a data page V2


def unpacked_bytes(path: Path, columns: Mapping[int, Sequence[Any]]) -> dict[int, int]:
    """Return how many bytes the pages of each column unpack to.

    Args:
        path: the Parquet file.
        columns: what the footer says of each column's chunks (``ColumnChunkMetaData`` of Arrow).
    """
    packed = sum(chunk.total_compressed_size for chunks in columns.values() for chunk in chunks)
    if packed > path.stat().st_size:  # they overlap: each page would be unpacked again and again
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
                "DELTA_LENGTH_BYTE_ARRAY, whose size in memory cannot be known before; use PLAIN "
                "or dictionary encoding, the default of most writers"
            )
        total += sizes[0]
        place = file.tell() + sizes[1]
    return total


def _read_struct(file: BinaryIO, prefix: tuple[int, ...] = ()) -> dict[tuple[int, ...], int]:
    """Return the whole numbers of a struct in Thrift's compact protocol, by their field ids."""
    found: dict[tuple[int, ...], int] = {}
    field = 0
    while head := _byte(file):
        step, kind = divmod(head, 16)
        field = field + step if step else _zigzag(file)
        match kind:
            case 1 | 2:  # a boolean, which is its kind
                pass
            case 3:
                _byte(file)
            case 4 | 5 | 6:
                found[*prefix, field] = _zigzag(file)
            case 7:
                file.seek(8, 1)
            case 8:
                file.seek(_varint(file), 1)
            case 12 if len(prefix) < 2:  # statistics of a data page are the deepest
                found |= _read_struct(file, (*prefix, field))
            case _:
                raise ValueError(f"a page header has a field of kind {kind}")
    return found


def _byte(file: BinaryIO) -> int:
    found = file.read(1)
    if not found:
        raise ValueError("a page header is cut off")
    return found[0]


def _varint(file: BinaryIO) -> int:
    found = 0
    for shift in range(0, 70, 7):
        byte = _byte(file)
        found |= (byte & 127) << shift
        if byte < 128:
            return found
    raise ValueError("a number in a page header is too long")


def _zigzag(file: BinaryIO) -> int:
    found = _varint(file)
    return found >> 1 ^ -(found & 1)
