from __future__ import annotations

from pathlib import Path

import pytest

from jlgcn.io.files import data_root


def test_data_are_where_one_says_then_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JLGCN_DATA", "/environment")
    assert data_root("/argument") == Path("/argument")
    assert data_root() == Path("/environment")
    monkeypatch.delenv("JLGCN_DATA")
    assert data_root() == Path.home() / ".cache" / "jlgcn"
