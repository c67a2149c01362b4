"""The metric step: a low-rank metric by ridge regression of class probabilities on features."""

from __future__ import annotations

import torch
from torch import Tensor

# Ridge penalty, as a share of the mean variance of the features.
_RIDGE = 0.1


def regress_metric(
    features: Tensor,  # (N, D)
    probability: Tensor,  # (N, num_classes)
    variance: float,
) -> Tensor:  # (D, num_classes)
    r"""Return R: the ridge regression of class probabilities P on the features F of all nodes.

    .. math:: R \propto (F^\top F + \rho I)^{-1} F^\top (P - \bar P)

    Self-training: unlabelled nodes count with their predicted probabilities.

    Args:
        features: centred features, such as principal components.
        probability: class probabilities of all nodes; of labelled ones, 1 for their class.
        variance (float ≥ 0): total variance of the features under R.

    Cost: 2·N·D·(D + num_classes) FLOP, and D³ in float64.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [1.0, 1.0], [-1.0, 1.0]])
        >>> p = torch.tensor([[1.0], [0.0], [1.0], [0.0]])
        >>> regress_metric(x, p, 4.0).mT
        tensor([[2., 0.]])
    """
    centred = (probability - probability.mean(0)).double()
    solved = solve_ridge((features.mT @ features).double(), features.mT.double() @ centred)
    solved = solved * variance_scale(features.double() @ solved, variance)
    return solved.to(features.dtype)


def solve_ridge(moment: Tensor, cross: Tensor) -> Tensor:  # (D, D), (D, C) to (D, C)
    """Return (M + ρI)⁻¹ X of sums over nodes, M = FᵀF, which is overwritten, and X = FᵀP."""
    moment.diagonal().add_(_RIDGE * moment.diagonal().mean().clamp(min=1e-30))
    solved: Tensor = torch.linalg.solve(moment, cross)
    return solved


def variance_scale(z: Tensor, variance: float) -> Tensor:  # ()
    """Return the factor that gives projected features z, (N, rank), a total variance."""
    found = (z - z.mean(0)).square().sum(-1).mean().clamp(min=1e-30)
    return (variance / found).sqrt()
