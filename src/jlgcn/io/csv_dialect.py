"""How a CSV file is written: its encoding and its delimiter, found from its bytes."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
from pathlib import Path
from typing import NamedTuple

from jlgcn._optional import require

_DELIMITERS = ",;\t|"
_HEAD_BYTES = 2**16
_HEAD_RECORDS = 50
# Share of the records that must have as many cells as the header, for the most cells to decide.
_MIN_SHARE = 0.9
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
    or Latin-1. The delimiter is a comma, semicolon, tab or bar: the one that parts the header into
    most cells, and nine in ten of the first records into as many.

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
    best = (0.5, 1)
    chosen = ","
    for delimiter in _DELIMITERS:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        try:
            counts = [len(row) for row in itertools.islice(reader, _HEAD_RECORDS + 1) if row]
        except csv.Error:
            continue
        counts = counts[:-1] if len(counts) > 1 else counts  # the last may be cut off
        if counts and counts[0] > 1:
            share = sum(count == counts[0] for count in counts) / len(counts)
            score = (min(share, _MIN_SHARE), counts[0])
            if score > best:
                best, chosen = score, delimiter
    return chosen
