"""Where data files are, and proof that they are the ones we mean."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from jlgcn._files import read_file


def data_root(root: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder of data files: `root`, or what JLGCN_DATA says, or ~/.cache/jlgcn.

    Example:
        >>> data_root("somewhere").name
        'somewhere'
    """
    if root is not None:
        return Path(root)
    named = os.environ.get("JLGCN_DATA")
    return Path(named) if named else Path.home() / ".cache" / "jlgcn"


def sha256_of(content: bytes) -> str:
    """Return the SHA-256 of some bytes, in hexadecimal.

    Example:
        >>> sha256_of(b"")[:8]
        'e3b0c442'
    """
    return hashlib.sha256(content).hexdigest()


def hash_of_document(document: dict[str, Any]) -> str:
    """Return the SHA-256 of a JSON document, whatever the order of its fields.

    Example:
        >>> hash_of_document({"a": 1, "b": 2}) == hash_of_document({"b": 2, "a": 1})
        True
    """
    return sha256_of(json.dumps(document, sort_keys=True).encode())


def read_verified(path: Path, sha256: str) -> bytes:
    """Read a file whose hash is known, or raise before anything looks into it."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path} is not there; set JLGCN_DATA (or root=, --data) to the folder that has "
            f"{path.parent.name}/{path.name}, or fetch it (download=True, --download)"
        ) from None
    found = sha256_of(content)
    if found != sha256:
        raise ValueError(
            f"{path} is not the published file: its SHA-256 is {found[:16]}… where {sha256[:16]}… "
            "was expected; delete it and get it again (download=True, --download)"
        )
    return content


def hash_of_file(path: Path) -> str:
    """Return the SHA-256 of a file, however large, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(path: Path, max_bytes: int = 64 * 2**20) -> dict[str, Any]:
    """Return the JSON object in a file, or raise a ValueError that says why there is none.

    Args:
        path: the file.
        max_bytes: a larger one is not read, because what it holds would take many times its size.
    """
    content = read_file(path, max_bytes)
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name} is not JSON ({error})") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path.name} holds no JSON object")
    return found
