"""The data folder, for tests of real data; they are skipped, with the reason, without one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_BESIDE = Path(__file__).parents[3] / "shared" / "data"
DATA = Path(os.environ.get("JLGCN_DATA") or _BESIDE)

needs_data = pytest.mark.skipif(
    not (DATA / "planetoid").is_dir(), reason="no data: set JLGCN_DATA to the folder that has it"
)
