"""Every public name, what it is, and the tests that mention it; `names.md` is made from this.

A name is public if one of the packages below lists it in ``__all__``, or if it is a command of
``jlgcn``. What several packages list is counted once, where it stands first.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from jlgcn.cli import app

PACKAGES = (
    "jlgcn",
    "jlgcn.graphs",
    "jlgcn.nn",
    "jlgcn.training",
    "jlgcn.closed_form",
    "jlgcn.engine",
    "jlgcn.report",
    "jlgcn.io",
    "jlgcn.paper",
    "jlgcn.ops",
    "jlgcn.distributed",
    "jlgcn.errors",
)
COMMANDS = "commands"
_SHOWN_FILES = 3


@dataclass(frozen=True)
class PublicName:
    """A name that users may rely on.

    Attributes:
        home: the package or module that offers it, or "commands".
        name: the name.
        summary: the first sentence of its docstring.
        tests: test files that mention it, the ones that do so most first.
    """

    home: str
    name: str
    summary: str
    tests: tuple[str, ...]


def public_names(root: Path) -> list[PublicName]:
    """Return every public name of the project in this folder."""
    mentions = {path: _mentioned(path) for path in sorted(root.glob("tests/**/*.py"))}
    found = []
    seen_values: list[object] = []
    for home in PACKAGES:
        module = importlib.import_module(home)
        for name in module.__all__:
            value = getattr(module, name)
            is_new = not any(value is other for other in seen_values)
            if is_new and not inspect.ismodule(value) and not name.startswith("__"):
                seen_values.append(value)
                tests = _files(root, {path: seen[name] for path, seen in mentions.items()})
                found.append(PublicName(home, name, _first_sentence(value), tests))
    groups = {f"jlgcn {group.name}": group.typer_instance for group in app.registered_groups}
    for place, group in ({"jlgcn": app} | groups).items():
        assert group is not None
        for command in group.registered_commands:
            assert command.callback is not None
            name = command.name or command.callback.__name__
            typed = f"{place} {name} …".removeprefix("jlgcn ")
            counts = {path: seen[typed] for path, seen in mentions.items()}
            summary = _first_sentence(command.callback)
            found.append(PublicName(COMMANDS, f"{place} {name}", summary, _files(root, counts)))
    return found


def as_markdown(names: list[PublicName]) -> str:
    """Return a list for each home; a table of three columns would not fit on a phone."""
    lines: list[str] = []
    for home in dict.fromkeys(name.home for name in names):
        title = "The command line" if home == COMMANDS else home
        lines += ["", f"## {title}", ""]
        for name in (name for name in names if name.home == home):
            shown = ", ".join(f"`{file}`" for file in name.tests[:_SHOWN_FILES])
            more = len(name.tests) - _SHOWN_FILES
            shown += f" and {more} more" if more > 0 else ""
            shown = shown or "**no file**"
            lines.append(f"- **`{name.name}`**: {name.summary}. Tested in {shown}.")
    return "\n".join(lines)


def _mentioned(path: Path) -> Counter[str]:
    """Return the names that code of a file uses, without its strings and comments.

    The first of a list of strings, or of arguments, may be a command, or the first two one of a
    group; they are counted as "name …" and "group name …".
    """
    seen: Counter[str] = Counter()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Name):
            seen[node.id] += 1
        elif isinstance(node, ast.Attribute):
            seen[node.attr] += 1
        elif isinstance(node, ast.List | ast.Call):
            match node.elts if isinstance(node, ast.List) else node.args:
                case [ast.Constant(value=str(first)), *others]:
                    seen[f"{first} …"] += 1
                    match others:
                        case [ast.Constant(value=str(second)), *_]:
                            seen[f"{first} {second} …"] += 1
    return seen


def _files(root: Path, counts: dict[Path, int]) -> tuple[str, ...]:
    used = [path for path in counts if counts[path] > 0]
    used.sort(key=lambda path: (-counts[path], str(path)))
    return tuple(str(path.relative_to(root / "tests")) for path in used)


def _first_sentence(value: object) -> str:
    if not (inspect.isroutine(value) or inspect.isclass(value)):
        return "a constant"
    text = (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")
    text = text.split(". ")[0].rstrip(".:").replace("``", "`")
    text = re.sub(r":math:`(.+?)`", r"$\1$", text)
    return re.sub(r":\w+:`~?([\w.]+)`", lambda role: f"`{role[1].split('.')[-1]}`", text)
