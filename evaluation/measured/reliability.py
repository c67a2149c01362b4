"""Tables of promises that are counted or measured, and of what was found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evaluation.measured.files import recorded
from jlgcn.paper.tables import markdown


def reliability(results: Path) -> str:
    """Return every promise that is counted or measured, with its gate and what was found."""
    lines = [("", "promised", "found")]
    for name, promised, file, found in _RELIABILITY:
        path = results / "reliability" / f"{file}.json"
        lines.append((name, promised, found(recorded(path)) if path.exists() else "not run yet"))
    return markdown(lines)


def mutants(results: Path) -> str:
    """Return how many mutants were noticed, by file."""
    path = results / "reliability" / "mutation.json"
    if not path.exists():
        return "Not run yet."
    document = json.loads(path.read_text())
    found = document["results"]
    survivors: dict[str, int] = {}
    for mutant in found["survivors"]:
        survivors[mutant["path"]] = survivors.get(mutant["path"], 0) + 1
    lines = [("", "mutants")]
    lines.append(("sampled", f"{document['settings']['mutants']:,}"))
    lines.append(("possible", f"{document['settings']['possible']:,}"))
    lines.append(("tried", f"{found['tried']:,}"))
    lines.append(
        ("noticed", f"{found['killed']:,} ({100 * found['killed'] / found['tried']:.0f} %)")
    )
    lines += [(f"survived in `{name}`", str(number)) for name, number in sorted(survivors.items())]
    return markdown(lines)


def _lost_ranks(found: dict[str, Any]) -> str:
    return "; ".join(
        f"{name}: {figure['finished or named in time']} of {figure['runs']}, "
        f"{figure['finished']} finished, slowest {figure['slowest seconds']:.0f} s"
        for name, figure in found.items()
    )


def _refused(found: dict[str, Any]) -> str:
    return (
        f"{found['refused']} of {found['files']}; slowest {found['slowest seconds']:.2f} s, "
        f"at most {found['most extra bytes'] / 2**20:.0f} MiB"
    )


def _fuzzed(found: dict[str, Any]) -> str:
    counts = found["counts"].values()
    inputs, crashes, slow = (
        sum(count[name] for count in counts) for name in ("inputs", "crashes", "slow")
    )
    return f"{crashes} in {inputs:,} inputs and {found['minutes']:.0f} minutes; {slow} slow"


def _memory(found: dict[str, Any]) -> str:
    ratios = [row["ratio"] for row in found.values()]
    return f"{min(ratios):.2f} to {max(ratios):.2f} of the peak, {len(ratios)} sizes"


_RELIABILITY: list[tuple[str, str, str, Callable[[dict[str, Any]], str]]] = [
    (
        "checks of inputs, beside an epoch on Pubmed",
        "at most 1 %",
        "validation",
        lambda found: f"{100 * found['share']:.2f} %",
    ),
    (
        "kill -9 at a random time; resumed to the same bits",
        "200 of 200",
        "kills",
        lambda found: f"{found['same']} of {found['runs']} ({found['kills']} kills)",
    ),
    (
        "SIGTERM at a random time: checkpoint and code 143 in 10 s",
        "all",
        "terminations",
        lambda found: (
            f"{found['as promised']} of {found['runs']}, slowest {found['slowest seconds']} s"
        ),
    ),
    (
        "a crash at each system call of a save: the old or the new one loads",
        "all",
        "crash_points",
        lambda found: f"{found['whole']} of {found['points']}",
    ),
    (
        "one rank of four is killed or stopped: finished, or named in 120 s",
        "80 of 80",
        "ranks",
        _lost_ranks,
    ),
    ("damaged models and checkpoints refused by name", "200 of 200, 5 s", "mutants", _refused),
    ("hostile files refused, nothing run", "all, 5 s, 200 MB", "hostile", _refused),
    ("crashes of readers under fuzzing", "0 in an hour", "fuzz", _fuzzed),
    (
        "crashes, or NaN, of models and checkpoints that were changed and signed again",
        "0 in 10,000 inputs",
        "fuzz_signed",
        _fuzzed,
    ),
    (
        "loads of a model that two processes save into one folder meanwhile",
        "all",
        "saves",
        lambda found: (
            f"{found['loads'] - found['failed']:,} of {found['loads']:,}, beside "
            f"{found['saves']} saves"
        ),
    ),
    (
        "kill -9 while a model is saved again: one loads",
        "50 of 50",
        "killed_saves",
        lambda found: f"{found['loadable']} of {found['kills']}",
    ),
    (
        "runs of one seed with the same bits",
        "20 of 20",
        "determinism",
        lambda found: f"{found['identical']} of {found['runs']}",
    ),
    (
        "growth of memory over 10,000 steps",
        "below 1 MB per 1,000",
        "soak",
        lambda found: f"{found['growth per 1,000 steps'] / 1e6:.3f} MB per 1,000",
    ),
    ("estimate of the dense graph's memory", "within 20 %", "memory", _memory),
    (
        "line and branch coverage of the package",
        "at least 92 %",
        "coverage",
        lambda found: (
            f"{found['percent of lines']:.1f} % of lines, "
            f"{found['percent of branches']:.1f} % of branches"
        ),
    ),
]
