"""Features made comparable before anything is learned, and new rows in the same way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from jlgcn.ops import SparseFeatures

Kind = Literal["auto", "words", "table", "none"]
KINDS: tuple[Kind, ...] = ("auto", "words", "table", "none")

# Dense features are read as words if there are this many, none is negative, and this share is 0.
# Pictures and other tables may have as many zeros, depending on the rows; few have as many columns.
_NUM_WORDS = 100
_SHARE_OF_ZEROS = 0.5

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
    has mean 0 and variance 1, and constant ones become 0.

    Attributes:
        kind: "words", "table" or "none".
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
                more, none is negative and half of them are 0; others for a table.

        Cost: two passes over the features.

        Example:
            >>> scaler = FeatureScaler.fit(torch.tensor([[0.0, 10.0], [2.0, 30.0]]))
            >>> scaler(torch.tensor([[1.0, 20.0]]))
            tensor([[0., 0.]])
        """
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, but it is {kind!r}")
        if kind == "auto":
            kind = "words" if _looks_like_words(x) else "table"
        num_rows, num_columns = x.shape
        zeros, ones = (torch.full((num_columns,), v, dtype=x.dtype) for v in (0.0, 1.0))
        if kind == "words":
            entries = x.value if isinstance(x, SparseFeatures) else x
            is_count = bool((entries == entries.round()).all())
            if not is_count:
                return cls(kind, zeros, ones, power=WEIGHT_POWER)
            num_with = x.crow_t.diff() if isinstance(x, SparseFeatures) else (x != 0).sum(0)
            rarity = (num_rows / (num_with + 1)).to(x.dtype).log()
            return cls(kind, zeros, rarity.clamp(min=0).sqrt(), True)
        if kind == "none":
            return cls(kind, zeros, ones)
        if isinstance(x, SparseFeatures):
            raise ValueError('sparse features cannot be shifted; use kind="words" or "none"')
        mean, deviation = x.mean(0), x.std(0, correction=0)
        # What rounding alone makes of equal numbers; dates in seconds vary by far more.
        is_constant = deviation <= 10 * torch.finfo(x.dtype).eps * x.abs().amax(0)
        return cls(kind, mean, torch.where(is_constant, 0, 1 / deviation.clamp(min=1e-30)))

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
            sparse = sparse.scaled(torch.ones(x.shape[0], dtype=x.dtype), self.scale)
            length = sparse.square_norms().sqrt()
            return sparse.scaled(1 / length.clamp(min=1e-30), torch.ones_like(self.scale))
        if self.kind == "none":
            return x
        assert isinstance(x, Tensor)
        return (x - self.shift) * self.scale


def _looks_like_words(x: Tensor | SparseFeatures) -> bool:
    if isinstance(x, SparseFeatures):
        return True
    if x.shape[1] < _NUM_WORDS or not bool((x >= 0).all()):
        return False
    return float((x == 0).float().mean()) >= _SHARE_OF_ZEROS
