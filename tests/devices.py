"""Stand-ins for an accelerator on a machine that has none.

`explicit_devices` fails where code under test creates a tensor without naming its device, which
would then be on the CPU whatever the device of its arguments. `no_synchronization` fails where it
reads a tensor's value, for which the host would wait until the device has done all its work. Both
watch the code of this package only: PyTorch's own functions may do either on purpose.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_FACTORIES = frozenset(
    {
        torch.arange,
        torch.empty,
        torch.eye,
        torch.full,
        torch.linspace,
        torch.logspace,
        torch.ones,
        torch.rand,
        torch.randint,
        torch.randn,
        torch.randperm,
        torch.scalar_tensor,
        torch.tensor,
        torch.zeros,
    }
)

_READERS = frozenset(
    {
        Tensor.__bool__,
        Tensor.__float__,
        Tensor.__index__,
        Tensor.__int__,
        Tensor.cpu,
        Tensor.item,
        Tensor.nonzero,
        Tensor.numpy,
        Tensor.tolist,
        Tensor.unique,
        torch.allclose,
        torch.bincount,
        torch.equal,
        torch.nonzero,
        torch.unique,
    }
)

# Where functions of PyTorch that are written in Python call those that are not.
_WRAPPERS = ("torch.functional", "torch.overrides", "torch._jit_internal", "torch._tensor")


class _Watch(TorchFunctionMode):
    """Call `refuse` before every function of PyTorch that a module of `package` calls."""

    def __init__(
        self, refuse: Callable[[Callable[..., Any], dict[str, Any]], str | None], package: str
    ) -> None:
        super().__init__()
        self.refuse = refuse
        self.package = package

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        kwargs = kwargs or {}
        frame = sys._getframe(1)
        while frame.f_globals["__name__"] in _WRAPPERS and frame.f_back is not None:
            frame = frame.f_back
        name = frame.f_globals["__name__"]
        if name == self.package or name.startswith(f"{self.package}."):
            problem = self.refuse(func, kwargs)
            assert problem is None, f"{frame.f_code.co_filename}:{frame.f_lineno}: {problem}"
        return func(*args, **kwargs)


@contextmanager
def explicit_devices(package: str = "jlgcn") -> Iterator[None]:
    """Within, a factory function that `package` calls without ``device=`` fails."""

    def refuse(func: Callable[..., Any], kwargs: dict[str, Any]) -> str | None:
        is_implicit = func in _FACTORIES and kwargs.get("device") is None
        return f"torch.{func.__name__} without device=" if is_implicit else None

    with _Watch(refuse, package):
        yield


@contextmanager
def no_synchronization(package: str = "jlgcn") -> Iterator[None]:
    """Within, reading a value of a tensor from `package`, or a size that depends on one, fails."""

    def refuse(func: Callable[..., Any], kwargs: dict[str, Any]) -> str | None:
        return f"{func.__name__} waits for the device" if func in _READERS else None

    with _Watch(refuse, package):
        yield
