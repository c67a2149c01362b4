"""Custom operators of PyTorch, which torch.compile and torch.export treat as opaque.

Registered with explicit schemas on a library of our own: `torch.library.custom_op` imports a
compiler at an operator's first call, which takes longer than a small fit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

P = ParamSpec("P")
R = TypeVar("R")

_LIBRARY = torch.library.Library("jlgcn", "DEF")


def operator(schema: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Register a function as an operator of all devices, which mutates none of its arguments.

    Args:
        schema: its name, arguments and results, as PyTorch writes them.
    """

    def register(function: Callable[P, R]) -> Callable[P, R]:
        name = schema.partition("(")[0]
        _LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        _LIBRARY.impl(name, function, "CompositeExplicitAutograd")
        return cast(Callable[P, R], getattr(torch.ops.jlgcn, name).default)

    return register


def register_fake(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Register what says of which shapes and dtypes an operator's results are."""
    return torch.library.register_fake(f"jlgcn::{name}", lib=_LIBRARY)  # type: ignore[no-any-return]


def register_autograd(
    name: str, backward: Callable[..., Any], setup: Callable[..., None] | None = None
) -> None:
    """Register an operator's derivative, and what keeps for it what it needs."""
    torch.library.register_autograd(f"jlgcn::{name}", backward, setup_context=setup, lib=_LIBRARY)


def save_inputs(ctx: FunctionCtx, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    """Keep an operator's arguments for its derivative."""
    ctx.save_for_backward(*inputs)
