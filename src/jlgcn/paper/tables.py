"""Tables of the records: a row for each variant, published and both protocols side by side."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from jlgcn.paper.recipe import METRICS, Recipe
from jlgcn.paper.recipes import RECIPES
from jlgcn.paper.summary import recorded_recipes

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
    mean = f"{'+' if _is_difference(row) and row['mean'] > 0 else ''}{percent(row['mean'])}"
    return mean if row["low"] is None else f"{mean} ({_interval(row)})"


def _is_difference(row: Row) -> bool:
    return str(row.get("metric", "")).endswith("ahead_by")


def _interval(row: Row) -> str:
    if _is_difference(row):
        return f"{percent(row['low'])} to {percent(row['high'])}"
    # Of a few seeds far apart, a Student-t interval leaves what an accuracy can be.
    return f"{percent(max(0.0, row['low']))} to {percent(min(1.0, row['high']))}"


def recipe_table(recipe: Recipe[Any], rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return the header and the lines of a recipe's table; what was not run is left out.

    Args:
        recipe: which table.
        rows: rows of :func:`jlgcn.paper.summarize`.
    """
    kind = recipe.name.split("/")[0]
    columns = dict(recipe.columns)
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


def recorded_tables(
    rows: Sequence[Row], recipes: Mapping[str, Recipe[Any]] = RECIPES
) -> dict[str, str]:
    """Return the table of every recipe that has records, in Markdown.

    And "overview", of the main variants on citation networks.
    """
    lines = {recipe.name: recipe_table(recipe, rows) for recipe in recipes.values()}
    tables = {
        recipe.name: markdown(filled_columns(lines[recipe.name]))
        for recipe in recorded_recipes(rows, recipes)
    }
    citations = [recipe for recipe in recipes.values() if recipe.name.startswith("citation/")]
    overview = [("recipe", *lines[citations[0].name][0])]
    for recipe in citations:
        overview += [
            (recipe.name, *line) for line in lines[recipe.name][1:] if line[0] in recipe.main
        ]
    tables["overview"] = markdown(overview)
    return tables


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
    """Return the rows of :func:`jlgcn.paper.summarize` as CSV, with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=_NAMES, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
