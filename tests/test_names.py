"""No public name without a test, and a page that lists them all."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.public_names import PublicName, as_markdown, public_names

ROOT = Path(__file__).parent.parent
NAMES = public_names(ROOT)


@pytest.mark.parametrize("name", NAMES, ids=lambda name: f"{name.home}.{name.name}")
def test_a_public_name_is_described_and_tested(name: PublicName) -> None:
    assert name.summary
    assert name.tests, f"no test mentions {name.home}.{name.name}"


def test_a_name_without_a_test_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_one.py").write_text(
        '"""as_graph"""\ngaussian_knn_graph(1)  # as_graph\n'
    )
    tests = {name.name: name.tests for name in public_names(tmp_path)}
    assert tests["gaussian_knn_graph"] == ("test_one.py",)
    assert tests["as_graph"] == ()  # words in strings and comments test nothing


def test_the_page_lists_names_and_commands() -> None:
    page = as_markdown(NAMES)
    assert "- **`KernelGraph`**: " in page
    assert "- **`jlgcn fit`**: " in page
    assert "**no file**" not in page
    assert ":class:" not in page  # what reStructuredText reads is no Markdown


def test_the_page_has_a_place_for_them() -> None:
    assert "<!-- the lists of docs/public_names.py stand here -->" in (
        ROOT / "docs" / "names.md"
    ).read_text(encoding="utf-8")
