"""Tables of the records: a row for each variant, published and both protocols side by side."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from jlgcn.recipes import RECIPES, Recipe
from jlgcn.recipes.claim_experiment import BASELINES
from jlgcn.report.summary import AHEAD, METRICS, MISSING, recorded_recipes

#: What a table shows between the published figure and the number of seeds, and its metric.
_COLUMNS = {"best test epoch": METRICS["authors"], "selected by validation": METRICS["honest"]}
_CLOUD_COLUMNS = {
    "overall": METRICS["honest"],
    "mean of classes": "mean_class_accuracy",
    "0.75 missing": f"{MISSING} 0.75",
    "0.9 missing": f"{MISSING} 0.9",
}
_CLAIM_COLUMNS = {"selected by validation": METRICS["honest"], "best is ahead by": AHEAD}

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

Row = dict[str, Any]

_NAMES = (
    *("recipe", "variant", "protocol", "metric"),
    *("mean", "low", "high", "seeds", "published", "model_bytes"),
)


def percent(value: float) -> str:
    """Return a share as a percentage with one digit behind the point.

    Example:
        >>> percent(0.8359), percent(-0.0001)
        ('83.6', '0.0')
    """
    return f"{round(100 * value, 1) + 0.0:.1f}"  # which makes -0.0 a 0.0


def with_interval(row: Row | None) -> str:
    """Return a mean with its interval, as tables show it.

    Example:
        >>> with_interval({"mean": 0.836, "low": 0.834, "high": 0.837})
        '83.6 (83.4 to 83.7)'
        >>> with_interval({"mean": 0.5, "low": -0.2, "high": 1.2})
        '50.0 (0.0 to 100.0)'
    """
    if row is None:
        return ""
    mean = f"{'+' if row.get('metric') == AHEAD and row['mean'] > 0 else ''}{percent(row['mean'])}"
    return mean if row["low"] is None else f"{mean} ({_interval(row)})"


def _interval(row: Row) -> str:
    if row.get("metric") == AHEAD:
        return f"{percent(row['low'])} to {percent(row['high'])}"
    # Of a few seeds far apart, a Student-t interval leaves what an accuracy can be.
    return f"{percent(max(0.0, row['low']))} to {percent(min(1.0, row['high']))}"


def recipe_table(recipe: Recipe[Any], rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return the header and the lines of a recipe's table; what was not run is left out.

    Args:
        recipe: which table.
        rows: rows of :func:`jlgcn.report.summarize`.
    """
    kind = recipe.name.split("/")[0]
    columns = {"clouds": _CLOUD_COLUMNS, "claims": _CLAIM_COLUMNS}.get(kind, _COLUMNS)
    found = {(row["variant"], row["metric"]): row for row in rows if row["recipe"] == recipe.name}
    # The paper's table of clouds weighs networks, too: their parameters, in millions of bytes.
    size = ("MB",) if kind == "clouds" else ()
    empty = ("",) * (len(size) + len(columns) + 1)
    lines = [(name, f"{published:.1f}", *empty) for name, published in recipe.quoted]
    for variant in recipe.variants:
        selected = found.get((variant.name, METRICS["honest"]))
        if selected is None:
            continue
        published = "" if variant.published is None else f"{variant.published:.1f}"
        cells = (with_interval(found.get((variant.name, metric))) for metric in columns.values())
        weight = (f"{selected['model_bytes'] / 1e6:.1f}",) if size else ()
        lines.append((variant.name, published, *weight, *cells, str(selected["seeds"])))
    return [("variant", "published", *size, *columns, "seeds"), *lines]


def filled_columns(lines: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Return a table without its empty columns, such as that of figures that nobody published.

    Example:
        >>> filled_columns([["a", "b"], ["1", ""], ["2", ""]])
        [('a',), ('1',), ('2',)]
    """
    header, *others = lines
    kept = [i for i in range(len(header)) if not others or any(line[i] for line in others)]
    return [tuple(line[i] for i in kept) for line in lines]


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown, whose first line is its header.

    Example:
        >>> print(markdown([["a", "b"], ["1", "2"]]))
        | a | b |
        | --- | --- |
        | 1 | 2 |
    """
    header, *others = lines
    every = [header, ["---"] * len(header), *others]
    return "\n".join("| " + " | ".join(line) + " |" for line in every)


def recorded_tables(rows: Sequence[Row]) -> dict[str, str]:
    """Return the table of every recipe that has records, in Markdown.

    And "overview", of the main variants on citation networks; "claims", of all of ours;
    "claims-first", the few of these that the README begins with; "claims-beside", of what was run
    beside them; and "claims-controls", of how much is lost without one part or another.
    """
    lines = {recipe.name: recipe_table(recipe, rows) for recipe in RECIPES.values()}
    tables = {
        recipe.name: markdown(filled_columns(lines[recipe.name]))
        for recipe in recorded_recipes(rows)
    }
    citations = [recipe for recipe in RECIPES.values() if recipe.name.startswith("citation/")]
    overview = [("recipe", *lines[citations[0].name][0])]
    for recipe in citations:
        overview += [
            (recipe.name, *line) for line in lines[recipe.name][1:] if line[0] in recipe.main
        ]
    tables["overview"] = markdown(overview)
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
        ("claim", "jlgcn", "published", "run beside it", "ahead of it", "graph adds", "metric adds")
    ]
    for recipe in recorded_recipes(rows):
        ours = found.get((recipe.name, "best", accuracy))
        if not recipe.name.startswith("claims/") or ours is None:
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
    return _line_a_claim(rows, {"best": "jlgcn"} | {name: name for name in BASELINES}, cells)


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
    for recipe in recorded_recipes(rows):
        if recipe.name.startswith("claims/"):
            found = (cells.get((recipe.name, variant), "") for variant in columns)
            lines.append((_claim_name(recipe), *found))
    return lines


def summary_table(rows: Sequence[Row]) -> str:
    """Return all rows as one table in Markdown, as the command line prints it."""
    header = (*_NAMES[:4], "accuracy", "95 % interval", "seeds", "published")
    lines = [
        (
            *(row[key] for key in _NAMES[:4]),
            percent(row["mean"]),
            "–" if row["low"] is None else _interval(row),
            str(row["seeds"]),
            "" if row["published"] is None else f"{row['published']:.1f}",
        )
        for row in rows
    ]
    return markdown([header, *lines])


def rows_as_csv(rows: Sequence[Row]) -> str:
    """Return the rows of :func:`jlgcn.report.summarize` as CSV, with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=_NAMES, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
