"""The command that writes the HTML page of a fitted model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jlgcn.cli.tables import check_folder, plain_errors

if TYPE_CHECKING:
    from jlgcn.estimator.document import TableNames


def report(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help='Folder of a fitted model, see "jlgcn fit".'),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="HTML file to write. Default: MODEL-report.html, next to the folder MODEL."
        ),
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option(
            help="Folds of the cross-validation, a fit for each (of a network, with all epochs); 0 "
            "takes the held-out predictions of the fit itself (of a network, its validation "
            "labels), faster and slightly optimistic. Default: 5, and 0 above 20,000 rows."
        ),
    ] = None,
    compare: Annotated[
        bool,
        typer.Option("--compare", help='Add the ablation of "jlgcn compare"; 30 to 50 more fits.'),
    ] = False,
    audit: Annotated[
        bool | None,
        typer.Option(
            "--audit/--no-audit",
            help='List suspicious and missing edges of the known graph, as "jlgcn audit" does. '
            "Default: up to 20,000 rows, where there are known edges.",
        ),
    ] = None,
) -> None:
    """Write an HTML page about a fitted model: its worth, what to check, the graph.

    Example: jlgcn report wines-model

    The page is one file that works offline: accuracy on held-out labels and that
    of the best simple rival, confusion matrix and calibration; doubtful labels,
    suspicious and missing edges, rows to label next; an interactive view of the
    graph with an explanation of every edge; and the features that matter.
    """
    with plain_errors():
        page = _page_of(model) if out is None else out
        if page.suffix.lower() not in (".html", ".htm"):
            raise ValueError(
                f"--out must be a file that ends with .html, but it is {page}; rename it"
            )
        check_folder(model)
        from jlgcn.estimator import JLGCNClassifier  # after the folder is known to be there
        from jlgcn.report import write_model_page

        fitted = JLGCNClassifier.load(model)
        table = fitted.table_
        scores = write_model_page(
            fitted,
            page,
            name=_title(model.resolve().name, table),
            ids=None if table is None else table.ids,
            folds=folds,
            compares=compare,
            audits=audit,
            progress=True,
        )
    if scores is not None:
        low, high = scores.accuracy_interval
        typer.echo(
            f"accuracy {100 * scores.accuracy:.1f} % on {len(scores.label):,} held-out labels "
            f"(95 % interval {100 * low:.1f} to {100 * high:.1f}), "
            f"macro-F1 {100 * scores.macro_f1:.1f} %"
        )
    typer.echo(f"written: {page}")


def _title(folder: str, table: TableNames | None) -> str:
    """Return what is predicted of which file, if the folder has the name that fit gives it."""
    file = folder.removesuffix("-model")
    return folder if table is None or file in ("", folder) else f"{table.label_column} in {file}"


def _page_of(model: Path) -> Path:
    """Return the path of the page, next to the model's folder.

    Not inside it: a model may be shared or verified as a whole.
    """
    folder = model if model.name.strip(".") else model.resolve()  # "." and ".." are not names
    return folder.with_name(f"{folder.name}-report.html")
