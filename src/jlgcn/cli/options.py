"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Table = Annotated[
    Path,
    typer.Argument(
        metavar="TABLE",
        help="CSV or Parquet file. Each column that no option names is a feature.",
    ),
]
# As text, since a Path would take a slash out of s3://.
Items = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="CSV or Parquet file. Each column that no option names is a feature. With --engine a "
        "Parquet file or a folder of some, on disk or s3://, whose features are numbers or lists "
        "of numbers (embeddings).",
    ),
]
EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="ENGINE",
        help='For more rows than memory holds: "local" (a pool of processes) or "ray" (a cluster). '
        "Default: in memory.",
        rich_help_panel="Engine",
    ),
]
ModelEngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="ENGINE",
        help='What runs it: "local" (a pool of processes) or "ray" (a cluster). Default: local for '
        "a model by an engine.",
        rich_help_panel="Engine",
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        help="Engine: number of processes. Default: one a core, as far as the free memory allows.",
        rich_help_panel="Engine",
    ),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help='Engine ray: address of the cluster, or "auto". Default: start Ray on this machine.',
        rich_help_panel="Engine",
    ),
]
OverwriteOption = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        help="Engine: replace a model of other data or options in --out, which is refused without. "
        "A fit in memory always replaces one of its kind.",
        rich_help_panel="Engine",
    ),
]
IdOption = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="COLUMN",
        help="Column of unique row ids. Default: found, or row numbers; with --engine row numbers.",
    ),
]
LabelOption = Annotated[
    str,
    typer.Option(
        "--label", metavar="COLUMN", help="Column of classes; empty, or -1, in unlabelled rows."
    ),
]
EdgesOption = Annotated[
    Path | None,
    typer.Option(
        "--edges",
        metavar="FILE",
        help='Known edges, CSV or Parquet: two columns of row ids, and optionally "weight".',
        rich_help_panel="Known graph",
    ),
]
ItemEdgesOption = Annotated[
    str | None,
    typer.Option(
        "--edges",
        metavar="FILE",
        help='Known edges, CSV or Parquet: two columns of row ids, and optionally "weight". With '
        "--engine Parquet files, on disk or s3://.",
        rich_help_panel="Known graph",
    ),
]
DropOption = Annotated[
    list[str] | None,
    typer.Option("--drop", metavar="COLUMN", help="Column that is not a feature; repeatable."),
]
ScalerOption = Annotated[
    str,
    typer.Option(
        metavar="KIND",
        help='Feature scaling: "words" (tf-idf of counts), "table" (standardised columns), '
        '"embeddings" or "none" (unchanged). "auto" detects words, tables and embeddings.',
    ),
]
DeviceOption = Annotated[
    str, typer.Option(help='PyTorch device, such as cpu or cuda:1, see "jlgcn doctor".')
]


SolverOption = Annotated[
    str,
    typer.Option(
        metavar="SOLVER",
        help='"closed_form" (linear algebra: fast, hyperparameters selected), or "gradient" (the '
        "network of Tang et al., 2019).",
        rich_help_panel="Network",
    ),
]
EpochsOption = Annotated[
    int,
    typer.Option(min=1, help="Epochs of the network, each on all rows.", rich_help_panel="Network"),
]
