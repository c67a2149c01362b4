"""Features made comparable before anything is learned, and new rows in the same way."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from jlgcn.ops import SparseFeatures

Kind = Literal["auto", "words", "table", "embeddings", "none"]
KINDS: tuple[Kind, ...] = ("auto", "words", "table", "embeddings", "none")

# Dense features are read as words if there are this many, none is negative, and this share is 0.
# Pictures and other tables may have as many zeros, depending on the rows; few have as many columns.
_NUM_WORDS = 100
_SHARE_OF_ZEROS = 0.5

# Dense features are read as embeddings if there are this many, some negative, and either all rows
# have length 1, to this share, or columns are as SVD and PCA give them: orthogonal, the root mean
# square of their cosines at most this, and ever shorter, their rank correlation at least this.
# Of 26 tables that are none, the nearest have 0.15 and 0.83 (evaluation/studies/scaler_kinds.py).
_NUM_EMBEDDED = 8
_UNIT_LENGTH = 0.01
_ORTHOGONAL = 0.1
_EVER_SHORTER = 0.9
_NUM_ROWS_LOOKED_AT = 1000

# Numbers whose binary exponents lie between these are squared and added up without a thought.
_ORDINARY = (-32, 40)

#: What weights of words that are not counted are raised to.
WEIGHT_POWER = 0.5


@dataclass(frozen=True, eq=False)
class FeatureScaler:
    r"""How features are scaled, learned from some rows and applied to any.

    "words" are counts or weights of words, or of anything that most rows do not have. Counts become

    .. math:: \log_2(1 + c_{ik}) \sqrt{\log(N / (n_k + 1))}

    with n_k the number of rows that have word k. Numbers that are not whole have been weighted
    already, as a rule by the logarithm of rarity itself, which lets a few rare words decide which
    rows are near; their square root stands for them, so that rarity counts as above. Then rows are
    divided by their lengths. "table" are measurements: columns are shifted and divided so that each
    has mean 0 and variance 1, and constant ones become 0. "embeddings" are vectors of an encoder,
    of SVD or of PCA, and stay as they are: the variance of a direction says how much it matters,
    and equal variances would make the last directions, which are mostly noise, the loudest. "none"
    is for anything else that is scaled already.

    Numbers so large or small that their squares overflow or vanish are multiplied by a power of two
    first, which is exact.

    Attributes:
        kind: "words", "table", "embeddings" or "none".
        shift: subtracted from each column, (in_channels,); 0 for words.
        scale: each column is multiplied by it, (in_channels,).
        is_count: whether words are counted.
        power: weights of words that are not counted are raised to it.
    """

    kind: Kind
    shift: Tensor
    scale: Tensor
    is_count: bool = False
    power: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, but it is {self.kind!r}")
        if not isinstance(self.power, int | float) or not 0 < self.power <= 1:
            raise ValueError(f"power must be above 0 and at most 1, but it is {self.power!r}")

    @classmethod
    def fit(cls, x: Tensor | SparseFeatures, kind: Kind = "auto") -> FeatureScaler:
        """Learn from rows how to scale.

        Args:
            x: features, (N, in_channels).
            kind: "auto" takes sparse features for words, and dense ones if there are a hundred or
                more, none is negative and half of them are 0. It takes eight or more features, some
                of them negative, for embeddings if all rows have length 1, or if columns are
                orthogonal and ever shorter; others for a table.

        Cost: four passes over the features, and in_channels² FLOP for each of a thousand rows.

        Example:
            >>> scaler = FeatureScaler.fit(torch.tensor([[0.0, 10.0], [2.0, 30.0]]))
            >>> scaler
            FeatureScaler(table, 2 features)
            >>> scaler(torch.tensor([[1.0, 20.0]]))
            tensor([[0., 0.]])
        """
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, but it is {kind!r}")
        if kind == "auto":
            kind = _kind_of(x)
        num_rows, num_columns = x.shape
        zeros, ones = (torch.full((num_columns,), v, dtype=x.dtype) for v in (0.0, 1.0))
        entries = x.value if isinstance(x, SparseFeatures) else x
        if kind == "words":
            # Far above what anybody counts, all numbers are whole.
            is_countable = bool(_unit(_largest(entries)) == 1)
            is_count = is_countable and bool((entries == entries.round()).all())
            if not is_count:
                return cls(kind, zeros, ones, power=WEIGHT_POWER)
            num_with = x.crow_t.diff() if isinstance(x, SparseFeatures) else (x != 0).sum(0)
            rarity = (num_rows / (num_with + 1)).to(x.dtype).log()
            return cls(kind, zeros, rarity.clamp(min=0).sqrt(), True)
        if kind in ("embeddings", "none"):
            return cls(kind, zeros, ones * _unit(_largest(entries)))
        if isinstance(x, SparseFeatures):
            raise ValueError(
                'sparse features cannot be shifted; use kind="words", "embeddings" or "none"'
            )
        largest = x.abs().amax(0)
        unit = _unit(largest)
        measured = x if bool((unit == 1).all()) else x * unit
        mean, deviation = measured.mean(0), measured.std(0, correction=0)
        # What rounding alone makes of equal numbers; dates in seconds vary by far more.
        is_constant = deviation <= 10 * torch.finfo(x.dtype).eps * largest * unit
        scale = torch.where(is_constant, 0, unit / deviation)
        if not bool(scale.isfinite().all()):
            column = int((~scale.isfinite()).nonzero()[0])
            raise ValueError(
                f"numbers of column {column} must have inverses that {x.dtype} can hold, but the "
                f"largest is {float(largest[column]):.3g}; multiply them by a constant, say 1e20"
            )
        return cls(kind, mean / unit, scale)

    def __repr__(self) -> str:
        return f"FeatureScaler({self.kind}, {len(self.scale)} features)"

    def __call__(self, x: Tensor | SparseFeatures) -> Tensor | SparseFeatures:
        """Return rows scaled; words come back sparse."""
        if x.shape[1] != len(self.scale):
            raise ValueError(
                f"x has {x.shape[1]} features but the scaler was made for {len(self.scale)}; pass "
                "the same columns"
            )
        if self.kind == "words":
            sparse = x if isinstance(x, SparseFeatures) else SparseFeatures.from_dense(x)
            if sparse.value.numel() and float(sparse.value.min()) < 0:
                raise ValueError(
                    "words cannot be there fewer than 0 times, but x has negative numbers; use "
                    'the scaler "none", or "table" for dense features'
                )
            if self.is_count:
                sparse = sparse.map(lambda count: (1 + count).log2())
            elif self.power != 1:
                sparse = sparse.map(lambda weight: weight**self.power)
            row = torch.repeat_interleave(sparse.crow.diff())
            largest = sparse.value.new_zeros(x.shape[0]).scatter_reduce(
                0, row, sparse.value, "amax"
            )
            sparse = sparse.scaled(_unit(largest), self.scale)
            length = sparse.square_norms().sqrt()
            return sparse.scaled(1 / length.clamp(min=1e-30), torch.ones_like(self.scale))
        if self.kind != "table":
            if bool((self.scale == 1).all()):
                return x
            if isinstance(x, SparseFeatures):
                return x.scaled(torch.ones(x.shape[0], dtype=x.dtype), self.scale)
            return x * self.scale
        assert isinstance(x, Tensor)
        return (x - self.shift) * self.scale


def _kind_of(x: Tensor | SparseFeatures) -> Kind:
    """Return what features look like; see :meth:`FeatureScaler.fit`."""
    if isinstance(x, SparseFeatures):
        return "words"
    num_columns = x.shape[1]
    if bool((x >= 0).all()):
        are_zeros = float((x == 0).float().mean()) >= _SHARE_OF_ZEROS
        return "words" if num_columns >= _NUM_WORDS and are_zeros else "table"
    if num_columns < _NUM_EMBEDDED:
        return "table"
    length = x.norm(dim=-1)
    if bool((((length - 1).abs() <= _UNIT_LENGTH) | (length == 0)).all()):
        return "embeddings"
    return "embeddings" if _are_principal(x) else "table"


def _are_principal(x: Tensor) -> bool:
    """Return whether columns are orthogonal, and ever shorter, as those of SVD and PCA."""
    rows = x[:: max(1, x.shape[0] // _NUM_ROWS_LOOKED_AT)]
    rows = (rows * _unit(_largest(rows))).double()
    length = rows.norm(dim=0)
    rows = rows / length.clamp(min=1e-300)
    # The squares of all cosines, found where products are fewer: of columns or of rows.
    is_wide = rows.shape[0] < rows.shape[1]
    num_columns = len(length)
    squares = (rows @ rows.mT if is_wide else rows.mT @ rows).square().sum() - num_columns
    cosine = float(squares.clamp(min=0) / (num_columns * (num_columns - 1))) ** 0.5
    order = torch.arange(num_columns, dtype=torch.float64)
    rank = length.argsort(descending=True, stable=True).argsort().double()
    return cosine <= _ORTHOGONAL and float(torch.corrcoef(torch.stack([rank, order]))[0, 1]) >= (
        _EVER_SHORTER
    )


def _largest(entries: Tensor) -> Tensor:  # ()
    return entries.abs().amax() if entries.numel() else entries.new_zeros(())


def _unit(largest: Tensor) -> Tensor:
    """Return 1 or, for numbers that cannot be squared, the power of two that brings them near 1.

    Args:
        largest: magnitudes, of any shape.
    """
    exponent = np.frexp(largest.cpu().numpy())[1]
    low, high = _ORDINARY
    bound = int(math.log2(torch.finfo(largest.dtype).max)) - 3
    is_ordinary = (low <= exponent) & (exponent <= high)
    power = np.where(is_ordinary, 0, -exponent.clip(-bound, bound))
    # Not torch.ldexp, which makes the power in float32.
    return torch.as_tensor(np.ldexp(1.0, power)).to(largest)
