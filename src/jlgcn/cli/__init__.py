"""The command line. Commands import heavy packages themselves, so that --help is fast."""

from __future__ import annotations

import inspect
import re
from typing import Annotated

import typer

import jlgcn
from jlgcn.cli.audit import audit
from jlgcn.cli.data import compare, edges, fit, suggest
from jlgcn.cli.doctor import doctor
from jlgcn.cli.explain import explain
from jlgcn.cli.paper import paper
from jlgcn.cli.predict import predict
from jlgcn.cli.report import report
from jlgcn.cli.scale import plan, update

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
    """Joint learning of graph and classifier, for tables whose graph is missing or noisy.

    Your own data: "jlgcn compare TABLE --label COLUMN" measures whether a learned
    graph helps, "jlgcn fit" fits a model, and "jlgcn report" writes a page about
    it.

    The network of the paper: "jlgcn paper list" lists what can be reproduced.

    Installation: "jlgcn doctor" checks versions, devices and speed.
    """


_COMMANDS = (fit, predict, update, edges, audit, explain, suggest, compare, report, plan, doctor)
for _command in _COMMANDS:
    app.command()(_command)
app.add_typer(paper, name="paper")
for _each in (app.registered_callback, *app.registered_commands, *paper.registered_commands):
    if _each is not None and _each.callback is not None:
        # A paragraph is one line, which is broken at the terminal's width.
        _each.help = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(_each.callback) or "")


def main() -> None:
    """Run the command line."""
    app()
