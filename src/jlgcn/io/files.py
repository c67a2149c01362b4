"""Where data files are, and proof that they are the ones we mean."""

from __future__ import annotations

import os
from pathlib import Path

from jlgcn._files import sha256_of


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
