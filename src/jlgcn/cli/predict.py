"""The command that predicts classes of rows."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Annotated

import typer

from jlgcn._files import write_file
from jlgcn.cli.options import (
    AddressOption,
    EdgesOption,
    ModelEngineOption,
    WorkersOption,
)
from jlgcn.cli.scale import stages_shown
from jlgcn.cli.tables import (
    check_file,
    counted,
    is_sharded,
    load_model,
    plain_errors,
    printable,
    read_cross_edges,
    read_new_rows,
)


def predict(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help='Folder of a fitted model, see "jlgcn fit".')
    ],
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="TABLE",
            help="New rows, CSV or Parquet; of a model by an engine, Parquet files, on disk or "
            "s3://. Default: the rows of fit.",
        ),
    ] = None,
    edges: EdgesOption = None,
    out: Annotated[
        str | None,
        typer.Option(
            help="CSV file to write; of a model by an engine, a folder for Parquet files. Default: "
            "print to the terminal."
        ),
    ] = None,
    reject: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            help="Leave the class empty (unknown) where an error is likelier than P, between 0 and "
            '1; the column "best_guess" has it nevertheless. Default: never.',
        ),
    ] = None,
    engine: ModelEngineOption = None,
    workers: WorkersOption = None,
    address: AddressOption = None,
) -> None:
    """Predict the class of every row, with its probability.

    Example: jlgcn predict wines-model new_wines.csv --out classes.csv

    New rows are attached to the learned graph one by one (inductive); --edges
    adds known edges to rows of fit. Without TABLE, the transductive predictions
    of the rows of fit are written, and the column "given" says which of them had a
    label. Probabilities are calibrated on held-out labels, with few labels only
    approximately; those of a network are not. "jlgcn report" measures how far they are
    off.

    Cells that a spreadsheet would run as a formula are prefixed with a single
    quote.

    A model by an engine: jlgcn predict s3://model new/ --out scores/ --engine ray

    New rows are attached batch by batch, by a search in the kept index; the folder
    gets Parquet files with id, class and probability.
    """
    with plain_errors():
        if is_sharded(model):
            if table is None or out is None or edges is not None or reject is not None:
                raise ValueError(
                    f"{model} was fitted by an engine: pass new rows and --out, without --edges "
                    f"and --reject; predictions of the rows of fit are in {model}/predictions"
                )
            from jlgcn.engine import ShardedModel

            with stages_shown():
                count = ShardedModel.load(model).predict(
                    table,
                    out,
                    engine=engine or "local",  # type: ignore[arg-type]
                    num_workers=workers,
                    address=address,
                )
            typer.echo(f"{count:,} rows written to {out}")
            return
        if engine is not None:
            raise ValueError(f"{model} was fitted in memory; leave out --engine")
        if table is not None:
            check_file(Path(table))
        fitted, rows = load_model(Path(model))
        from jlgcn.estimator.labelling import with_unknown
        from jlgcn.io.export import csv_cell

        if table is None:
            ids, probability = rows.ids, fitted.label_distributions_
        else:
            ids, x = read_new_rows(Path(table), fitted)
            graph = None if edges is None else read_cross_edges(edges, ids, rows.ids)
            probability = fitted.predict_proba(x, graph)
        columns: list[list[object]] = [  # each below its name
            [rows.id_column or "row", *ids],
            [rows.label_column, *with_unknown(fitted.classes_, probability, reject)],
            ["probability", *(f"{row.max():.4f}" for row in probability)],
        ]
        if reject is not None:
            columns.append(["best_guess", *with_unknown(fitted.classes_, probability, None)])
        if table is None:
            given = set(fitted.model_.train.tolist())
            columns.append(["given", *(str(row in given).lower() for row in range(len(ids)))])
        cells = [[csv_cell(value) for value in line] for line in zip(*columns, strict=True)]
        if out is not None:
            write_file(Path(out), _csv(cells, "\r\n"))
    if out is None:
        shown = [[printable(cell) for cell in line] for line in cells]
        typer.echo(_csv(shown, "\n"), nl=False)
    else:
        typer.echo(f"{counted(len(ids), 'row')} written to {out}")


def _csv(lines: list[list[str]], end: str) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator=end).writerows(lines)
    return text.getvalue()
