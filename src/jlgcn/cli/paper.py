"""Commands that reproduce the publication: recipes, records and the report."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jlgcn.cli.recipes import recipe_commands

if TYPE_CHECKING:
    from jlgcn.paper.recipe import Recipe


class Format(StrEnum):
    """Output format of a report."""

    table = "table"
    csv = "csv"
    json = "json"


def _recipes() -> Mapping[str, Recipe[Any]]:
    from jlgcn.paper.recipes import RECIPES

    return RECIPES


def _gather() -> Callable[[Path, Path], list[Path]]:
    from jlgcn.paper.records import record

    return record


paper = recipe_commands(
    "jlgcn paper",
    _recipes,
    _gather,
    "Reproduce the tables and figures of the publication: train its network, compare the numbers."
    "\n\nExample: jlgcn paper run citation/cora --seeds 3 --download"
    "\n\nThen jlgcn paper record, and jlgcn paper report.",
)

ResultsOption = Annotated[Path, typer.Option(help='Folder of records, see "record".')]
OutOption = Annotated[
    Path | None,
    typer.Option(help="Folder for an HTML page, tables and figures. Default: print a table."),
]
FormatOption = Annotated[Format, typer.Option("--format", help="Output format.")]


@paper.command()
def report(
    results: ResultsOption = Path("results"),
    out: OutOption = None,
    form: FormatOption = Format.table,
) -> None:
    """Compare recorded results with the published ones: means over seeds, 95 % intervals.

    Example: jlgcn paper report --out report

    "honest" is the test accuracy at the epoch that validation selected. "authors"
    is the best test accuracy over all epochs, as the paper's authors report:
    optimistic, for comparison only. With --out, "index.html" in that folder is a
    page that works offline.
    """
    from jlgcn.paper import write_report
    from jlgcn.paper.recipes import RECIPES
    from jlgcn.paper.records import read_records
    from jlgcn.paper.summary import summarize

    # The folder may have records of other recipes.
    lines = [line for line in read_records(results) if line["recipe"] in RECIPES]
    rows = summarize(lines)
    check_found(rows, results, "jlgcn paper")
    if out is not None:
        typer.echo(f"written: {write_report(rows, results, out)}")
    else:
        print_rows(rows, form)


def check_found(rows: list[dict[str, Any]], results: Path, name: str) -> None:
    """Exit with a message if there are no records."""
    if not rows:
        typer.echo(
            f"no records below {results}; train with: {name} run RECIPE, then: {name} record",
            err=True,
        )
        raise typer.Exit(1)


def print_rows(rows: list[dict[str, Any]], form: Format) -> None:
    """Print means over seeds in a format."""
    from jlgcn.paper.tables import rows_as_csv, summary_table

    printers: dict[Format, Callable[[], str]] = {
        Format.json: lambda: json.dumps(rows, indent=2),
        Format.csv: lambda: rows_as_csv(rows).rstrip(),
        Format.table: lambda: summary_table(rows),
    }
    typer.echo(printers[form]())
