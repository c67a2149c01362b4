"""Check what a folder of built files holds: licence, types and code, and nothing else.

python tests/check_dist.py dist
"""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path

#: Folders and files at the top of an sdist.
IN_SDIST = {
    *(
        "src",
        "evaluation",
        "tests",
        "benchmarks",
        "examples",
        "docs",
        "pyproject.toml",
        "PKG-INFO",
        ".gitignore",
    ),
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE", "CITATION.cff"),
    *("requirements-lock.txt", "requirements-tools.txt"),
}
MAX_BYTES = 2_000_000


def check_wheel(path: Path) -> None:
    """Raise if a wheel lacks something, or carries data."""
    names = zipfile.ZipFile(path).namelist()
    for needed in (
        *("jlgcn/__init__.py", "jlgcn/py.typed", ".dist-info/licenses/LICENSE"),
        *("jlgcn/report/templates/layout.html", "jlgcn/report/page.css"),
    ):
        if not any(name.endswith(needed) for name in names):
            raise SystemExit(f"{path.name} has no {needed}")
    for name in names:
        is_code = name.startswith("jlgcn/") and name.endswith(
            (".py", ".js", ".css", ".html", "py.typed")
        )
        if not (is_code or ".dist-info/" in name):
            raise SystemExit(f"{path.name} should not have {name}")


def check_sdist(path: Path) -> None:
    """Raise if an sdist has another file or folder at its top than it should."""
    with tarfile.open(path) as archive:
        top = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    if top != IN_SDIST:
        raise SystemExit(f"{path.name}: {sorted(top ^ IN_SDIST)} too many or missing")


def main(folder: Path) -> None:
    """Check the one wheel and the one sdist of a folder."""
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    check_wheel(wheel)
    check_sdist(sdist)
    for path in (wheel, sdist):
        if path.stat().st_size > MAX_BYTES:
            raise SystemExit(
                f"{path.name} has more than {MAX_BYTES:,} bytes; are there data in it?"
            )
        print(f"{path.name}: {path.stat().st_size:,} bytes, as it should be")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
