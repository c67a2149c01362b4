"""Registration of custom PyTorch operators, which are opaque to torch.compile and torch.export.

They have explicit schemas in a library of their own: `torch.library.custom_op` imports the compiler
at the first call, which takes longer than a small fit.
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
    """Register a function that mutates none of its arguments as an operator for all devices.

    Args:
        schema: name, arguments and results in PyTorch's schema language.
    """

    def register(function: Callable[P, R]) -> Callable[P, R]:
        name = schema.partition("(")[0]
        _LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        _LIBRARY.impl(name, function, "CompositeExplicitAutograd")
        return cast(Callable[P, R], getattr(torch.ops.jlgcn, name).default)

    return register


def register_fake(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Register the fake implementation: empty results of the right shape and dtype."""
    return torch.library.register_fake(f"jlgcn::{name}", lib=_LIBRARY)  # type: ignore[no-any-return]


def register_autograd(
    name: str, backward: Callable[..., Any], setup: Callable[..., None] | None = None
) -> None:
    """Register the backward function of an operator and the function that saves its inputs."""
    torch.library.register_autograd(f"jlgcn::{name}", backward, setup_context=setup, lib=_LIBRARY)


def save_inputs(ctx: FunctionCtx, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    """Save all arguments of an operator for its backward function."""
    ctx.save_for_backward(*inputs)
