"""How a CSV file is written: its encoding and its delimiter, found from its bytes."""

from __future__ import annotations

import codecs
import csv
from pathlib import Path
from typing import NamedTuple

from jlgcn._optional import require

_DELIMITERS = ",;\t|"
_HEAD_BYTES = 2**16
_HEAD_RECORDS = 50
_BLOCK_BYTES = 2**20
_MARKS = {
    codecs.BOM_UTF8: "utf-8",  # Arrow skips the mark itself
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


class Dialect(NamedTuple):
    """Encoding and delimiter of a CSV file."""

    encoding: str
    delimiter: str


def csv_dialect(path: Path, *, whole: bool) -> Dialect:
    """Return the dialect of a CSV file, compressed or not (extra ``table``).

    The encoding is UTF-8, or UTF-16 with a byte order mark; if the bytes are neither, Windows-1252,
    or Latin-1. The delimiter is a comma, semicolon, tab or bar: the one that parts the first
    records into most columns of equal number.

    Args:
        path: the file.
        whole: read all of it for the encoding, instead of the first 64 kB.
    """
    with require("pyarrow", "table", "CSV").input_stream(path) as stream:
        head = stream.read(_HEAD_BYTES)
        encoding = _encoding_of_head(head)
        if encoding == "utf-8" and whole:
            decoder = codecs.getincrementaldecoder("utf-8")()
            try:
                decoder.decode(head)
                while block := stream.read(_BLOCK_BYTES):
                    decoder.decode(block)
                decoder.decode(b"", final=True)
            except UnicodeDecodeError:
                encoding = "cp1252"
    try:
        text = head.decode(encoding, errors="strict" if encoding == "cp1252" else "ignore")
    except UnicodeDecodeError:
        encoding = "latin-1"
        text = head.decode(encoding)
    return Dialect(encoding, _delimiter(text))


def _encoding_of_head(head: bytes) -> str:
    for mark, encoding in _MARKS.items():
        if head.startswith(mark):
            return encoding
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _delimiter(text: str) -> str:
    lines = text.splitlines(keepends=True)
    lines = lines[:-1] if len(lines) > 1 else lines  # the last may be cut off
    counts: dict[str, int] = {}
    for delimiter in _DELIMITERS:
        try:
            found = [len(row) for row in csv.reader(lines[:_HEAD_RECORDS], delimiter=delimiter)]
        except csv.Error:
            continue
        found = [count for count in found if count]
        if found and min(found) == max(found):
            counts[delimiter] = found[0]
    best = max(counts, key=counts.__getitem__, default=",")
    return best if counts.get(best, 1) > 1 else ","
