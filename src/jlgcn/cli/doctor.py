"""The command that checks the installation: versions, devices, accuracy and speed."""

from __future__ import annotations

from typing import Annotated

import typer


def doctor(
    device: Annotated[
        str | None,
        typer.Option(help="PyTorch device to test, such as cpu or cuda:1. Default: all devices."),
    ] = None,
    nodes: Annotated[int, typer.Option(min=2, help="Nodes of the graph that is timed.")] = 2048,
) -> None:
    """Check the installation: versions, and accuracy and speed of the kernel on each device.

    Example: jlgcn doctor --device cpu

    Multiplies a matrix with an exact learned graph, with gradients, by
    FlashAttention ("flash") or, where PyTorch has none that passes its
    self-check, by blocks ("blocks"). The relative error is measured against
    float64. The output is Markdown, ready to paste into an issue.
    """
    import torch

    from jlgcn.cli.kernels import available_devices, examine
    from jlgcn.training.environment import versions

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
            examined = examine(each, dtype, num_nodes=nodes)
            typer.echo(
                f"| {examined.device} | {examined.dtype} | {examined.kernel} | "
                f"{examined.error:.1e} | {examined.seconds:.4f} | {examined.seconds_blocks:.4f} | "
                f"{examined.seconds / examined.seconds_blocks:.2f} |"
            )
