"""Multinomial logistic regression of few labelled rows, all splits and penalties at once."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from jlgcn.closed_form.held_out import HeldOut, mean_loss

#: Ridge penalties, for rows of mean squared norm 1.
PENALTIES = (1.0, 0.2, 0.04, 0.008, 0.0016)

# The bias is hardly penalised: only so much that a class without any label has a finite one.
_BIAS_PENALTY = 1e-4

_MAX_STEPS = 200
_NUM_PAIRS = 6  # that L-BFGS remembers
# Steps end when the loss can fall by no more than this share of it: coarse for fits that are only
# compared, fine for the final one, which starts at the mean of these.
_COARSE = 1e-3
_FINE = 1e-6

_SMALLEST = 1e-30
# A pair of steps counts if the cosine between its two changes is at least this.
_MIN_CURVATURE = 1e-5

# Eigenvalues below this share of the largest are rounding errors.
_MIN_EIGENVALUE = 1e-9


class Logistic(NamedTuple):
    """A fitted classifier and its predictions of held-out labels.

    Attributes:
        weight: (D, C).
        bias: (C,).
        held_out: logits of every label in the fit that held it out, (M, C), float64.
        splits: weights and biases of the splits' fits, (S, D, C) and (S, C).
        penalty: the selected penalty.
    """

    weight: Tensor
    bias: Tensor
    held_out: Tensor
    splits: tuple[Tensor, Tensor]
    penalty: float


def fit_logistic(
    rows: Tensor,  # (M, D)
    y: Tensor,  # (M,), int64
    held_out: HeldOut,
    num_classes: int,
    *,
    penalties: tuple[float, ...] = PENALTIES,
    is_final: bool = True,
) -> Logistic:
    r"""Fit a multinomial logistic regression; held-out log-loss selects the penalty.

    .. math:: \min_{W, b} \sum_i w_i \, \ell(y_i, x_i W + b) + \frac{\lambda}{2} \|W\|^2

    The fits run in coordinates of the M rows, which span all that can be learned of D features.

    Args:
        rows: labelled rows, centred and of mean squared norm about 1.
        y: their classes.
        held_out: splits, and weights of the labels.
        num_classes: number of classes C.
        penalties: candidates for λ.
        is_final: solve the fit to all labels finely.

    Cost: an eigendecomposition of min(M, D) columns in float64; then, for each penalty, about 20
    steps of 4·S·M·min(M, D)·C FLOP for S splits, in float32.
    """
    space = Coordinates.of(rows, held_out.count)
    x = space.x
    num_splits, num_penalties = held_out.num_splits, len(penalties)
    weight = held_out.weight.repeat_interleave(num_penalties, 0)
    penalty = x.new_tensor(penalties).repeat(num_splits)
    w = solve(x, y, weight, penalty, num_classes, count=held_out.count).double()
    w = w.unflatten(0, (num_splits, num_penalties))
    logits = held_out.pick((x @ w).transpose(0, 1))  # (L, M, C)
    counts = held_out.counts(y)
    best = num_penalties // 2
    if bool(counts.any()):
        losses = cross_entropy(logits, y)[:, counts]
        best = int(mean_loss(losses, held_out.count[counts]).argmin())
    splits = w[:, best]
    start = splits.mean(0, keepdim=True)
    final = _fit_all(x, y, held_out, penalties[best], num_classes, start, is_final=is_final)
    weight, bias = space.in_features(final, rows.dtype)
    split_parameters = space.in_features(splits, rows.dtype)
    return Logistic(weight[0], bias[0], logits[best], split_parameters, penalties[best])


def refit_logistic(
    rows: Tensor,  # (M, D)
    y: Tensor,  # (M,), int64
    held_out: HeldOut,
    penalty: float,
    start: tuple[Tensor, Tensor],  # (D, C), (C,)
    *,
    is_final: bool,
) -> tuple[Tensor, Tensor]:  # (D, C), (C,)
    """Return weight and bias of the fit to all labels of :func:`fit_logistic`, from a start."""
    space = Coordinates.of(rows, held_out.count)
    w = space.of_features(*start).unsqueeze(0)
    w = _fit_all(space.x, y, held_out, penalty, w.shape[-1], w, is_final=is_final)
    weight, bias = space.in_features(w, rows.dtype)
    return weight[0], bias[0]


def _fit_all(
    x: Tensor,
    y: Tensor,
    held_out: HeldOut,
    penalty: float,
    num_classes: int,
    start: Tensor,
    *,
    is_final: bool,
) -> Tensor:  # (1, K + 1, C)
    weight, shrinkage = held_out.final.unsqueeze(0), x.new_tensor(penalty)
    w = solve(x, y, weight, shrinkage, num_classes, start, count=held_out.count, is_final=is_final)
    return w.double()


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:  # (..., M)
    """Return log-losses of logits, (..., M, C), whose leading dimensions are alternatives."""
    index = y.view(*[1] * (logits.dim() - 2), -1, 1).expand(*logits.shape[:-1], 1)
    return -logits.log_softmax(-1).gather(-1, index).squeeze(-1)


class Coordinates(NamedTuple):
    """Orthogonal coordinates of rows, for which XᵀNX is diagonal; N has the rows' counts.

    Attributes:
        x: the rows, centred and rotated to the eigenvectors of XᵀNX; the last column has ones,
            (M, K + 1), float64.
        basis: directions of the coordinates, (D, K), float64.
        mean: what rows are centred by, (D,), float64.
    """

    x: Tensor
    basis: Tensor
    mean: Tensor

    @classmethod
    def of(cls, rows: Tensor, count: Tensor) -> Coordinates:
        """Return coordinates of rows, (M, D), by the smaller of XᵀNX and √N XXᵀ √N.

        Args:
            rows: rows.
            count: number of rows that each counts as, (M,).
        """
        x = rows.double()
        mean = count @ x / count.sum()
        x = x - mean
        scaled = x * count.sqrt().unsqueeze(-1)
        is_wide = x.shape[0] < x.shape[1]
        values, vectors = torch.linalg.eigh(scaled @ scaled.mT if is_wide else scaled.mT @ scaled)
        is_kept = values > _MIN_EIGENVALUE * values[-1].clamp(min=1e-30)
        values, vectors = values[is_kept], vectors[:, is_kept]
        basis = scaled.mT @ (vectors * values.rsqrt()) if is_wide else vectors
        return cls(functional.pad(x @ basis, (0, 1), value=1.0), basis, mean)

    def of_features(self, weight: Tensor, bias: Tensor) -> Tensor:  # (K + 1, C), float64
        """Return weights and bias of features, (D, C) and (C,), as those of the coordinates."""
        weight = weight.double()
        bias = bias.double() + self.mean @ weight
        return torch.cat([self.basis.mT @ weight, bias.unsqueeze(0)])

    def in_features(self, w: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return weights and biases of features, (S, D, C) and (S, C), from (S, K + 1, C)."""
        weight = self.basis @ w[:, :-1]
        return weight.to(dtype), (w[:, -1] - self.mean @ weight).to(dtype)


