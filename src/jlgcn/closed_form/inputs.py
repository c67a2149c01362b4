"""What a classifier sees of nodes: features after they were spread, and before."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

#: What a classifier sees of a node, see :class:`jlgcn.closed_form.ClosedFormOptions`.
Inputs = Literal["leveled", "unit", "unit with own", "unit with own and neighbors"]

# Rows that are shorter are not made longer than 1 by division.
SHORTEST = 1e-30


def check_inputs(inputs: str) -> None:
    """Refuse what is no kind of a classifier's inputs."""
    if inputs not in get_args(Inputs):
        choices = ", ".join(get_args(Inputs))
        raise ValueError(f"inputs must be one of {choices}, but it is {inputs!r}")


def num_blocks(kind: Inputs) -> int:
    """Return how many rows of features a node's inputs are made of."""
    return {"unit with own": 2, "unit with own and neighbors": 3}.get(kind, 1)


def inputs_of(
    kind: Inputs,
    spread: Tensor,  # (N, num_components)
    degree: Tensor,  # (N,)
    own: Tensor | None = None,  # (N, num_components)
    neighbors: Tensor | None = None,  # (N, num_components)
) -> Tensor:  # (N, num_blocks · num_components)
    """Return what a classifier sees of nodes, see :class:`ClosedFormOptions`.

    Far from their start, all walks tell the same of a node: the square root of its degree. So this
    is taken away, by itself or with the length of the whole row.

    Args:
        kind: of inputs.
        spread: features after they were spread.
        degree: of the graph they were spread over.
        own: features before; None where they are not seen.
        neighbors: sums of these over given edges; None where they are not seen.
    """
    if kind == "leveled":
        return spread / degree.sqrt().unsqueeze(-1)
    blocks = [block for block in (spread, own, neighbors)[: num_blocks(kind)] if block is not None]
    widths = [block.shape[-1] for block in blocks]
    inputs = spread.new_empty(*spread.shape[:-1], sum(widths))
    for place, block in zip(inputs.split(widths, dim=-1), blocks, strict=True):
        torch.div(block, length_of(block), out=place)  # not in a place of its own, and then copied
    return inputs


def unit_rows(x: Tensor) -> Tensor:
    """Return rows of length 1; rows of zeros stay so."""
    return x / length_of(x)


def length_of(x: Tensor) -> Tensor:  # (..., 1)
    """Return the lengths of rows, to divide by."""
    length: Tensor = x.norm(dim=-1, keepdim=True)
    return length.clamp(min=SHORTEST)
