"""No public name without a test, and a page that lists them all."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from docs.public_names import COMMANDS, PACKAGES, PublicName, as_markdown, public_names

ROOT = Path(__file__).parent.parent
NAMES = public_names(ROOT)


@pytest.mark.parametrize("name", NAMES, ids=lambda name: f"{name.home}.{name.name}")
def test_a_public_name_is_described_and_tested(name: PublicName) -> None:
    assert name.summary
    assert name.tests, f"no test mentions {name.home}.{name.name}"


def test_there_are_at_most_sixty_two_names_besides_the_commands() -> None:
    names = [name for name in NAMES if name.home != COMMANDS]
    assert len(names) <= 62, [f"{name.home}.{name.name}" for name in names]


def imported(text: str) -> list[tuple[str, str]]:
    """Return the packages and names that the Python in a text imports from jlgcn."""
    found = re.findall(r"^\s*from (jlgcn[\w.]*) import (?:\(([^)]*)\)|(.*))$", text, re.MULTILINE)
    return [
        (home, name.split(" as ")[0].strip())
        for home, several, line in found
        for name in (several or line.partition("#")[0]).replace("\n", " ").split(",")
        if name.strip()
    ]


@pytest.mark.parametrize(
    "path",
    [
        ROOT / "README.md",
        *sorted(ROOT.glob("docs/guides/*.md")),
        *sorted(ROOT.glob("examples/*.py")),
    ],
    ids=lambda path: path.name,
)
def test_readers_are_shown_public_names_only(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    shown = re.sub(r"```\{code-cell\} ipython3\n:tags: \[remove-cell\].*?```", "", text, flags=re.S)
    for home, name in imported(shown):
        module = importlib.import_module(home)
        assert home in PACKAGES, f"{path.name} imports from {home}"
        assert name in module.__all__, f"{path.name} imports {home}.{name}"


def test_a_private_import_is_noticed() -> None:
    text = "from jlgcn.nn import (\n    JLGCN,\n    b as c,\n)\nfrom jlgcn.x import y  # z\n"
    assert imported(text) == [("jlgcn.nn", "JLGCN"), ("jlgcn.nn", "b"), ("jlgcn.x", "y")]


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
