"""Batch normalisation with statistics of the whole batch, also in distributed training."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class BatchNorm(nn.BatchNorm1d):
    r"""Batch normalisation, optionally with statistics synchronised over processes.

    .. math:: y = \gamma \frac{x - \mathrm{mean}(x)}{\sqrt{\mathrm{var}(x) + \epsilon}} + \beta

    :class:`torch.nn.BatchNorm1d` in a single process and in evaluation. If processes share a batch,
    :func:`jlgcn.distributed.share_batches` sets `sum_over_processes`, a differentiable all-reduce;
    mean and variance are then those of all rows, as in `torch.nn.SyncBatchNorm`, which needs a GPU.

    Args:
        num_features (int ≥ 1): channels, C.

    Shapes: x (rows, C) to (rows, C); processes may have different numbers of rows, at least two in
    total.

    Cost: two passes over x; with processes, two all-reduces of C numbers.

    Example:
        >>> BatchNorm(3)(torch.randn(10, 3)).mean().abs() < 1e-6
        tensor(True)
    """

    sum_over_processes: Callable[[Tensor], Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the rows of x."""
        if not self.training or self.sum_over_processes is None:
            plain: Tensor = super().forward(x)
            return plain
        x = x.to(self.weight.dtype)  # under autocast: bfloat16 has no room for a sum
        mean, num_rows = self.mean_of_all(x.sum(0), x.shape[0])
        # From centred rows: E[x²] - E[x]² would cancel.
        variance, _ = self.mean_of_all((x - mean).square().sum(0), x.shape[0])
        return self.normalize(x, mean, variance, num_rows)

    def mean_of_all(
        self,
        total: Tensor,  # (C,)
        count: int,
    ) -> tuple[Tensor, float]:
        """Return the mean over the rows of all processes, and the number of these rows.

        Args:
            total: sum over the rows of this process.
            count: number of its rows.
        """
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
        """Normalise rows by given statistics, and update the running ones, as in training.

        Args:
            x: rows to normalise.
            mean: mean of every channel.
            variance: biased variance of every channel.
            num_rows: number of rows that mean and variance were computed from.
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
