"""Write requirements-lock.txt: what continuous integration installs, each with its hash.

python benchmarks/lock.py

PyTorch stands first in every environment, as the CPU build of the version that is tested, and is
left out with what only its CUDA build needs. No index is named: whichever pip is told to use must
have files of these hashes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements-lock.txt"
TORCH = "torch==2.13.0"
LEFT_OUT = ("torch", "triton", "nvidia-", "cuda-", "jlgcn")


def requirements() -> list[str]:
    """Return what the package, its tests and its documentation ask for, without PyTorch."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = set(project["dependencies"])
    open_extras = ["dev", "docs"]
    while open_extras:
        for line in project["optional-dependencies"][open_extras.pop()]:
            if line.startswith("jlgcn["):
                open_extras += line.removeprefix("jlgcn[").rstrip("]").split(",")
            else:
                found.add(line)
    return sorted(line for line in found if not line.startswith("torch>"))


def resolved() -> list[dict[str, str]]:
    """Ask pip what it would install, and return names, versions and hashes."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"]
        command += ["--quiet", "--report", str(report), TORCH, *requirements()]
        subprocess.run(command, check=True)  # noqa: S603
        return locked(json.loads(report.read_text()))


def locked(report: dict[str, object]) -> list[dict[str, str]]:
    """Return the lines of a report of pip that belong into the lock."""
    lines = []
    installed: list[dict[str, dict[str, dict[str, str]]]] = report["install"]  # type: ignore[assignment]
    for package in installed:
        name = str(package["metadata"]["name"]).lower().replace("_", "-")
        if name.startswith(LEFT_OUT) and name != "torch-geometric":
            continue
        hashes: dict[str, str] = package["download_info"]["archive_info"]["hashes"]  # type: ignore[assignment]
        version = str(package["metadata"]["version"])
        lines.append({"name": name, "version": version, "sha256": hashes["sha256"]})
    return sorted(lines, key=lambda line: line["name"])


def main() -> None:
    """Write the lock."""
    text = "# Made by benchmarks/lock.py; torch is installed before, see there.\n"
    for line in resolved():
        text += f"{line['name']}=={line['version']} \\\n    --hash=sha256:{line['sha256']}\n"
    LOCK.write_text(text)
    print(f"{LOCK.name}: {text.count('--hash')} packages")


if __name__ == "__main__":
    main()
