"""Hyperparameters of training on nodes."""

from __future__ import annotations

from dataclasses import dataclass

from jlgcn.ops.precision import Precision


@dataclass(frozen=True)
class TrainConfig:
    """Hyperparameters of training on nodes, by Adam with a step-wise learning rate.

    Attributes:
        epochs (int ≥ 1, default 500): full-batch steps.
        lr (float > 0, default 0.1): initial learning rate of Adam.
        lr_step (int ≥ 1, default 100): epochs between two decays of the learning rate.
        lr_decay (float in (0, 1], default 0.5): factor of a decay; 1 for a constant rate.
        weight_decay (float ≥ 0, default 5e-4): L2 penalty of Adam.
        glr_weight (float ≥ 0, default 1e-4): weight λ of the graph Laplacian regularizer; 0
            disables it.
        glr_probes (int ≥ 1 or None, default 16): Hutchinson probes of the regularizer, see
            :func:`jlgcn.nn.laplacian_regularizer`; None for its exact value.
        precision ("float32" or "bfloat16", default "float32"): precision of products with weights,
            by `torch.autocast`; distances, degrees and products with graphs stay in float32.

    Example:
        >>> TrainConfig().rate(100)
        0.05
    """

    epochs: int = 500
    lr: float = 0.1
    lr_step: int = 100
    lr_decay: float = 0.5
    weight_decay: float = 5e-4
    glr_weight: float = 1e-4
    glr_probes: int | None = 16
    precision: Precision = "float32"

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, from 0."""
        return self.lr * self.lr_decay ** (epoch // self.lr_step)
