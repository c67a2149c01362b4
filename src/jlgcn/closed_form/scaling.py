"""Feature scaling: tf-idf for counts, standardisation for tables, none for embeddings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from jlgcn.ops import SparseFeatures

Kind = Literal["auto", "words", "table", "embeddings", "none"]
KINDS: tuple[Kind, ...] = ("auto", "words", "table", "embeddings", "none")

# scaler="auto" takes dense features for counts if there are this many columns, no number is
# negative, and at least this share is 0. Images have as many zeros; few have as many columns.
_MIN_COUNT_COLUMNS = 100
_MIN_SHARE_OF_ZEROS = 0.5

# It takes them for embeddings if there are this many columns, some number is negative, and either
# all rows have unit norm, up to this tolerance, or columns are those of an SVD or PCA: orthogonal
# (root mean square cosine at most this), and of decreasing norm (rank correlation at least this).
# Of 26 tables of measurements, the nearest have 0.15 and 0.83 (evaluation/studies/scaler_kinds.py).
_MIN_EMBEDDING_COLUMNS = 8
_UNIT_NORM_TOLERANCE = 0.01
_MAX_COSINE = 0.1
_MIN_RANK_CORRELATION = 0.9
_NUM_SAMPLED_ROWS = 1000

# Sums of squares of numbers with binary exponents between these neither overflow nor underflow.
_SAFE_EXPONENTS = (-32, 40)

#: Exponent of weights that are not counts, see :class:`FeatureScaler`.
WEIGHT_POWER = 0.5


@dataclass(frozen=True, eq=False)
class FeatureScaler:
    r"""Scales features, with statistics of the rows that it was fitted to.

    "words" are counts or weights of sparse features, such as bags of words. Counts become

    .. math:: \log_2(1 + c_{ik}) \sqrt{\log(N / (n_k + 1))}

    with n_k the number of rows that have word k: a tf-idf with the square root of the usual inverse
    document frequency, because the full one lets a few rare words dominate distances. Fractional
    weights are taken for tf-idf, and their square root is used for the same reason. Rows are
    then scaled to unit norm.

    "table" standardises columns to mean 0 and variance 1; constant columns become 0. "embeddings",
    vectors of an encoder, SVD or PCA, are not scaled: the variance of a direction is its
    importance, and standardising would amplify the last ones, which are mostly noise. "none" does
    not scale either.

    Numbers whose squares would overflow or underflow are multiplied by a power of two first, which
    is exact.

    Attributes:
        kind: "words", "table", "embeddings" or "none".
        shift: subtracted from each column, (in_channels,); 0 unless kind is "table".
        scale: factor of each column, (in_channels,).
        is_count: whether "words" are counts.
        power: exponent of "words" that are not counts.
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
        """Return a scaler with the statistics of some rows.

        Args:
            x: features, (N, in_channels).
            kind (str, default "auto"): see the class. "auto" takes sparse features for words, and
                dense ones with 100 or more columns of which no number is negative and half are 0.
                It takes 8 or more columns with negative numbers for embeddings if rows have unit
                norm, or if columns are orthogonal and of decreasing norm. All else is a table.

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
            kind = guess_kind(x)
        num_rows, num_columns = x.shape
        entries = x.value if isinstance(x, SparseFeatures) else x
        zeros, ones = entries.new_zeros(num_columns), entries.new_ones(num_columns)
        if kind == "words":
            # Beyond the range of counts, all floating-point numbers are integers.
            is_in_range = bool(_safe_factor(_largest(entries)) == 1)
            is_count = is_in_range and bool((entries == entries.round()).all())
            if not is_count:
                return cls(kind, zeros, ones, power=WEIGHT_POWER)
            num_with = x.crow_t.diff() if isinstance(x, SparseFeatures) else (x != 0).sum(0)
            return cls(kind, zeros, _rarity(num_rows, num_with, zeros), True)
        if kind in ("embeddings", "none"):
            return cls(kind, zeros, ones * _safe_factor(_largest(entries)))
        if isinstance(x, SparseFeatures):
            raise ValueError(
                "sparse features cannot be standardised without filling in their zeros; use "
                'kind="words", "embeddings" or "none"'
            )
        largest = x.abs().amax(0)
        factor = _safe_factor(largest)
        safe = x if bool((factor == 1).all()) else x * factor
        return cls._of_moments(safe.mean(0), safe.std(0, correction=0), largest, factor)

    @classmethod
    def of_statistics(cls, found: ColumnStatistics, kind: Kind) -> FeatureScaler:
        """Return the scaler of rows that are seen part by part; `kind` is not "auto"."""
        zeros, ones = torch.zeros_like(found.largest), torch.ones_like(found.largest)
        factor = _safe_factor(found.largest.amax())
        if kind == "words":
            if not (found.is_whole and bool(factor == 1)):
                return cls(kind, zeros, ones, power=WEIGHT_POWER)
            return cls(kind, zeros, _rarity(found.num_rows, found.num_nonzero, zeros), True)
        if kind in ("embeddings", "none"):
            return cls(kind, zeros, ones * factor)
        factor = _safe_factor(found.largest)
        deviation = (found.square / found.num_rows).sqrt()
        mean, deviation = ((factor * each).to(zeros) for each in (found.mean, deviation))
        return cls._of_moments(mean, deviation, found.largest, factor)

    @classmethod
    def _of_moments(
        cls, mean: Tensor, deviation: Tensor, largest: Tensor, factor: Tensor
    ) -> FeatureScaler:
        """Return the scaler of a table from moments of its columns times a factor."""
        # The rounding error of equal numbers; dates in seconds vary by far more.
        is_constant = deviation <= 10 * torch.finfo(mean.dtype).eps * largest * factor
        scale = torch.where(is_constant, 0, factor / deviation)
        if not bool(scale.isfinite().all()):
            column = int((~scale.isfinite()).nonzero()[0])
            raise ValueError(
                f"numbers of column {column} must have inverses that {mean.dtype} can hold, but "
                f"the largest is {float(largest[column]):.3g}; multiply them by a constant, "
                "say 1e20"
            )
        return cls("table", mean / factor, scale)

    def __repr__(self) -> str:
        return f"FeatureScaler({self.kind}, {len(self.scale)} features)"

    def __call__(self, x: Tensor | SparseFeatures) -> Tensor | SparseFeatures:
        """Return scaled rows, (N, in_channels); those of kind "words" are sparse."""
        if x.shape[1] != len(self.scale):
            raise ValueError(
                f"x has {x.shape[1]} features but the scaler was fitted to {len(self.scale)}; pass "
                "the same columns"
            )
        if self.kind == "words":
            return self._scale_words(x)
        if self.kind == "table":
            assert isinstance(x, Tensor)
            return (x - self.shift) * self.scale
        if bool((self.scale == 1).all()):
            return x
        if isinstance(x, SparseFeatures):
            return x.scaled(x.value.new_ones(x.shape[0]), self.scale)
        return x * self.scale

    def _scale_words(self, x: Tensor | SparseFeatures) -> SparseFeatures:
        sparse = x if isinstance(x, SparseFeatures) else SparseFeatures.from_dense(x)
        if sparse.value.numel() and float(sparse.value.min()) < 0:
            raise ValueError(
                "counts and weights of words must not be negative, but x has negative numbers; use "
                'the scaler "none", or "table" for dense features'
            )
        if self.is_count:
            sparse = sparse.map(lambda count: (1 + count).log2())
        elif self.power != 1:
            sparse = sparse.map(lambda weight: weight**self.power)
        row = torch.repeat_interleave(sparse.crow.diff())
        largest = sparse.value.new_zeros(x.shape[0]).scatter_reduce(0, row, sparse.value, "amax")
        sparse = sparse.scaled(_safe_factor(largest), self.scale)
        if not bool(sparse.value.all()):
            # Words that all rows have weigh nothing. A row of such words alone is empty, and
            # empty rows are nobody's neighbours.
            sparse = SparseFeatures.from_scipy(sparse.to_scipy()).to(x.device)
        norm = sparse.square_norms().sqrt()
        return sparse.scaled(1 / norm.clamp(min=1e-30), torch.ones_like(self.scale))


class ColumnStatistics(NamedTuple):
    """Statistics of columns, which those of parts of the rows add up to.

    Attributes:
        num_rows: number of rows.
        largest: largest magnitude of each column.
        num_nonzero: number of its entries that are not 0.
        mean: its mean, float64.
        square: sum of its squared deviations from the mean, float64.
        is_whole: whether all numbers are whole.
    """

    num_rows: int
    largest: Tensor
    num_nonzero: Tensor
    mean: Tensor
    square: Tensor
    is_whole: bool

    @classmethod
    def of(cls, x: Tensor) -> ColumnStatistics:
        """Return the statistics of rows, (N, in_channels)."""
        wide = x.double()
        mean = wide.mean(0)
        return cls(
            num_rows=len(x),
            largest=x.abs().amax(0),
            num_nonzero=(x != 0).sum(0),
            mean=mean,
            square=(wide - mean).square().sum(0),
            is_whole=bool((x == x.round()).all()),
        )

    def merge(self, other: ColumnStatistics) -> ColumnStatistics:
        """Return the statistics of the rows of both.

        `Chan et al., 1983 <https://doi.org/10.1080/00031305.1983.10483115>`_.
        """
        num_rows = self.num_rows + other.num_rows
        difference, share = other.mean - self.mean, other.num_rows / num_rows
        return ColumnStatistics(
            num_rows=num_rows,
            largest=torch.maximum(self.largest, other.largest),
            num_nonzero=self.num_nonzero + other.num_nonzero,
            mean=self.mean + share * difference,
            square=self.square + other.square + self.num_rows * share * difference.square(),
            is_whole=self.is_whole and other.is_whole,
        )


def _rarity(num_rows: int, num_with: Tensor, like: Tensor) -> Tensor:
    """Return √idf of words that occur in some of the rows."""
    return (num_rows / (num_with + 1)).to(like.dtype).log().clamp(min=0).sqrt()


def guess_kind(x: Tensor | SparseFeatures) -> Kind:
    """Return the kind of features that "auto" stands for, see :meth:`FeatureScaler.fit`."""
    if isinstance(x, SparseFeatures):
        return "words"
    num_columns = x.shape[1]
    if bool((x >= 0).all()):
        is_sparse = float((x == 0).float().mean()) >= _MIN_SHARE_OF_ZEROS
        return "words" if num_columns >= _MIN_COUNT_COLUMNS and is_sparse else "table"
    if num_columns < _MIN_EMBEDDING_COLUMNS:
        return "table"
    norm = x.norm(dim=-1)
    if bool((((norm - 1).abs() <= _UNIT_NORM_TOLERANCE) | (norm == 0)).all()):
        return "embeddings"
    return "embeddings" if _are_principal_components(x) else "table"


def _are_principal_components(x: Tensor) -> bool:
    """Return whether columns are orthogonal and of decreasing norm, as those of SVD and PCA."""
    rows = x[:: max(1, x.shape[0] // _NUM_SAMPLED_ROWS)]
    rows = (rows * _safe_factor(_largest(rows))).double()
    norm = rows.norm(dim=0)
    rows = rows / norm.clamp(min=1e-300)
    # ‖XᵀX‖² = ‖XXᵀ‖²: the sum of squared cosines by the smaller Gram matrix.
    is_wide = rows.shape[0] < rows.shape[1]
    num_columns = len(norm)
    squares = (rows @ rows.mT if is_wide else rows.mT @ rows).square().sum() - num_columns
    cosine = float(squares.clamp(min=0) / (num_columns * (num_columns - 1))) ** 0.5
    order = torch.arange(num_columns, dtype=torch.float64, device=x.device)
    rank = norm.argsort(descending=True, stable=True).argsort().double()
    correlation = float(torch.corrcoef(torch.stack([rank, order]))[0, 1])
    return cosine <= _MAX_COSINE and correlation >= _MIN_RANK_CORRELATION


def _largest(entries: Tensor) -> Tensor:  # ()
    return entries.abs().amax() if entries.numel() else entries.new_zeros(())


def _safe_factor(largest: Tensor) -> Tensor:
    """Return 1, or the power of two that brings magnitudes with unsafe squares near 1.

    Args:
        largest: magnitudes, of any shape.
    """
    exponent = np.frexp(largest.cpu().numpy())[1]
    low, high = _SAFE_EXPONENTS
    bound = int(math.log2(torch.finfo(largest.dtype).max)) - 3
    is_safe = (low <= exponent) & (exponent <= high)
    power = np.where(is_safe, 0, -exponent.clip(-bound, bound))
    # torch.ldexp would compute the power in float32.
    return torch.as_tensor(np.ldexp(1.0, power)).to(largest)
