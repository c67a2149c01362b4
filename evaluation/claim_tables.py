"""Tables of our claims: what was reached, what was run beside them, what each part adds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evaluation.claim_experiment import BASELINES
from evaluation.claims import AHEAD, CLAIMS
from evaluation.summary import ALL
from jlgcn.paper.recipe import METRICS, Recipe
from jlgcn.paper.summary import recorded_recipes
from jlgcn.paper.tables import Row, markdown, percent, with_interval
from jlgcn.paper.tables import recorded_tables as tables_of_recipes

_FIRST_CLAIMS = ("given/cora", "edges50/cora", "nograph/cora", "attack25/cora_metattack")

#: Claims whose test nodes were scored before the third freeze, while it was prepared.
SEEN_BEFORE = ("attack25/cora_metattack", "others/actor", "others/squirrel_filtered")

MARK = " †"

_NOTE = "† Test nodes of this row were scored before the method was frozen for the third time."

#: Controls of a claim that its first table has no room for, and their columns in another.
_OTHER_CONTROLS = {
    "learned only": "over learned graph alone",
    "random metric": "over random metrics",
    "shuffled graph": "over shuffled graphs",
}


def recorded_tables(rows: Sequence[Row]) -> dict[str, str]:
    """Return the tables of :func:`jlgcn.paper.tables.recorded_tables`, those of claims among them.

    And "claims", of all of ours; "claims-first", the few of these that the README begins with;
    "claims-beside", of what was run beside them; and "claims-controls", of how much is lost without
    one part or another.
    """
    tables = tables_of_recipes(rows, ALL)
    claims = claims_table(rows)
    first = [line for line in claims[1:] if line[0].removesuffix(MARK) in _FIRST_CLAIMS]
    tables["claims"] = _with_note(claims)
    tables["claims-first"] = _with_note([claims[0], *first])
    tables["claims-beside"] = _with_note(baselines_table(rows))
    tables["claims-controls"] = _with_note(controls_table(rows))
    return tables


def _with_note(lines: Sequence[Sequence[str]]) -> str:
    has_mark = any(line[0].endswith(MARK) for line in lines)
    return markdown(lines) + (f"\n\n{_NOTE}" if has_mark else "")


def _claim_name(recipe: Recipe[Any]) -> str:
    name = recipe.name.removeprefix("claims/")
    return name + (MARK if name in SEEN_BEFORE else "")


def claims_table(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return the header and a line for every claim that has records.

    Beside our accuracy: the best that others publish, the baseline that came closest to it on
    common seeds and how far ours is ahead of that, on these seeds; what the whole learned graph
    adds to the given one (or, without one, to logistic regression) and what its metric adds to
    neighbours by plain distances. Claims whose test nodes were seen too early have a mark.
    """
    found = {(row["recipe"], row["variant"], row["metric"]): row for row in rows}
    accuracy = METRICS["honest"]
    lines: list[tuple[str, ...]] = [
        (
            "claim",
            "closed form",
            "published",
            "run beside it",
            "ahead of it",
            "graph adds",
            "metric adds",
        )
    ]
    for recipe in recorded_recipes(rows, CLAIMS):
        ours = found.get((recipe.name, "best", accuracy))
        if ours is None:
            continue
        published = max(recipe.quoted, key=lambda pair: pair[1], default=None)
        # By the difference on common seeds, not by the highest mean, which is of other seeds.
        others = [
            (found[recipe.name, variant.name, AHEAD]["mean"], variant.name)
            for variant in recipe.variants
            if variant.name in BASELINES and (recipe.name, variant.name, AHEAD) in found
        ]
        _, beside = min(others, default=(None, ""))
        theirs = found.get((recipe.name, beside, accuracy))
        has_given = any(variant.name == "given only" for variant in recipe.variants)
        without = "given only" if has_given else "logistic regression"
        lines.append(
            (
                _claim_name(recipe),
                with_interval(ours),
                "" if published is None else f"{published[1]:.1f} ({published[0]})",
                "" if theirs is None else f"{percent(theirs['mean'])} ({beside})",
                with_interval(found.get((recipe.name, beside, AHEAD))),
                with_interval(found.get((recipe.name, without, AHEAD))),
                with_interval(found.get((recipe.name, "plain knn", AHEAD))),
            )
        )
    return lines


def baselines_table(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return the header and a line for every claim: the accuracy of all that was run beside it."""
    cells = {
        (row["recipe"], row["variant"]): f"{percent(row['mean'])} ({row['seeds']})"
        for row in rows
        if row["metric"] == METRICS["honest"]
    }
    return _line_a_claim(rows, {"best": "closed form"} | {name: name for name in BASELINES}, cells)


def controls_table(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return the header and a line for every claim: how far it is ahead of its other controls.

    What :func:`claims_table` shows, the given graph alone and plain distances, is left out.
    """
    cells = {
        (row["recipe"], row["variant"]): with_interval(row)
        for row in rows
        if row["metric"] == AHEAD
    }
    return _line_a_claim(rows, _OTHER_CONTROLS, cells)


def _line_a_claim(
    rows: Sequence[Row], columns: dict[str, str], cells: dict[tuple[str, str], str]
) -> list[tuple[str, ...]]:
    lines: list[tuple[str, ...]] = [("claim", *columns.values())]
    for recipe in recorded_recipes(rows, CLAIMS):
        found = (cells.get((recipe.name, variant), "") for variant in columns)
        lines.append((_claim_name(recipe), *found))
    return lines
