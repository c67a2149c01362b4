"""The command that says what a size takes: plan."""

from __future__ import annotations

from typing import Annotated

import typer


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

    jlgcn plan --nodes 1000000 --features 64
    """
    from jlgcn.engine.plan import plan as make

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
