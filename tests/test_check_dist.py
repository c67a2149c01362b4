from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.check_dist import check_wheel

WHEEL = (
    *("jlgcn/__init__.py", "jlgcn/py.typed", "jlgcn-1.dist-info/licenses/LICENSE"),
    *("jlgcn/report/templates/layout.html", "jlgcn/report/page.css"),
)


def write(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "")
    return path


def test_a_wheel_of_code_and_licence_is_accepted(tmp_path: Path) -> None:
    check_wheel(write(tmp_path / "a.whl", *WHEEL))


@pytest.mark.parametrize("missing", WHEEL)
def test_a_wheel_that_lacks_something_is_refused(tmp_path: Path, missing: str) -> None:
    with pytest.raises(SystemExit, match=r"has no"):
        check_wheel(write(tmp_path / "a.whl", *(name for name in WHEEL if name != missing)))


def test_a_wheel_with_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"should not have jlgcn/data/cora\.npz"):
        check_wheel(write(tmp_path / "a.whl", *WHEEL, "jlgcn/data/cora.npz"))
