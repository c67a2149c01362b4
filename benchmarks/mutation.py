"""How many small faults in `ops` and `graphs` do the contract tests notice?

A mutant is the package with one small change: another comparison, another operator, a number plus
one, a condition turned round, a statement or an argument left out. A seeded sample of all of them
is tried, each in a process of its own and on a copy of the tree, against ``tests/graphs`` and
``tests/ops``; whoever survives is listed. Equivalent mutants (a larger block, a tolerance) are not
taken out: they count as survivors.

python -m benchmarks.mutation --mutants 400 --jobs 2 --json results/reliability/mutation.json
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = ("ops", "graphs")
#: A line for each mutant that was tried; whoever goes on tries the others.
LINES = ROOT / "results" / "reliability" / "mutation.jsonl"
#: A mutant that makes a test wait for ever is noticed by the clock.
TIMEOUT_SECONDS = 300.0

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


@dataclass(frozen=True)
class Mutant:
    """One small change.

    Attributes:
        path: the file, below the root.
        line: where in it.
        number: which change of this file, in the order of :func:`changes`.
        before: the code, in short.
        after: what becomes of it.
    """

    path: str
    line: int
    number: int
    before: str
    after: str


def changes(tree: ast.Module) -> Iterator[tuple[ast.AST, str, object]]:
    """Yield every place that can be changed: a node, one of its fields, and its new value."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare(ops=[op]) if type(op) in _COMPARISONS:
                yield node, "ops", [_COMPARISONS[type(op)]()]
            case ast.BinOp(op=op) if type(op) in _OPERATORS:
                yield node, "op", _OPERATORS[type(op)]()
            case ast.BoolOp(op=op):
                yield node, "op", ast.Or() if isinstance(op, ast.And) else ast.And()
            case ast.UnaryOp(op=ast.USub()):
                yield node, "op", ast.UAdd()
            case ast.UnaryOp(op=ast.Invert() | ast.Not(), operand=operand):
                yield node, "operand", ast.UnaryOp(node.op, operand)
            case ast.If(test=test) | ast.IfExp(test=test):
                yield node, "test", ast.UnaryOp(ast.Not(), test)
            case ast.Constant(value=bool(value)):
                yield node, "value", not value
            case ast.Constant(value=int(value) | float(value)):
                yield node, "value", value + 1
            case ast.Expr(value=ast.Call()):
                yield node, "value", ast.Constant(None)
            case ast.Call(keywords=[_, *_]):
                yield node, "keywords", node.keywords[:-1]


def mutants_of(path: Path) -> list[Mutant]:
    """Return the changes of a file, without those in annotations, names of types and messages."""
    tree = ast.parse(path.read_text())
    skipped = _skipped(tree)
    found = []
    for number, (node, field, value) in enumerate(changes(tree)):
        if node in skipped:
            continue
        changed = copy.copy(node)
        setattr(changed, field, value)
        before, after = (_short(each) for each in (node, changed))
        if before != after:
            name = str(path.relative_to(ROOT))
            found.append(Mutant(name, getattr(node, "lineno", 0), number, before, after))
    return found


def _skipped(tree: ast.Module) -> set[ast.AST]:
    """Return nodes whose change no test should notice, or that are not run on this machine."""
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        away: list[ast.AST] = []
        if isinstance(node, ast.FunctionDef):
            away = [a.annotation for a in node.args.args if a.annotation]
            away += node.decorator_list
            away += [node.returns] if node.returns else []
            if node.name in ("_", "__repr__", "__torch_function__"):  # shapes for the compiler
                away.append(node)
        elif isinstance(node, ast.AnnAssign):
            away = [node.annotation]
        elif (
            isinstance(node, ast.Raise)
            or (isinstance(node, ast.If) and ("cuda" in ast.unparse(node.test)))
            or (
                isinstance(node, ast.Call) and ast.unparse(node.func).startswith(("logger", "warn"))
            )
        ):
            away = [node]
        for each in away:
            skipped.update(ast.walk(each))
    return skipped


def _short(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())[:100]


