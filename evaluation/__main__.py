"""The command line of the evidence: claims, the suite and the final evaluation."""

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


@app.command()
def suite(
    data: Annotated[
        Path | None, typer.Option(help="Folder of the data. Default: $JLGCN_DATA.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the lines.")] = Path("results/suite"),
    data_set: Annotated[
        list[str] | None, typer.Option(help="Data set; repeatable. Default: all.")
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="Method; repeatable. Default: all.")
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option(min=1, help="Draws of labels. Default: 10, and 5 above 2,000 rows."),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Print the tables, fit nothing.")] = False,
    picture: Annotated[Path | None, typer.Option(help="Draw the gains to a PNG file.")] = None,
) -> None:
    """Compare the estimator with simple rivals on development data, with few labels.

    One line a fit is appended to a file for each data set; what is there is not
    run again.

    Example: python -m evaluation suite --data-set digits --method jlgcn
    """
    from evaluation.suite.run import run
    from evaluation.suite.tables import draw_gains, suite_lines, suite_tables
    from jlgcn.io.files import data_root

    if not show and picture is None:
        for line in run(data_root(data), out, data_set or [], method or [], draws):
            names = ("data", "labels", "draw", "method", "accuracy", "cpu_seconds")
            typer.echo("  ".join(str(line[name]) for name in names))
    for name, found in suite_tables(out).items() if show else ():
        typer.echo(f"\n{name}\n{found}")
    if picture is not None:
        typer.echo(f"written: {draw_gains(suite_lines(out), picture)}")


@app.command()
def final(
    row: Annotated[list[str] | None, typer.Option(help="Row; repeatable. Default: all.")] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="Method; repeatable. Default: all.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of NPZ files, each a row of its own. Default: rows of the page."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the lines.")] = Path("results/final"),
    show: Annotated[bool, typer.Option("--show", help="Print the tables, fit nothing.")] = False,
    picture: Annotated[
        Path | None, typer.Option(help="With --show: file for the picture of the gains.")
    ] = None,
) -> None:
    """Read test labels: run frozen solvers, their controls and rivals on final data.

    Every reading of test labels is recorded before it happens, and none is
    repeated in the same freeze. What is there is not run again.

    Example: python -m evaluation final --row "cora, no graph" --method GCN
    """
    from evaluation.final.rows import rows, rows_of
    from evaluation.final.run import run
    from evaluation.final.tables import draw_gains, final_lines, final_tables

    if show:
        for name, found in final_tables(out).items():
            typer.echo(f"\n{name}\n{found}")
        if picture is not None:
            typer.echo(f"written: {draw_gains(final_lines(out), picture)}")
        return
    try:
        available = rows() if data is None else rows_of(data)
        unknown = [name for name in row or () if name not in available]
        if unknown:
            raise ValueError(f"there is no row {unknown[0]!r}; rows are {', '.join(available)}")
        wanted = [available[name] for name in row or available]
        for line in run(wanted, None, out, method or []):
            names = ("row", "method", "split", "seed", "accuracy", "cpu_seconds")
            typer.echo("  ".join(str(line[name]) for name in names))
    except (OSError, ValueError) as problem:
        typer.echo(f"Error: {problem}", err=True)
        raise typer.Exit(1) from None


if __name__ == "__main__":
    app()
