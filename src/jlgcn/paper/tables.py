"""Tables of the records: a row per variant, with the published and the measured accuracies."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from jlgcn.paper.model_sizes import size_table
from jlgcn.paper.recipe import METRICS, Recipe
from jlgcn.paper.recipes import RECIPES
from jlgcn.paper.summary import recorded_recipes

Row = dict[str, Any]

_NAMES = (
    *("recipe", "variant", "protocol", "metric"),
    *("mean", "low", "high", "seeds", "published", "model_bytes"),
)


def percent(value: float) -> str:
    """Format a fraction as a percentage with one decimal.

    Example:
        >>> percent(0.8359), percent(-0.0001)
        ('83.6', '0.0')
    """
    return f"{round(100 * value, 1) + 0.0:.1f}"  # + 0.0 turns -0.0 into 0.0


def with_interval(row: Row | None) -> str:
    """Format a mean with its confidence interval.

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
    # The Student-t interval of a few seeds may exceed the range of an accuracy.
    return f"{percent(max(0.0, row['low']))} to {percent(min(1.0, row['high']))}"


def recipe_table(recipe: Recipe[Any], rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return the header and the rows of a recipe's table, without variants that were not run.

    Args:
        recipe: the recipe.
        rows: rows of :func:`jlgcn.paper.summary.summarize`.
    """
    kind = recipe.name.split("/")[0]
    columns = dict(recipe.columns)
    found = {(row["variant"], row["metric"]): row for row in rows if row["recipe"] == recipe.name}
    # The paper's table of clouds also has the size of the parameters, in megabytes.
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
    """Remove empty columns of a table, such as published accuracies if there are none.

    Example:
        >>> filled_columns([["a", "b"], ["1", ""], ["2", ""]])
        [('a',), ('1',), ('2',)]
    """
    header, *others = lines
    kept = [i for i in range(len(header)) if not others or any(line[i] for line in others)]
    return [tuple(line[i] for i in kept) for line in lines]


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """Format a table in Markdown; the first line is the header.

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
    """Return the Markdown table of every recipe with records, by name.

    "overview" has the main variants of all citation networks, and "clouds-sizes" the sizes of the
    networks for point clouds.
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
    tables["clouds-sizes"] = markdown(size_table())
    return tables


def summary_table(rows: Sequence[Row]) -> str:
    """Format all rows as one Markdown table, for the command line."""
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
    """Format the rows of :func:`jlgcn.paper.summary.summarize` as CSV, with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=_NAMES, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
