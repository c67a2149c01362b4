"""Batch normalisation over the whole batch, also where several processes share it."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx


class BatchNorm(nn.BatchNorm1d):
    r"""Batch normalisation whose mean and variance are those of all processes' rows together.

    .. math:: y = \gamma \frac{x - \mathrm{mean}(x)}{\sqrt{\mathrm{var}(x) + \epsilon}} + \beta

    As :class:`torch.nn.BatchNorm1d` in one process, in evaluation, and where PyTorch was built
    without distributed training. Otherwise, unlike `torch.nn.SyncBatchNorm`, it needs no GPU: two
    sums of as many numbers as there are channels travel between processes.

    Args:
        num_features: channels.

    Shapes: x (rows, num_features), any number of rows in each process, in all at least two.

    Cost: two passes over x, and two reductions of `num_features` numbers.

    Example:
        >>> BatchNorm(3)(torch.randn(10, 3)).mean().abs() < 1e-6
        tensor(True)
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return normalised rows."""
        if not self.training or not is_distributed():
            plain: Tensor = super().forward(x)
            return plain
        count = torch.tensor([float(x.shape[0])], dtype=x.dtype, device=x.device)
        total = _sum_over_processes(torch.cat([x.sum(0), count]))
        num_rows = float(total[-1].detach())
        mean = total[:-1] / num_rows
        # Of differences: the mean of squares less the square of the mean would lose digits.
        centred = x - mean
        variance = _sum_over_processes(centred.square().sum(0)) / num_rows
        with torch.no_grad():
            assert self.running_mean is not None
            assert self.running_var is not None
            assert self.num_batches_tracked is not None
            assert self.momentum is not None
            self.num_batches_tracked += 1
            unbiased = variance * (num_rows / (num_rows - 1))
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(unbiased, self.momentum)
        normalized: Tensor = centred * (variance + self.eps).rsqrt() * self.weight + self.bias
        return normalized


class _Sum(torch.autograd.Function):
    """A sum over processes; what each does with it flows back to all."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor) -> Tensor:
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> Tensor:
        total = grad.clone()
        dist.all_reduce(total)
        return total


def _sum_over_processes(x: Tensor) -> Tensor:
    total: Tensor = _Sum.apply(x)  # type: ignore[no-untyped-call]
    return total


def is_distributed() -> bool:
    """Whether this process is one of several that train together."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
