"""Where the nightly counts leave their figures: the folder that JLGCN_RECORD names, if any."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from jlgcn.training.environment import versions


def record(name: str, results: dict[str, Any]) -> None:
    """Write what was found, with what and on what it was found."""
    folder = os.environ.get("JLGCN_RECORD")
    if folder:
        document = {"results": results, "environment": versions()}
        path = Path(folder) / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=2) + "\n")


def count(variable: str, full: int) -> int:
    """Return how often to try: the full count, or what a variable of the environment says."""
    return int(os.environ.get(variable, full))
