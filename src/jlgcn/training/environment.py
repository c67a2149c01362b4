"""Provenance of a result: versions of packages, hardware, commit."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

import torch

import jlgcn

PACKAGES = (
    *("torch", "numpy", "scipy", "scikit-learn", "typer"),
    *("torch_geometric", "faiss-cpu", "matplotlib"),
)


def versions() -> dict[str, str]:
    """Return versions of packages that results depend on, and the hardware.

    Example:
        >>> versions()["jlgcn"] == jlgcn.__version__
        True
    """
    found = {"jlgcn": jlgcn.__version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    found["platform"] = platform.platform()
    found["processor"] = _processor()
    found["threads"] = f"{torch.get_num_threads()} of {os.cpu_count()}"
    if torch.cuda.is_available():
        found["cuda"] = str(torch.version.cuda)
        for index in range(torch.cuda.device_count()):
            found[f"cuda:{index}"] = torch.cuda.get_device_name(index)
    return found


def commit() -> str | None:
    """Return the commit of the source, "-dirty" if files differ from it; None without git.

    Example:
        >>> commit() is None or len(commit()) >= 40
        True
    """
    try:
        head, changes = (
            subprocess.run(  # noqa: S603
                ["git", *words],  # noqa: S607
                cwd=Path(jlgcn.__file__).parent,
                capture_output=True,
                text=True,
                check=True,
            ).stdout.strip()
            for words in (("rev-parse", "HEAD"), ("status", "--porcelain", "--", "."))
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{head}-dirty" if changes else head


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
