"""Brute force: the definitions written down with N × N × S differences, in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor

F64 = torch.float64


def gaussian(z_rows: Tensor, z_cols: Tensor) -> Tensor:
    difference = z_rows.unsqueeze(-2) - z_cols.unsqueeze(-3)
    return (-difference.square().sum(-1)).exp()


def dirichlet(weight: Tensor, f: Tensor) -> Tensor:
    difference = f.unsqueeze(-2) - f.unsqueeze(-3)
    return (weight * difference.square().sum(-1)).sum((-2, -1))


def points(*shape: int, dtype: torch.dtype = F64, grad: bool = False) -> Tensor:
    return torch.randn(*shape, dtype=dtype).mul_(0.5).requires_grad_(grad)


def largest_difference(left: Tensor, right: Tensor) -> float:
    assert left.shape == right.shape, f"{left.shape} is not {right.shape}"
    if left.numel() == 0:
        return 0.0
    return float((left.to(F64) - right.to(F64)).detach().abs().max())
