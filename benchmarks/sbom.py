"""Write a bill of materials of this environment, in CycloneDX's JSON.

python benchmarks/sbom.py sbom.json

Everything that is installed, with version and licence, as a tool that compares with advisories
reads it. It has no dates and no random numbers, so the same environment gives the same file.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any


def components() -> list[dict[str, Any]]:
    """Return every installed package, by name."""
    found = {}
    for package in importlib.metadata.distributions():
        name = str(package.metadata["Name"]).lower().replace("_", "-")
        component: dict[str, Any] = {
            "type": "library",
            "name": name,
            "version": package.version,
            "purl": f"pkg:pypi/{name}@{package.version}",
        }
        licence = package.metadata.json.get("license_expression")
        if licence:
            component["licenses"] = [{"expression": licence}]
        found[name] = component
    return [found[name] for name in sorted(found)]


def main(path: Path) -> None:
    """Write the bill."""
    every = components()
    own = next((each for each in every if each["name"] == "jlgcn"), None)
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": own} if own else {},
        "components": [each for each in every if each["name"] != "jlgcn"],
    }
    path.write_text(json.dumps(document, indent=2) + "\n")
    print(f"{path}: {len(every)} packages")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