def solve(
    x: Tensor,  # (M, K + 1) or (B, M, K + 1)
    y: Tensor,  # (M,), int64
    weight: Tensor,  # (B, M)
    penalty: Tensor,  # (B,) or ()
    num_classes: int,
    start: Tensor | None = None,  # (B, K + 1, C)
    *,
    count: Tensor,  # (M,)
    is_final: bool = False,
) -> Tensor:  # (B, K + 1, C)
    """Return weights of B fits on :class:`Coordinates` of rows with these counts, the biases last.

    L-BFGS, all fits at once (`Liu & Nocedal, 1989 <https://doi.org/10.1007/BF01589116>`_). Half of
    XᵀNX bounds the Hessian (`Böhning, 1992 <https://doi.org/10.1007/BF00048682>`_) and is diagonal
    in these coordinates, so it preconditions at no cost. Final fits are solved finely, in float64;
    those that are only compared coarsely, in float32.
    """
    x, tolerance = (x.double(), _FINE) if is_final else (x.float(), _COARSE)
    if start is None:
        start = x.new_zeros(len(weight), x.shape[-1], num_classes)
    shape = start.shape
    shrinkage = penalty.to(x).expand(len(weight)).unsqueeze(-1).repeat(1, x.shape[-1])
    shrinkage[:, -1] = _BIAS_PENALTY
    largest = (weight / count).amax().to(x)
    weight, count = weight.to(x).unsqueeze(-1), count.to(x).unsqueeze(-1)
    step = 1 / (0.5 * largest * (count * x.square()).sum(-2) + shrinkage)
    shrinkage, step = (each.repeat_interleave(num_classes, -1) for each in (shrinkage, step))
    target = functional.one_hot(y, num_classes).to(x)
    fit = _Fits(x, target, weight, shrinkage)
    w = start.to(x).flatten(1)  # (B, P), as all that follows
    found, active = w.clone(), torch.arange(len(weight), device=x.device)
    loss, gradient = fit.evaluate(w)
    pairs: list[_Pair] = []
    for _ in range(_MAX_STEPS):
        change = _direction(gradient, step, pairs)
        # Half of gᵀH⁻¹g, the Newton decrement, estimates how far the loss can still fall.
        is_open = (_dot(gradient, change) > 2 * tolerance * loss).flatten()
        if 2 * int(is_open.sum()) <= len(w):  # go on with those that have not converged
            found[active] = w
            if not bool(is_open.any()):
                return found.view(shape)
            w, loss, gradient, step, change, active = (
                each[is_open] for each in (w, loss, gradient, step, change, active)
            )
            fit = fit.some(is_open)
            pairs = [_Pair(*(each[is_open] for each in pair)) for pair in pairs]
        new = w - change
        new_loss, new_gradient = fit.evaluate(new)
        if bool((is_worse := ~(new_loss <= loss)).any()):  # or NaN
            # A step along the scaled gradient never overshoots, as the curvature is a bound.
            new = torch.where(is_worse, w - step * gradient, new)
            new_loss, new_gradient = fit.evaluate(new)
        moved, turned = new - w, new_gradient - gradient
        pairs = [*pairs[1 - _NUM_PAIRS :], _Pair.of(moved, turned)]
        w, loss, gradient = new, new_loss, new_gradient
    found[active] = w
    return found.view(shape)


