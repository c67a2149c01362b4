"""The command line. Heavy imports happen inside the commands, so that help comes at once."""

from __future__ import annotations

from typing import Annotated

import typer

import jlgcn
from jlgcn.cli.data import compare, edges, explain, fit, predict, suggest
from jlgcn.cli.doctor import doctor
from jlgcn.cli.paper import paper
from jlgcn.cli.report import report

app = typer.Typer(
    name="jlgcn",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"jlgcn {jlgcn.__version__}")
        raise typer.Exit


@app.callback()
def jlgcn_command(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version"),
    ] = False,
) -> None:
    """Learn the graph and the features together, for data whose graph is missing or wrong.

    Begin with "jlgcn compare TABLE --label COLUMN", which says whether a learned graph helps with
    your own data, and "jlgcn fit"; or with "jlgcn doctor", which shows what runs on this machine
    and how fast, and "jlgcn paper list", which shows what of the paper can be trained.
    """


for _command in (fit, predict, edges, explain, suggest, compare, report, doctor):
    app.command()(_command)
app.add_typer(paper, name="paper")


def main() -> None:
    """Run the command line."""
    app()