def mutated_source(mutant: Mutant) -> str:
    """Return the file of a mutant."""
    tree = ast.parse((ROOT / mutant.path).read_text())
    for number, (node, field, value) in enumerate(changes(tree)):
        if number == mutant.number:
            setattr(node, field, value)
            return ast.unparse(ast.fix_missing_locations(tree))
    raise LookupError(mutant)


def is_killed(copy_of_tree: Path, mutant: Mutant) -> tuple[bool, float]:
    """Return whether a test fails with the mutant, and the seconds it took."""
    path = copy_of_tree / mutant.path
    original = path.read_text()
    path.write_text(mutated_source(mutant))
    start = time.perf_counter()
    try:
        own = Path(mutant.path).parent.name
        tests = copy_of_tree / "tests"
        # What is nearest first: most mutants are noticed there.
        stages = [tests / own / f"test_{Path(mutant.path).name}", tests / own]
        stages += [tests / part for part in PARTS if part != own]
        for files in filter(Path.exists, stages):
            if _run(copy_of_tree, files) != 0:
                return True, time.perf_counter() - start
        return False, time.perf_counter() - start
    finally:
        path.write_text(original)


def _run(folder: Path, files: Path) -> int:
    """Return the exit code of pytest in a fork of this process, which has the large imports."""
    child = os.fork()
    if child == 0:
        os.setpgrp()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        os.chdir(folder)
        os.environ["PYTHONPATH"] = str(folder / "src")
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        sys.dont_write_bytecode = True
        sys.path[:0] = [str(folder / "src"), str(folder)]
        code = 3
        try:
            import pytest

            options = ["-x", "-q", "-p", "no:cacheprovider", f"--rootdir={folder}"]
            code = int(pytest.main([*options, str(files)]))
        finally:
            os._exit(code)
    timer = threading.Timer(TIMEOUT_SECONDS, os.killpg, (child, signal.SIGKILL))
    timer.start()
    _, status = os.waitpid(child, 0)
    timer.cancel()
    return os.waitstatus_to_exitcode(status)


def work(job: int, jobs: int, chosen: list[Mutant], lines: Path) -> None:
    """Try every so-manyth mutant that has no line yet, and write one for each."""
    import scipy.sparse.linalg  # noqa: F401
    import torch_geometric.data  # noqa: F401

    done = {tuple(json.loads(line)["mutant"].values()) for line in _read(lines)}
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for name in ("src", "tests", "docs"):
            shutil.copytree(ROOT / name, tree / name)
        shutil.copy(ROOT / "pyproject.toml", tree)
        for mutant in chosen[job::jobs]:
            if tuple(vars(mutant).values()) in done:
                continue
            killed, seconds = is_killed(tree, mutant)
            line = {"mutant": vars(mutant), "killed": killed, "seconds": round(seconds, 1)}
            with lines.open("a") as file:
                file.write(json.dumps(line) + "\n")


def _read(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def main() -> None:
    """Try a sample of mutants and write what became of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--lines", type=Path, default=LINES, help="to resume")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    files = [p for part in PARTS for p in sorted((ROOT / "src/jlgcn" / part).glob("*.py"))]
    every = [mutant for path in files for mutant in mutants_of(path)]
    chosen = random.Random(arguments.seed).sample(  # noqa: S311
        every, min(arguments.mutants, len(every))
    )
    children = []
    for job in range(arguments.jobs):
        child = os.fork()
        if child == 0:
            work(job, arguments.jobs, chosen, arguments.lines)
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    lines = [json.loads(line) for line in _read(arguments.lines)]
    killed = sum(line["killed"] for line in lines)
    print(f"{killed} of {len(lines)} mutants killed ({len(every)} possible)")
    if arguments.json is not None:
        from benchmarks.measure import write_json

        survivors = [line["mutant"] for line in lines if not line["killed"]]
        survivors.sort(key=lambda mutant: (mutant["path"], mutant["line"]))
        write_json(
            arguments.json,
            {"seed": arguments.seed, "mutants": len(chosen), "possible": len(every)},
            {"tried": len(lines), "killed": killed, "survivors": survivors},
        )


if __name__ == "__main__":
    main()
