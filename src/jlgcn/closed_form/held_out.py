"""Which labels are held out of which fit: k-fold cross-validation, or a validation set."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

#: Most folds of the cross-validation.
MAX_FOLDS = 5


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Splits of the M labelled nodes, whose losses select hyperparameters and calibrate.

    Attributes:
        weight: weights of the labels in the fit of each split, 0 where they are held out, (S, M),
            float64.
        final: their weights in the final fit, (M,), float64; 0 for validation labels.
        fold: the split that holds out a label, (M,), int64; -1 if none does.
        count: number of labels that each counts as, in fits and in losses, (M,), float64.
        is_validation: whether a validation set is held out, instead of fold after fold.
    """

    weight: Tensor
    final: Tensor
    fold: Tensor
    count: Tensor
    is_validation: bool = False

    @classmethod
    def folds(cls, y: Tensor, weight: Tensor, count: Tensor | None = None) -> HeldOut:
        """Return stratified folds, at most five, and no more than labels of the smallest class.

        Classes that have a single label do not limit the number of folds, which is two at least.

        Args:
            y: classes of the labelled nodes, (M,), int64.
            weight: their weights, (M,), float64.
            count: number of labels that each counts as, a factor of `weight`; None for 1.
        """
        of_class = torch.bincount(y)
        repeated = of_class[of_class > 1]
        num_folds = int(repeated.min().clamp(2, MAX_FOLDS)) if len(repeated) else 2
        cpu = torch.device("cpu")  # folds do not depend on the device
        order = torch.randperm(len(y), generator=torch.Generator(cpu).manual_seed(0), device=cpu)
        order = order.to(y.device)
        order = order[y[order].argsort(stable=True)]  # class by class, each in a random order
        fold = torch.empty_like(y)
        fold[order] = torch.arange(len(y), device=y.device) % num_folds
        splits = torch.arange(num_folds, device=y.device).unsqueeze(-1)
        count = torch.ones_like(weight) if count is None else count
        return cls(weight * (fold != splits), weight, fold, count)

    @classmethod
    def validation(cls, weight: Tensor, num_val: int, count: Tensor | None = None) -> HeldOut:
        """Return one split, which holds out the last `num_val` of the labelled nodes.

        Args:
            weight: weights of all labelled nodes, (M,), float64.
            num_val: number of validation nodes, the last ones.
            count: number of labels that each counts as, a factor of `weight`; None for 1.
        """
        final = weight.clone()
        final[len(final) - num_val :] = 0
        fold = torch.where(final.new_ones(len(final)).cumsum(0) > len(final) - num_val, 0, -1)
        count = torch.ones_like(weight) if count is None else count
        return cls(final.unsqueeze(0), final, fold, count, is_validation=True)

    @property
    def num_splits(self) -> int:
        """Number of splits."""
        return len(self.weight)

    def first(self, num_splits: int) -> HeldOut:
        """Return the first splits only; labels that others hold out are never held out then."""
        fold = torch.where(self.fold < num_splits, self.fold, -1)
        return HeldOut(self.weight[:num_splits], self.final, fold, self.count, self.is_validation)

    def pick(self, logits: Tensor) -> Tensor:  # (..., M, C)
        """Return for each label the logits of the split that holds it out.

        Args:
            logits: logits of the labelled nodes in the fit of each split, (..., S, M, C).
        """
        place = self.fold.clamp(min=0).view(1, -1, 1).expand(1, -1, logits.shape[-1])
        shape = (*logits.shape[:-3], 1, *logits.shape[-2:])
        return logits.gather(-3, place.expand(shape)).squeeze(-3)

    def counts(self, y: Tensor) -> Tensor:  # (M,), bool
        """Return which labels' losses count: held out once, and not the only one of their class."""
        return (self.fold >= 0) & (torch.bincount(y)[y] > 1)


def mean_loss(losses: Tensor, count: Tensor) -> Tensor:  # (..., V) and (V,) to (...)
    """Return means of losses, each of which counts as a number of labels."""
    return (losses * count).sum(-1) / count.sum()


def standard_error(losses: Tensor, count: Tensor) -> Tensor:  # (..., V) and (V,) to (...)
    """Return standard errors of :func:`mean_loss`: those of losses repeated `count` times.

    Labels that count less than once in the mean spread as `V` labels do.
    """
    total = count.sum()
    deviation = losses - mean_loss(losses, count).unsqueeze(-1)
    free = torch.maximum(total - 1, total * (1 - 1 / len(count)))
    return ((deviation.square() * count).sum(-1) / free / total).sqrt()
