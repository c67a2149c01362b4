"""What benchmarks have recorded, as the tables of the documentation need it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

GIB = 2**30


def recorded(path: Path) -> dict[str, Any]:
    """Return the results in a file."""
    found: dict[str, Any] = json.loads(path.read_text())["results"]
    return found


def points(row: dict[str, Any]) -> str:
    """Return a difference in points, with its interval if it has one."""
    mean = f"{100 * row['mean']:+.1f}"
    return (
        mean
        if row["low"] is None
        else f"{mean} ({100 * row['low']:.1f} to {100 * row['high']:.1f})"
    )