class _Pair(NamedTuple):
    """A step of L-BFGS: change of weights, change of gradients, the inverse of their product.

    The inverse is 0, which leaves the pair out, where a fit stood still or rounding hides the
    curvature. It is positive otherwise, since the loss is convex.
    """

    moved: Tensor
    turned: Tensor
    inverse: Tensor

    @classmethod
    def of(cls, moved: Tensor, turned: Tensor) -> _Pair:
        product = _dot(moved, turned)
        smallest = _MIN_CURVATURE * (_dot(moved, moved) * _dot(turned, turned)).sqrt()
        is_curved = (product > smallest) & (product > _SMALLEST)
        return cls(moved, turned, torch.where(is_curved, product, torch.inf).reciprocal())


class _Fits(NamedTuple):
    """Penalised log-losses of several fits on the same rows, of flat parameters."""

    x: Tensor  # (M, K + 1) or (B, M, K + 1)
    target: Tensor  # (M, C)
    weight: Tensor  # (B, M, 1)
    shrinkage: Tensor  # (B, P)

    def some(self, chosen: Tensor) -> _Fits:
        """Return some of the fits, by a mask, (B,)."""
        x = self.x if self.x.dim() == 2 else self.x[chosen]
        return _Fits(x, self.target, self.weight[chosen], self.shrinkage[chosen])

    def evaluate(self, w: Tensor) -> tuple[Tensor, Tensor]:  # (B, 1), (B, P)
        """Return losses and gradients of parameters, (B, P)."""
        parameters = w.unflatten(-1, (-1, self.target.shape[-1]))
        log_probability = (self.x @ parameters).log_softmax(-1)
        loss = -(self.weight * (log_probability * self.target)).sum((-2, -1)).unsqueeze(-1)
        loss = loss + 0.5 * _dot(self.shrinkage * w, w)
        error = log_probability.exp_().sub_(self.target).mul_(self.weight)
        return loss, (self.x.mT @ error).flatten(1).addcmul_(self.shrinkage, w)


def _direction(gradient: Tensor, step: Tensor, pairs: list[_Pair]) -> Tensor:  # (B, P)
    """Return the inverse Hessian times the gradient, by the two-loop recursion of L-BFGS."""
    found = gradient.clone()
    shares = []
    for moved, turned, inverse in reversed(pairs):
        share = _dot(moved, found) * inverse
        shares.append(share)
        found.addcmul_(turned, share, value=-1)
    found *= step
    if pairs:
        # The bound of the Hessian is far above it where classes are told apart: the last step says
        # how far.
        _, turned, inverse = pairs[-1]
        bound = _dot(step * turned, turned) * inverse
        found /= torch.where(bound > 0, bound, 1.0)
    for (moved, turned, inverse), share in zip(pairs, reversed(shares), strict=True):
        found.addcmul_(moved, share - _dot(turned, found) * inverse)
    return found


def _dot(a: Tensor, b: Tensor) -> Tensor:  # (B, 1)
    return (a * b).sum(-1, keepdim=True)
