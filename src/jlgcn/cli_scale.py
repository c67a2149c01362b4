"""Commands for data that need not fit into memory: pack, plan."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jlgcn.cli_data import DropOption, plain_errors


def pack(
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE", help="Parquet: a file, a folder of files, or an address (s3://…)."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Folder to write to.")],
    label: Annotated[
        str | None,
        typer.Option("--label", metavar="COLUMN", help="Classes: numbers from 0, or text."),
    ] = None,
    edges: Annotated[
        str | None,
        typer.Option(
            "--edges", metavar="TABLE", help="Known edges: two columns of row numbers, from 0."
        ),
    ] = None,
    drop: DropOption = None,
    rows: Annotated[int, typer.Option(min=1, help="Rows of a shard.")] = 1 << 20,
    dtype: Annotated[str, typer.Option(help='"float32", or "float16" for half the space.')] = (
        "float32"
    ),
) -> None:
    """Write a table as shards that training reads a few rows of at a time.

    jlgcn pack s3://bucket/items --label kind --out packed

    What is packed can be deleted and packed again; a command that was stopped goes on where it
    was. In Python, jlgcn.scale.fit_batches learns from the folder.
    """
    from jlgcn.scale.packing import pack as write

    with plain_errors():
        plan = write(
            table,
            out,
            label=label,
            drop=drop or (),
            edges=edges,
            rows=rows,
            dtype=dtype,
            progress=True,
        )
    size = sum(path.stat().st_size for path in out.glob("*.npy"))
    typer.echo(
        f"{plan.num_rows:,} rows, {len(plan.features):,} features, {plan.num_edges:,} edges in "
        f"{len(plan.shards)} shards, {size / 2**30:.2f} GiB. Written to {out}."
    )


def plan(
    nodes: Annotated[int, typer.Option(min=1, help="Number of nodes.")],
    features: Annotated[int, typer.Option(min=1, help="Features of a node.")],
    edges: Annotated[int, typer.Option(min=0, help="Known edges.")] = 0,
    devices: Annotated[int, typer.Option(min=1, help="Processes, with a core each.")] = 1,
    memory: Annotated[
        float | None,
        typer.Option(min=0, help="GiB for each process; what is left here if not given."),
    ] = None,
) -> None:
    """Say how a graph of this size would be learned, and what it would take.

    jlgcn plan --nodes 10000000 --features 64
    """
    from jlgcn.plan import plan as make

    available = None if memory is None else memory * 2**30
    found = make(nodes, features, num_edges=edges, num_devices=devices, available=available)
    typer.echo(f"method: {found.regime}")
    for name, size in found.memory.items():
        if size:
            typer.echo(f"memory, {name}: {size / 2**30:.2f} GiB")
    typer.echo(f"memory of a process: {found.bytes / 2**30:.2f} GiB, ", nl=False)
    typer.echo(f"of {found.available / 2**30:.2f} GiB that there are")
    for name, seconds in found.seconds.items():
        typer.echo(f"time, {name}: {_duration(seconds)}")
    if found.wire:
        typer.echo(f"received by each process in a step: {found.wire / 2**20:.1f} MiB")
    typer.echo(f"calibrated on: {found.machine}; see docs/scale.md for its error")
    try:
        found.check()
    except MemoryError as problem:
        typer.echo(f"jlgcn: {problem}", err=True)
        raise typer.Exit(1) from None


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
