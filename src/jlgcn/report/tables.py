"""Tables of the records: a row for each variant, published and both protocols side by side."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from jlgcn.recipes import RECIPES, Recipe

HEADER = ("variant", "published", "best test epoch", "selected by validation", "seeds")

Row = dict[str, Any]


def percent(value: float) -> str:
    """Return a share as a percentage with one digit behind the point.

    Example:
        >>> percent(0.8359)
        '83.6'
    """
    return f"{100 * value:.1f}"


def with_interval(row: Row | None) -> str:
    """Return a mean with its interval, as tables show it.

    Example:
        >>> with_interval({"mean": 0.836, "low": 0.834, "high": 0.837})
        '83.6 (83.4 to 83.7)'
    """
    if row is None:
        return ""
    if row["low"] is None:
        return percent(row["mean"])
    return f"{percent(row['mean'])} ({percent(row['low'])} to {percent(row['high'])})"


def recipe_table(recipe: Recipe[Any], rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return the lines of a recipe's table, without its header; what was not run is left out.

    Args:
        recipe: which table.
        rows: rows of :func:`jlgcn.report.summarize`.
    """
    found = {(row["variant"], row["protocol"]): row for row in rows if row["recipe"] == recipe.name}
    lines: list[tuple[str, ...]] = [
        (name, f"{published:.1f}", "", "", "") for name, published in recipe.quoted
    ]
    for variant in recipe.variants:
        authors = found.get((variant.name, "authors"))
        honest = found.get((variant.name, "honest"))
        if honest is None:
            continue
        published = "" if variant.published is None else f"{variant.published:.1f}"
        cells = (variant.name, published, with_interval(authors), with_interval(honest))
        lines.append((*cells, str(honest["seeds"])))
    return lines


def markdown(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown.

    Example:
        >>> print(markdown(["a", "b"], [["1", "2"]]))
        | a | b |
        | --- | --- |
        | 1 | 2 |
    """
    every = [header, ["---"] * len(header), *lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in every)


def recorded_tables(rows: Sequence[Row]) -> dict[str, str]:
    """Return the table of every recipe that has records, in Markdown.

    And "overview": of the main variants of all that have some.
    """
    lines = {recipe.name: recipe_table(recipe, rows) for recipe in RECIPES.values()}
    tables = {
        name: markdown(HEADER, lines[name])
        for name in lines
        if any(row["recipe"] == name for row in rows)
    }
    overview = [
        (recipe.name, *line)
        for recipe in RECIPES.values()
        for line in lines[recipe.name]
        if line[0] in recipe.main
    ]
    return tables | {"overview": markdown(("recipe", *HEADER), overview)}


def summary_table(rows: Sequence[Row]) -> str:
    """Return all rows as one table in Markdown, as the command line prints it."""
    header = ("recipe", "variant", "protocol", "accuracy", "95 % interval", "seeds", "published")
    lines = [
        (
            *(row[key] for key in ("recipe", "variant", "protocol")),
            percent(row["mean"]),
            "–" if row["low"] is None else f"{percent(row['low'])} to {percent(row['high'])}",
            str(row["seeds"]),
            "" if row["published"] is None else f"{row['published']:.1f}",
        )
        for row in rows
    ]
    return markdown(header, lines)


def rows_as_csv(rows: Sequence[Row]) -> str:
    """Return the rows of :func:`jlgcn.report.summarize` as CSV, with a header."""
    text = io.StringIO()
    names = ("recipe", "variant", "protocol", "metric", "mean", "low", "high", "seeds", "published")
    writer = csv.DictWriter(text, fieldnames=names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
