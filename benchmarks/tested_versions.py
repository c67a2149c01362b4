"""Record which versions of everything a test run passed with, in results/versions.json.

pytest -m "not slow" -n 2 --junitxml tests.xml
python -m benchmarks.tested_versions tests.xml --json results/versions.json

Run it in the environment of the tests. An entry replaces the one of the same Python and PyTorch.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
from importlib import metadata
from pathlib import Path
from xml.etree import ElementTree

from jlgcn._files import write_file
from jlgcn.training.environment import commit


def installed() -> dict[str, str]:
    """Return the version of every direct dependency and extra that is installed."""
    found = {}
    for requirement in metadata.requires("jlgcn") or []:
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # what builds the documentation, mostly
    found.pop("jlgcn", None)  # an extra that names others
    return dict(sorted(found.items()))


def entry(report: Path) -> dict[str, object]:
    """Return what pytest's report says, and where it was written."""
    suite = ElementTree.parse(report).getroot()[0]  # noqa: S314  # of our own pytest
    tests, skipped, errors, failures = (
        int(suite.attrib[name]) for name in ("tests", "skipped", "errors", "failures")
    )
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": installed(),
        "passed": tests - skipped - errors - failures,
        "failed": errors + failures,
        "skipped": skipped,
        "seconds": round(float(suite.attrib["time"])),
        "commit": commit(),
        "date": suite.attrib["timestamp"][:10],
    }


def environment(found: dict[str, object]) -> tuple[object, ...]:
    """Return what tells environments apart."""
    versions = found["versions"]
    assert isinstance(versions, dict)
    return found["python"], versions["torch"], found["platform"]


def main() -> None:
    """Add one test run to the list."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path, help="what pytest --junitxml has written")
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()
    new = entry(arguments.report)
    old = json.loads(arguments.json.read_text()) if arguments.json.exists() else []
    kept = [other for other in old if environment(other) != environment(new)]
    runs = sorted([*kept, new], key=lambda run: str(environment(run)))
    write_file(arguments.json, json.dumps(runs, indent=2) + "\n")
    print({name: new[name] for name in ("python", "passed", "failed", "skipped", "seconds")})


if __name__ == "__main__":
    main()
