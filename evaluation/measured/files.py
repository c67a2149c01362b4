"""What benchmarks have recorded, as the tables of the documentation need it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jlgcn.paper.tables import percent

GIB = 2**30


def recorded(path: Path) -> dict[str, Any]:
    """Return the results in a file."""
    found: dict[str, Any] = json.loads(path.read_text())["results"]
    return found


def points(row: dict[str, Any]) -> str:
    """Return a difference in points, with its interval if it has one."""
    mean = f"{round(100 * row['mean'], 1) + 0.0:+.1f}"
    return (
        mean if row["low"] is None else f"{mean} ({percent(row['low'])} to {percent(row['high'])})"
    )
