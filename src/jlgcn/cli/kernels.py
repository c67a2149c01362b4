"""Accuracy and speed of the Gaussian kernel product on each device."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from jlgcn.ops.flash import flash_works
from jlgcn.ops.gaussian import Method, kernel_matmul
from jlgcn.ops.precision import compute_dtype


@dataclass(frozen=True)
class KernelReport:
    """Accuracy and speed of exact learned graphs on one device, in one dtype.

    Attributes:
        device: the device.
        dtype: the dtype, without "torch.".
        kernel: "flash" (FlashAttention), or "blocks" if that is missing or failed its self-check.
            Half precision is computed in float32.
        error: largest error of values and gradients against float64, relative to the largest value.
        seconds: time of a product with its gradients.
        seconds_blocks: the same, computed by blocks.
    """

    device: str
    dtype: str
    kernel: str
    error: float
    seconds: float
    seconds_blocks: float


def available_devices() -> list[torch.device]:
    """Return the CPU and every CUDA device.

    Example:
        >>> available_devices()[0]
        device(type='cpu')
    """
    return [torch.device("cpu")] + [
        torch.device("cuda", index) for index in range(torch.cuda.device_count())
    ]


def examine(
    device: torch.device,
    dtype: torch.dtype,
    *,
    num_nodes: int = 2048,
    rank: int = 16,
    channels: int = 16,
) -> KernelReport:
    """Measure a product with an exact learned graph, with gradients, on one device.

    Cost: about seven products of `num_nodes`² entries; half a second on a laptop at the defaults.

    Example:
        >>> examine(torch.device("cpu"), torch.float32, num_nodes=64).kernel
        'flash'
    """
    # Drawn on the CPU: all devices multiply the same numbers.
    cpu = torch.device("cpu")
    generator = torch.Generator(cpu).manual_seed(0)
    z = torch.randn(num_nodes, rank, generator=generator, device=cpu).mul_(0.3)
    v = torch.randn(num_nodes, channels, generator=generator, device=cpu)
    z, v = (t.to(device, dtype).requires_grad_() for t in (z, v))
    exact_z, exact_v = (t.detach().double().requires_grad_() for t in (z, v))
    truth = _run(exact_z, exact_v, "blocks")
    errors = [
        float((left - right).abs().max() / right.abs().max())
        for left, right in zip(_run(z, v, "auto"), truth, strict=True)
    ]
    return KernelReport(
        device=str(device),
        dtype=str(dtype).removeprefix("torch."),
        kernel="flash" if flash_works(device, compute_dtype(z)) else "blocks",
        error=max(errors),
        seconds=_time(z, v, "auto"),
        seconds_blocks=_time(z, v, "blocks"),
    )


def _run(z: Tensor, v: Tensor, method: Method) -> tuple[Tensor, ...]:
    product, degree = kernel_matmul(z, z, v, method=method)
    gradients = torch.autograd.grad((product, degree), (z, v), (v, torch.ones_like(degree)))
    return product.detach(), degree.detach(), *gradients


def _time(z: Tensor, v: Tensor, method: Method) -> float:
    # Not by torch.utils.benchmark: to import it, PyTorch 2.6 needs setuptools, unasked.
    def seconds() -> float:
        start = time.perf_counter()
        _run(z, v, method)
        if z.is_cuda:
            torch.cuda.synchronize(z.device)
        return time.perf_counter() - start

    return min(seconds() for _ in range(3))
