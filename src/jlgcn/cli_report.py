"""The command that writes pages: of the recorded results, or of one's own model."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from jlgcn._files import write_file
from jlgcn.cli_data import plain_errors


class Format(StrEnum):
    """How a report is printed."""

    table = "table"
    csv = "csv"
    json = "json"


_RECORDS, _MODEL = "For records", "For a MODEL"


def report(
    model: Annotated[
        Path | None,
        typer.Argument(
            metavar="MODEL",
            help='A folder that "fit" or save_pretrained wrote; without it, the recorded results.',
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Records: write a page, tables and figures into this folder instead. MODEL: the "
            "page, a file that ends with .html; MODEL-report.html, next to MODEL, if not given."
        ),
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option(
            help="Parts of the labels that are hidden in turn, a fit for each; 0 leaves labels out "
            "one by one within one fit. 5 if not given, 0 for more than 20,000 rows.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="Also find out whether the graph helps; 40 to 60 fits.",
            rich_help_panel=_MODEL,
        ),
    ] = False,
    results: Annotated[
        Path | None,
        typer.Option(help="Folder of records; results if not given.", rich_help_panel=_RECORDS),
    ] = None,
    form: Annotated[
        Format | None,
        typer.Option(
            "--format", help="How to print it; table if not given.", rich_help_panel=_RECORDS
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Fail if a marked number in a document differs.",
            rich_help_panel=_RECORDS,
        ),
    ] = False,
    renew: Annotated[
        bool,
        typer.Option(
            "--renew",
            help="Bring marked numbers in documents up to date.",
            rich_help_panel=_RECORDS,
        ),
    ] = False,
    document: Annotated[
        list[Path] | None,
        typer.Option(
            help="A document, in place of README.md and docs/*.md; may be repeated.",
            rich_help_panel=_RECORDS,
        ),
    ] = None,
) -> None:
    """Write a page about a model; or, without one, print the recorded results of recipes.

    jlgcn report wines-model: one page, wines-model-report.html, that needs no network. It shows how
    often the model is right on labels that were hidden from it, whether its probabilities can be
    believed, its graph to look at, edge by edge, and the features that matter.

    jlgcn report: means over seeds with 95 % intervals, beside the published numbers. "honest" is
    the epoch that validation selected; "authors" the best epoch on the test nodes, which nobody can
    know in advance: it is there to compare with the paper, and for nothing else. With --out,
    "index.html" in that folder has everything on one page that needs no network.
    """
    of_records = {
        "--results": results is not None,
        "--format": form is not None,
        "--check": check,
        "--renew": renew,
        "--document": bool(document),
    }
    of_models = {"--folds": folds is not None, "--compare": compare}
    if model is not None:
        _refuse(of_records, f"it is for recorded results; leave it out, or leave out {model}")
        _report_model(model, out, folds=folds, compares=compare)
        return
    _refuse(of_models, "it is for the page of a model; name its folder: jlgcn report MODEL")
    _report_records(
        Path("results") if results is None else results,
        Format.table if form is None else form,
        out,
        check=check,
        renew=renew,
        documents=document,
    )


def _refuse(options: dict[str, bool], why: str) -> None:
    for name, is_given in options.items():
        if is_given:
            raise typer.BadParameter(why, param_hint=name)


def _report_model(model: Path, out: Path | None, *, folds: int | None, compares: bool) -> None:
    """Write the page of a model, and say what it says first."""
    from jlgcn.estimator import JLGCNClassifier
    from jlgcn.report import write_model_page

    with plain_errors():
        page = _page_of(model) if out is None else out
        if page.suffix.lower() not in (".html", ".htm"):
            raise ValueError(f"--out must be a file that ends with .html, but it is {page}")
        fitted = JLGCNClassifier.from_pretrained(model)
        table = fitted.table_
        scores = write_model_page(
            fitted,
            page,
            name=model.resolve().name,
            ids=None if table is None else table.ids,
            feature_names=None if table is None else table.feature_names,
            folds=folds,
            compares=compares,
            progress=True,
        )
    if scores is not None:
        low, high = scores.accuracy_interval
        typer.echo(
            f"{100 * scores.accuracy:.1f} % of {len(scores.label):,} hidden labels are right "
            f"(95 % interval {100 * low:.1f} to {100 * high:.1f}), "
            f"macro-F1 {100 * scores.macro_f1:.1f} %"
        )
    typer.echo(f"written: {page}")


def _page_of(model: Path) -> Path:
    """Return the page's place next to a model's folder.

    Never inside it: the folder may come from somebody else, and be shared or verified as a whole.
    """
    folder = model if model.name.strip(".") else model.resolve()  # "." and ".." are no names
    return folder.with_name(f"{folder.name}-report.html")


def _report_records(
    results: Path,
    form: Format,
    out: Path | None,
    *,
    check: bool,
    renew: bool,
    documents: list[Path] | None,
) -> None:
    from jlgcn.report import (
        differences,
        renewed,
        rows_as_csv,
        summarize,
        summary_table,
        write_report,
    )
    from jlgcn.train.result import read_records

    rows = summarize(read_records(results))
    if not rows:
        typer.echo(
            f"no records below {results}; train with: jlgcn run RECIPE, then: jlgcn record",
            err=True,
        )
        raise typer.Exit(1)
    if out is not None:
        typer.echo(f"written: {write_report(rows, results, out)}")
    documents = documents or [Path("README.md"), *sorted(Path("docs").glob("*.md"))]
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
        typer.echo(
            "\n".join([*wrong, "bring them up to date with: jlgcn report --renew"]), err=True
        )
        raise typer.Exit(1)
    if out is None and not check and not renew:
        printers = {
            Format.json: lambda: json.dumps(rows, indent=2),
            Format.csv: lambda: rows_as_csv(rows).rstrip(),
            Format.table: lambda: summary_table(rows),
        }
        typer.echo(printers[form]())
