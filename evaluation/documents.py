"""Numbers in documents: tables between marks, and single figures before one, from the records.

A table stands between two comments, which Markdown does not show,

    <!-- evaluation report: citation/cora -->
    | variant | … |
    <!-- evaluation report end -->

and a single figure before a comment that says which it is:

    … reaches 83.6<!-- citation/cora | jlgcn | authors --> on Cora …
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Sequence
from typing import Any

from evaluation.claim_tables import recorded_tables
from evaluation.final.tables import final_tables
from evaluation.measured.tables import measured_tables
from evaluation.study_tables import study_tables
from evaluation.suite.tables import suite_tables
from jlgcn.paper.recipe import METRICS
from jlgcn.paper.tables import percent

_BLOCK = re.compile(
    r"(<!-- evaluation report: (?P<name>\S+) -->\n)(?P<body>.*?)(<!-- evaluation report end -->)",
    re.DOTALL,
)
_FIGURE = re.compile(
    r"[0-9.]+(?P<mark><!-- (?P<recipe>\S+) \| (?P<variant>[^|]+?) \| (?P<protocol>\w+) -->)"
)


def renewed(text: str, rows: Sequence[dict[str, Any]]) -> str:
    """Return a document with every marked table and figure as the records have it.

    Raises:
        ValueError: where a mark names what is not recorded.
    """
    recorded = {
        "suite": suite_tables,
        "studies": study_tables,
        "final": final_tables,
        "measured": measured_tables,
    }

    @functools.cache
    def tables(kind: str) -> dict[str, str]:
        return recorded[kind]() if kind in recorded else recorded_tables(rows)

    figures = {
        (row["recipe"], row["variant"], row["protocol"]): percent(row["mean"])
        for row in rows
        if row["metric"] == METRICS[row["protocol"]]
    }

    def table(match: re.Match[str]) -> str:
        name = match["name"]
        known = tables(name.partition("/")[0])
        if name not in known:
            raise ValueError(f"there are no records of {name!r}; recorded are {', '.join(known)}")
        return f"{match[1]}{known[name]}\n{match[4]}"

    def figure(match: re.Match[str]) -> str:
        key = (match["recipe"], match["variant"], match["protocol"])
        if key not in figures:
            raise ValueError(f"there is no record of {' | '.join(key)}")
        return figures[key] + match["mark"]

    return _FIGURE.sub(figure, _BLOCK.sub(table, text))


def differences(text: str, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the lines of a document that differ from the records, with what should be there."""
    old, new = text.splitlines(), renewed(text, rows).splitlines()
    return [line for line in difflib.ndiff(old, new) if line.startswith(("- ", "+ "))]
