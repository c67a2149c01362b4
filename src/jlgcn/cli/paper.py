"""The group of commands about the publication: its recipes, their records, and the report."""

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
    """How a report is printed."""

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
    "Reproduce the publication: its tables and figures, from recipes with the published numbers.",
)

ResultsOption = Annotated[Path, typer.Option(help="Folder of records.")]
OutOption = Annotated[
    Path | None,
    typer.Option(help="Write a page, tables and figures into this folder instead of printing."),
]
FormatOption = Annotated[Format, typer.Option("--format", help="How to print it.")]


@paper.command()
def report(
    results: ResultsOption = Path("results"),
    out: OutOption = None,
    form: FormatOption = Format.table,
) -> None:
    """Print the recorded results: means over seeds with 95 % intervals, beside the published ones.

    "honest" is the epoch that validation selected; "authors" the best epoch on the test nodes,
    which nobody can know in advance: it is there to compare with the paper, and for nothing else.
    With --out, "index.html" in that folder has everything on one page that needs no network.
    """
    from jlgcn.paper import write_report
    from jlgcn.paper.recipes import RECIPES
    from jlgcn.paper.records import read_records
    from jlgcn.paper.summary import summarize

    # Records of other recipes may stand in the same folder.
    lines = [line for line in read_records(results) if line["recipe"] in RECIPES]
    rows = summarize(lines)
    check_found(rows, results, "jlgcn paper")
    if out is not None:
        typer.echo(f"written: {write_report(rows, results, out)}")
    else:
        print_rows(rows, form)


def check_found(rows: list[dict[str, Any]], results: Path, name: str) -> None:
    """End the command if there are no records."""
    if not rows:
        typer.echo(
            f"no records below {results}; train with: {name} run RECIPE, then: {name} record",
            err=True,
        )
        raise typer.Exit(1)


def print_rows(rows: list[dict[str, Any]], form: Format) -> None:
    """Print means over seeds."""
    from jlgcn.paper.tables import rows_as_csv, summary_table

    printers: dict[Format, Callable[[], str]] = {
        Format.json: lambda: json.dumps(rows, indent=2),
        Format.csv: lambda: rows_as_csv(rows).rstrip(),
        Format.table: lambda: summary_table(rows),
    }
    typer.echo(printers[form]())
