"""No file, however damaged, does more to a reader than be refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import signed
from tests.fuzz.readers import TARGETS, changed, fuzz, inputs, read

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("kind", TARGETS)
def test_a_reader_reads_the_corpus(kind: str, tmp_path: Path) -> None:
    assert inputs()[kind], f"there is no file for {kind}"
    for content in inputs()[kind]:
        outcome, _ = read(kind, content, tmp_path)
        assert outcome in ("read", "refused"), outcome
    assert any(read(kind, content, tmp_path)[0] == "read" for content in inputs()[kind])


@pytest.mark.parametrize("kind", TARGETS)
def test_a_reader_refuses_what_is_damaged_and_nothing_else_happens(
    kind: str, tmp_path: Path
) -> None:
    counts = fuzz(0.4, 0, tmp_path, None, [kind])[kind]
    assert counts["inputs"] > 0
    assert counts["crashes"] == 0
    assert counts["slow"] == 0


def test_an_accident_changes_something() -> None:
    import random

    chance = random.Random(0)
    assert any(changed(b"abc", b"xyz", chance) != b"abc" for _ in range(9))


@pytest.mark.parametrize("kind", signed.USES)
def test_what_was_signed_again_after_a_change_is_refused_or_harmless(kind: str) -> None:
    counts = signed.fuzz(kind, 6.0, 0)
    assert counts["refused"] > 0
    assert counts["read"] > 0
    assert counts["crashes"] == counts["slow"] == counts["stopped by a hash"] == 0
