"""Commands for more rows than memory holds."""

from __future__ import annotations

from typing import Annotated

import typer

from jlgcn.cli.data import AddressOption, EngineOption, WorkersOption
from jlgcn.cli.tables import is_sharded, plain_errors


def update(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Folder of a model fitted by an engine.")
    ],
    rows: Annotated[
        str | None,
        typer.Argument(metavar="NEW", help="Parquet files of new rows, on disk or s3://."),
    ] = None,
    edges: Annotated[
        str | None,
        typer.Option("--edges", metavar="FILE", help="Parquet files of new edges, of any rows."),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels", metavar="FILE", help="Parquet files with ids and labels, of any rows."
        ),
    ] = None,
    engine: EngineOption = None,
    workers: WorkersOption = None,
    address: AddressOption = None,
) -> None:
    """Add rows, edges or labels to a model that was fitted by an engine.

    Example: jlgcn update s3://model s3://new --edges s3://new-edges

    Hyperparameters and metric stay; new rows are joined to the graph, features are
    diffused from the old solution, and the classifiers are fitted again. It takes
    a fraction of a fit. A command that was interrupted goes on when it is run
    again; an update that is there is not made twice. After many, fit again.
    """
    from jlgcn.engine import ShardedModel

    with plain_errors():
        if not is_sharded(model):
            raise ValueError(f"{model} was not fitted by an engine; fit it again with the new rows")
        before = ShardedModel.load(model)
        found = before.update(
            rows,
            edges=edges,
            labels=labels,
            engine=engine or "local",  # type: ignore[arg-type]
            num_workers=workers,
            address=address,
        )
    typer.echo(
        f"{found.num_rows:,} rows ({found.num_rows - before.num_rows:,} new), "
        f"{found.document['num_labels']:,} labels of {len(found.document['classes'])} classes; "
        f"{found.document['evidence']}. Predictions are in {model}/predictions."
    )
