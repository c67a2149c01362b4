"""The command that writes a page about one's own model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jlgcn.cli.data import plain_errors


def report(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help='A folder that "fit" or save wrote.'),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The page, a file that ends with .html; MODEL-report.html, next to MODEL, if not "
            "given."
        ),
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option(
            help="Parts of the labels that are hidden in turn, a fit for each; 0 leaves labels out "
            "one by one within one fit. 5 if not given, 0 for more than 20,000 rows."
        ),
    ] = None,
    compare: Annotated[
        bool,
        typer.Option("--compare", help="Also find out whether the graph helps; 40 to 60 fits."),
    ] = False,
) -> None:
    """Write a page about a model.

    jlgcn report wines-model: one page, wines-model-report.html, that needs no network. It shows how
    often the model is right on labels that were hidden from it, whether its probabilities can be
    believed, its graph to look at, edge by edge, and the features that matter.
    """
    from jlgcn.estimator import JLGCNClassifier
    from jlgcn.report import write_model_page

    with plain_errors():
        page = _page_of(model) if out is None else out
        if page.suffix.lower() not in (".html", ".htm"):
            raise ValueError(f"--out must be a file that ends with .html, but it is {page}")
        fitted = JLGCNClassifier.load(model)
        table = fitted.table_
        scores = write_model_page(
            fitted,
            page,
            name=model.resolve().name,
            ids=None if table is None else table.ids,
            feature_names=None if table is None else table.feature_names,
            folds=folds,
            compares=compare,
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
