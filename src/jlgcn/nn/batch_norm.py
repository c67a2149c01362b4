"""Batch normalisation over the whole batch, also where several processes share it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class BatchNorm(nn.BatchNorm1d):
    r"""Batch normalisation whose mean and variance may be those of all processes' rows together.

    .. math:: y = \gamma \frac{x - \mathrm{mean}(x)}{\sqrt{\mathrm{var}(x) + \epsilon}} + \beta

    As :class:`torch.nn.BatchNorm1d` in one process and in evaluation. Where processes share a
    batch, :func:`jlgcn.distributed.share_batches` sets `sum_over_processes`, which adds a tensor up
    over them and is differentiable. Unlike `torch.nn.SyncBatchNorm` it needs no GPU: two sums of as
    many numbers as there are channels travel between processes.

    Args:
        num_features: channels.

    Shapes: x (rows, num_features), any number of rows in each process, in all at least two.

    Cost: two passes over x, and two reductions of `num_features` numbers.

    Example:
        >>> BatchNorm(3)(torch.randn(10, 3)).mean().abs() < 1e-6
        tensor(True)
    """

    sum_over_processes: Callable[[Tensor], Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return normalised rows."""
        if not self.training or self.sum_over_processes is None:
            plain: Tensor = super().forward(x)
            return plain
        mean, num_rows = self.mean_of_all(x.sum(0), x.shape[0])
        # Of differences: the mean of squares less the square of the mean would lose digits.
        variance, _ = self.mean_of_all((x - mean).square().sum(0), x.shape[0])
        return self.normalize(x, mean, variance, num_rows)

    def mean_of_all(
        self,
        total: Tensor,  # (C,)
        count: int,
    ) -> tuple[Tensor, float]:
        """Return a mean over all processes' rows and their number, from this process's sum."""
        if self.sum_over_processes is None:
            return total / count, float(count)
        sums = self.sum_over_processes(torch.cat([total, total.new_tensor([float(count)])]))
        num_rows = float(sums[-1].detach())
        return sums[:-1] / num_rows, num_rows

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
