"""Input features of the classifier: diffused, own and neighbours' features, normalised."""

from __future__ import annotations

import torch
from torch import Tensor

from jlgcn.closed_form.options import Inputs

# Lower bound of a norm, so that rows of zeros stay zero.
SHORTEST = 1e-30


def num_blocks(kind: Inputs) -> int:
    """Return the number of concatenated feature blocks."""
    return {"unit+own": 2, "unit+own+neighbors": 3}.get(kind, 1)


def classifier_inputs(
    kind: Inputs,
    diffused: Tensor,  # (N, n_components)
    degree: Tensor,  # (N,)
    own: Tensor | None = None,  # (N, n_components)
    neighbors: Tensor | None = None,  # (N, n_components)
) -> Tensor:  # (N, num_blocks · n_components)
    """Return the input features of the classifier, see :class:`ClosedFormOptions`.

    Long walks converge to the stationary distribution, proportional to √degree. We divide it out,
    by itself ("degree") or with the norm of the whole row ("unit").

    Args:
        kind: which blocks, and how they are normalised.
        diffused: diffused features.
        degree: degrees of the graph they were diffused over.
        own: the nodes' own features; None where `kind` does not need them.
        neighbors: sums of these over given edges; None where `kind` does not need them.
    """
    if kind == "degree":
        return diffused / degree.sqrt().unsqueeze(-1)
    blocks = [
        block for block in (diffused, own, neighbors)[: num_blocks(kind)] if block is not None
    ]
    widths = [block.shape[-1] for block in blocks]
    inputs = diffused.new_empty(*diffused.shape[:-1], sum(widths))
    for place, block in zip(inputs.split(widths, dim=-1), blocks, strict=True):
        torch.div(block, length_of(block), out=place)  # in place, without a copy of the block
    return inputs


def unit_rows(x: Tensor) -> Tensor:
    """Return rows of unit norm; rows of zeros stay zero."""
    return x / length_of(x)


def length_of(x: Tensor) -> Tensor:  # (..., 1)
    """Return the norms of rows, bounded away from 0 to divide by."""
    length: Tensor = x.norm(dim=-1, keepdim=True)
    return length.clamp(min=SHORTEST)
