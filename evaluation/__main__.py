"""The command line of the evidence: python -m evaluation list, show, run, record, report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from jlgcn._files import write_file
from jlgcn.cli.paper import (
    Format,
    FormatOption,
    OutOption,
    ResultsOption,
    check_found,
    print_rows,
)
from jlgcn.cli.recipes import recipe_commands
from jlgcn.paper.recipe import Recipe


def _recipes() -> Mapping[str, Recipe[Any]]:
    from evaluation.claims import CLAIMS

    return CLAIMS


def _gather() -> Callable[[Path, Path], list[Path]]:
    from evaluation.sealed_test import record_all

    return record_all


app = recipe_commands(
    "python -m evaluation",
    _recipes,
    _gather,
    "Our own claims: the closed form, its controls and its rivals, on data that the paper has not.",
)


@app.command()
def report(
    results: ResultsOption = Path("results"),
    out: OutOption = None,
    form: FormatOption = Format.table,
    check: Annotated[
        bool, typer.Option("--check", help="Fail if a marked number in a document differs.")
    ] = False,
    renew: Annotated[
        bool, typer.Option("--renew", help="Bring marked numbers in documents up to date.")
    ] = False,
    document: Annotated[
        list[Path] | None,
        typer.Option(help="A document, in place of README.md and docs/**/*.md; may be repeated."),
    ] = None,
) -> None:
    """Print the records of claims and of the paper's recipes; check or renew them in documents."""
    from evaluation.claim_tables import recorded_tables
    from evaluation.documents import differences, renewed
    from evaluation.summary import ALL, summarize
    from jlgcn.paper import write_report
    from jlgcn.paper.records import read_records

    rows = summarize(read_records(results))
    check_found(rows, results, "python -m evaluation")
    if out is not None:
        page = write_report(rows, results, out, recipes=ALL, tables=recorded_tables(rows))
        typer.echo(f"written: {page}")
    documents = document or [Path("README.md"), *sorted(Path("docs").rglob("*.md"))]
    wrong = []
    try:
        for path in documents if check or renew else []:
            found = differences(path.read_text(), rows)
            if found and renew:
                write_file(path, renewed(path.read_text(), rows))
                typer.echo(f"renewed: {path}")
            elif found:
                wrong += [f"{path}: {line}" for line in found]
    except (OSError, ValueError) as problem:
        typer.echo(f"Error: {problem}", err=True)
        raise typer.Exit(1) from None
    if wrong:
        advice = "bring them up to date with: python -m evaluation report --renew"
        typer.echo("\n".join([*wrong, advice]), err=True)
        raise typer.Exit(1)
    if out is None and not check and not renew:
        print_rows(rows, form)


if __name__ == "__main__":
    app()
