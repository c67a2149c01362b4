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
        mean, num_rows = mean_of_all(x.sum(0), x.shape[0])
        # Of differences: the mean of squares less the square of the mean would lose digits.
        variance, _ = mean_of_all((x - mean).square().sum(0), x.shape[0])
        return self.normalize(x, mean, variance, num_rows)

    def normalize(
        self,
        x: Tensor,  # (rows, C)
        mean: Tensor,  # (C,)
        variance: Tensor,  # (C,)
        num_rows: float,
    ) -> Tensor:  # (rows, C)
        """Return rows normalised in training by a mean and a variance that are already known.

        Args:
            x: rows, which need not be those that the mean and variance are of.
            mean: mean of every channel.
            variance: variance of every channel, the mean of squares.
            num_rows: how many rows they are of.
        """
        with torch.no_grad():
            assert self.running_mean is not None
            assert self.running_var is not None
            assert self.num_batches_tracked is not None
            assert self.momentum is not None
            self.num_batches_tracked += 1
            unbiased = variance * (num_rows / (num_rows - 1))
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(unbiased, self.momentum)
        normalized: Tensor = (x - mean) * (variance + self.eps).rsqrt() * self.weight + self.bias
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


def mean_of_all(
    total: Tensor,  # (C,)
    count: int,
) -> tuple[Tensor, float]:
    """Return a mean over the rows of all processes and their number, from this process's sum."""
    if not is_distributed():
        return total / count, float(count)
    here = torch.cat([total, total.new_tensor([float(count)])])
    sums: Tensor = _Sum.apply(here)  # type: ignore[no-untyped-call]
    num_rows = float(sums[-1].detach())
    return sums[:-1] / num_rows, num_rows


def is_distributed() -> bool:
    """Whether this process is one of several that train together."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
