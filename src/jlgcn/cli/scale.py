"""Commands for more rows than memory holds."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jlgcn.cli.options import AddressOption, ModelEngineOption, WorkersOption
from jlgcn.cli.tables import is_sharded, plain_errors, printable

if TYPE_CHECKING:
    from jlgcn.engine.plan import Way


# Stages that are shorter are not shown.
_LEAST_SECONDS = 1.0


class _Stages(logging.Handler):
    """Prints the stages of an engine with the time of day; leaves warnings to the root logger."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno > logging.INFO:
            logging.getLogger().handle(record)
            return
        text = record.getMessage()
        if record.name == "jlgcn.engine.tasks":
            stage, count, _, seconds = record.args  # type: ignore[misc]
            if not count or seconds < _LEAST_SECONDS:  # type: ignore[operator]
                return
            text = f"{stage}: {count:,} {'task' if count == 1 else 'tasks'}, {_duration(seconds)}"  # type: ignore[arg-type]
        typer.echo(f"{time.strftime('%H:%M:%S')} {printable(text)}", err=True)


@contextmanager
def stages_shown() -> Iterator[None]:
    """Print each stage of an engine on stderr, with a progress bar in a terminal."""
    logger, handler = logging.getLogger("jlgcn.engine"), _Stages()
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.level, logger.propagate = before
        logger.removeHandler(handler)


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
    engine: ModelEngineOption = None,
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
    from jlgcn.engine.store import below

    with plain_errors(), stages_shown():
        if not is_sharded(model):
            if not Path(model).exists():
                raise FileNotFoundError(f"{model} does not exist; pass the folder of a model")
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
        f"{found.document['evidence']}. Predictions are in {below(model, 'predictions')}."
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
        num_bytes = available_bytes() if memory is None else int(memory * 2**30)
        cores = cores or os.cpu_count() or 1
        ways = costs.ways_to_fit(size, found, memory=num_bytes, cores=cores, hours=hours)
        typer.echo(_table(ways))
        typer.echo(
            "memory: of one machine, of Ray of one task; files: the most in the folder; moved: "
            "between machines and the object store, in all"
        )
        typer.echo(
            f"Assumed: {features:,} features, {classes:,} classes, "
            f"{f'{edges:,}' if edges else 'no'} edges; the default hyperparameters."
        )
        typer.echo(f"Constants {source}.")
        way = costs.advise(ways)
    engine = ""
    if way.name != "memory":
        typer.echo(
            f"{way.num_workers} {'worker' if way.num_workers == 1 else 'workers'} of "
            f"{_amount(size.task_bytes())} each; {cores} {'core' if cores == 1 else 'cores'}, "
            f"{_amount(num_bytes)} a machine"
        )
        engine = f" --engine {way.name}"
    if way.name == "local":
        engine += f" --workers {way.num_workers}"
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
                _duration(way.seconds) if way.fits else "",
                str(way.num_machines) if way.fits else "",
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
