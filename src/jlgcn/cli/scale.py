"""Commands for more rows than memory holds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jlgcn.cli.options import AddressOption, EngineOption, WorkersOption
from jlgcn.cli.tables import is_sharded, plain_errors

if TYPE_CHECKING:
    from jlgcn.engine.plan import Way


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


def plan(
    rows: Annotated[
        int | None, typer.Option("--rows", min=2, help="Rows of the table, labelled or not.")
    ] = None,
    features: Annotated[
        int,
        typer.Option(min=1, help="Columns of features; of words those that a row has on average."),
    ] = 64,
    classes: Annotated[int, typer.Option(min=2, help="Classes.")] = 10,
    edges: Annotated[int, typer.Option(min=0, help="Known edges.")] = 0,
    memory: Annotated[
        float | None,
        typer.Option(metavar="GIB", min=0.1, help="Memory of a machine. Default: what is free."),
    ] = None,
    cores: Annotated[
        int | None, typer.Option(min=1, help="Cores of a machine. Default: those of this one.")
    ] = None,
    hours: Annotated[
        float, typer.Option(min=0.01, help="Time in which Ray's machines should be done.")
    ] = 1.0,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Measure this machine first, for a minute or two.")
    ] = False,
    constants: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What was measured, written by --calibrate. Default: in the user's cache folder.",
        ),
    ] = None,
) -> None:
    """Estimate memory and time of a fit, in memory and by engines, and recommend one.

    Example: jlgcn plan --rows 3000000 --features 64

    Times are those of the closed form with its default hyperparameters, from constants
    that --calibrate measures by a small fit; without it, from one core of 2.5 GHz.
    Where no way has the memory, the command ends with code 2.
    """
    from jlgcn._memory import available_bytes
    from jlgcn.engine import plan as costs
    from jlgcn.engine.store import cache_folder

    with plain_errors():
        if rows is None and not calibrate:
            raise ValueError("plan needs the number of rows; pass --rows, or --calibrate alone")
        path = cache_folder() / "plan.json" if constants is None else constants
        if calibrate:
            costs.save_constants(path, costs.calibrate())
            typer.echo(f"Measured this machine: {path}")
        if rows is None:
            return
        if constants is not None or path.exists():
            found, source = costs.load_constants(path), f"measured on this machine ({path})"
        else:
            found, source = costs.DEFAULTS, "of another machine; measure yours by --calibrate"
        size = costs.Size(
            num_rows=rows, num_features=features, num_classes=classes, num_edges=edges
        )
        ways = costs.ways_to_fit(
            size,
            found,
            memory=available_bytes() if memory is None else int(memory * 2**30),
            cores=cores or os.cpu_count() or 1,
            hours=hours,
        )
        typer.echo(_table(ways))
        typer.echo(f"Constants {source}.")
        way = costs.advise(ways)
    engine = "" if way.name == "memory" else f" --engine {way.name}"
    typer.echo(f"Take: jlgcn fit … --label COLUMN --out MODEL{engine}")


def _table(ways: list[Way]) -> str:
    head = ("", "memory", "CPU time", "time", "machines", "files", "moved", "")
    lines = [head]
    for way in ways:
        lines.append(
            (
                {"memory": "in memory", "local": "--engine local", "ray": "--engine ray"}[way.name],
                _amount(way.num_bytes),
                _duration(way.cpu_seconds),
                _duration(way.seconds),
                str(way.num_machines),
                _amount(way.disk_bytes),
                _amount(way.moved_bytes),
                "" if way.fits else "does not fit",
            )
        )
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _amount(num_bytes: int) -> str:
    return "" if num_bytes == 0 else f"{num_bytes / 2**30:,.1f} GiB"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:,.1f} h"
