"""The command line. Heavy imports happen inside the commands, so that help comes at once."""

from __future__ import annotations

from typing import Annotated

import typer

import jlgcn

app = typer.Typer(
    name="jlgcn",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
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
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Learn the graph and the features together, for data whose graph is missing or wrong.

    Begin with "jlgcn doctor", which shows what runs on this machine and how fast.
    """


@app.command()
def doctor(
    device: Annotated[
        str | None,
        typer.Option(help="Examine this device only: cpu, cuda, cuda:1, …  [default: all]"),
    ] = None,
    nodes: Annotated[int, typer.Option(min=2, help="Size of the graph that is timed.")] = 4096,
) -> None:
    """Show versions, and which kernel each device gets, how exact and how fast it is.

    The output is Markdown, ready to paste into an issue.
    """
    import torch

    from jlgcn.doctor import available_devices, examine
    from jlgcn.train.environment import versions

    devices = available_devices()
    if device is not None:
        names = [str(d) for d in devices]
        wanted = "cuda:0" if device == "cuda" else device
        if wanted not in names:
            raise typer.BadParameter(
                f"there is no device {device!r} here; choose from: {', '.join(names)}",
                param_hint="--device",
            )
        devices = [torch.device(wanted)]

    typer.echo("| what | version |\n| --- | --- |")
    for name, version in versions().items():
        typer.echo(f"| {name} | {version} |")
    typer.echo(
        f"\nExact learned graph of {nodes:,} nodes, rank 16, 16 channels: one product and its "
        "gradients.\n"
        "\n| device | dtype | kernel | relative error | seconds | seconds by blocks | ratio |"
        "\n| --- | --- | --- | --- | --- | --- | --- |"
    )
    for each in devices:
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            report = examine(each, dtype, num_nodes=nodes)
            typer.echo(
                f"| {report.device} | {report.dtype} | {report.kernel} | {report.error:.1e} | "
                f"{report.seconds:.4f} | {report.seconds_blocks:.4f} | "
                f"{report.seconds / report.seconds_blocks:.2f} |"
            )


def main() -> None:
    """Run the command line."""
    app()
