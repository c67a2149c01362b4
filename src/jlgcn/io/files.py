"""The data folder, and files with a known SHA-256."""

from __future__ import annotations

import os
from pathlib import Path

from jlgcn._files import sha256_of


def data_root(root: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder of data files: `root`, else $JLGCN_DATA, else ~/.cache/jlgcn.

    Example:
        >>> data_root("somewhere").name
        'somewhere'
    """
    if root is not None:
        return Path(root)
    named = os.environ.get("JLGCN_DATA")
    return Path(named) if named else Path.home() / ".cache" / "jlgcn"


def read_verified(path: Path, sha256: str) -> bytes:
    """Return the content of a file after verifying its hash."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path} does not exist; set JLGCN_DATA (or root=, --data) to the folder that contains "
            f"{path.parent.name}/{path.name}, or download it (download=True, --download)"
        ) from None
    found = sha256_of(content)
    if found != sha256:
        raise ValueError(
            f"{path} is not the published file: its SHA-256 must be {sha256[:16]}…, but it is "
            f"{found[:16]}…; delete it and download it again (download=True, --download)"
        )
    return content
