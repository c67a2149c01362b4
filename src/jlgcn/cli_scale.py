"""Commands for data that need not fit into memory: pack."""

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
