# ruff: noqa: D102 (the union describes the members of its classes)
"""What is learned of each column of a table, and the features that it becomes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from jlgcn.io.frames import Column, Dates, Numbers, Unreadable, Words

#: How numbers are written as text: 1,234.5 or 1.234,5.
Style = Literal["point", "comma"]
STYLES: tuple[Style, ...] = ("point", "comma")
#: How text is cut into terms: runs of 3 and 4 letters within words, or words.
Terms = Literal["letters", "words"]
TERMS: tuple[Terms, ...] = ("letters", "words")

# Scaled numbers are squashed smoothly into ± this, as by skrub's SquashingScaler.
_LARGEST = 3.0
_CLIPPED = 1e6  # so that squares do not overflow
_DAY = 86_400.0
#: Length and start of periods in days, by the name of the feature; weeks start on a Monday.
PERIODS = {"season": (365.2425, 0.0), "weekday": (7.0, 4.0), "hour": (1.0, 0.0)}

_NUMBER = re.compile(
    r"[-+]?[$€£]?\s?[-+]?(\d{1,3}(,\d{3})+|\d+|(?=\.\d))(\.\d*)?([eE][-+]?\d{1,3})?\s?[%$€£]?"
)
_UNITS = str.maketrans("", "", "$€£% ,")
_SWAPPED = str.maketrans(",.", ".,")


@dataclass(frozen=True)
class Dropped:
    """A column without features, and why."""

    name: str
    why: str

    @property
    def feature_names(self) -> list[str]:
        return []

    def features(self, column: Column) -> NDArray[np.float32]:
        raise AssertionError("a dropped column is not read")


@dataclass(frozen=True)
class NumberColumn:
    r"""Numbers, scaled by their quartiles and squashed as by skrub's SquashingScaler.

    .. math:: z / \sqrt{1 + z^2 / 9}, \quad z = (x - \text{center}) \cdot \text{scale}

    A missing number is 0, and has its own feature.
    """

    name: str
    center: float
    scale: float
    style: Style
    has_gaps: bool

    @property
    def feature_names(self) -> list[str]:
        return [self.name, *_missing(self.name, self.has_gaps)]

    def features(self, column: Column) -> NDArray[np.float32]:
        if isinstance(column, Words) and set(column.words) <= set(_TRUTHS):
            # Booleans, where fit saw 0 and 1.
            truths = np.array([_TRUTHS[word] for word in column.words])
            column = Numbers(column.spread(truths, np.nan))
        return _squashed(as_numbers(column, self.style), self.center, self.scale, self.has_gaps)


@dataclass(frozen=True)
class DateColumn:
    """Dates: time, scaled as numbers are, and the sine and cosine of each period."""

    name: str
    center: float
    scale: float
    date_formats: list[str]
    periods: list[str]
    has_gaps: bool

    @property
    def feature_names(self) -> list[str]:
        waves = [f"{self.name} {period} {wave}" for period in self.periods for wave in _WAVES]
        return [self.name, *_missing(self.name, self.has_gaps), *waves]

    def features(self, column: Column) -> NDArray[np.float32]:
        seconds = as_dates(column, self.date_formats)
        waves = []
        for name in self.periods:
            length, start = PERIODS[name]
            angle = 2 * np.pi * np.nan_to_num(seconds / _DAY - start, nan=0.0) / length
            is_known = ~np.isnan(seconds)
            waves += [np.sin(angle) * is_known, np.cos(angle) * is_known]
        time = _squashed(seconds, self.center, self.scale, self.has_gaps)
        return np.column_stack([time, *waves]).astype(np.float32)


@dataclass(frozen=True)
class CategoryColumn:
    """Categories, one-hot; others than those of `words` are 0 everywhere."""

    name: str
    words: list[str]
    has_gaps: bool

    @property
    def feature_names(self) -> list[str]:
        return [*(f"{self.name}={w}" for w in self.words), *_missing(self.name, self.has_gaps)]

    def features(self, column: Column) -> NDArray[np.float32]:
        found = as_words(column)
        if isinstance(column, Numbers) and set(self.words) <= set(_TRUTHS):
            # 0 and 1, where fit saw booleans.
            names = {str(int(number)): word for word, number in _TRUTHS.items()}
            found = found._replace(words=[names.get(word, word) for word in found.words])
        place = {word: index for index, word in enumerate(self.words)}
        one_hot = np.zeros((len(found.words), len(place)), dtype=np.float32)
        for row, word in enumerate(found.words):
            if word in place:
                one_hot[row, place[word]] = 1
        gaps = (found.codes < 0)[:, None].astype(np.float32)
        return np.concatenate([found.spread(one_hot), gaps[:, : int(self.has_gaps)]], axis=1)


@dataclass(frozen=True, eq=False)
class TextColumn:
    """Text: tf-idf of its terms, projected by a truncated SVD, as by skrub's StringEncoder.

    Attributes:
        name: name of the column.
        cut: how text is cut into terms.
        terms: the vocabulary, (V,).
        idf: inverse document frequencies, (V,).
        projection: of the SVD, with the scale of the block, (V, D).
    """

    name: str
    cut: Terms
    terms: list[str]
    idf: NDArray[np.float32]
    projection: NDArray[np.float32]

    @property
    def feature_names(self) -> list[str]:
        return [f"{self.name} #{k + 1}" for k in range(self.projection.shape[1])]

    def features(self, column: Column) -> NDArray[np.float32]:
        found = as_words(column)
        counts = vectorizer(self.cut, self.terms).transform(found.words)
        weights = counts.astype(np.float32).multiply(self.idf).tocsr()
        norm = np.sqrt(np.asarray(weights.multiply(weights).sum(1))).clip(1e-12)
        projected = (weights @ self.projection) / norm
        return found.spread(projected.astype(np.float32))


#: What is learned of a column: its `name`, the names of its features, and how to compute them.
FittedColumn = Dropped | NumberColumn | DateColumn | CategoryColumn | TextColumn
_WAVES = ("sine", "cosine")
_TRUTHS = {"true": 1.0, "false": 0.0}


def vectorizer(cut: Terms, terms: list[str] | None, **options: int) -> Any:  # noqa: ANN401
    """Return the counter of terms, of a vocabulary or of one to learn."""
    # Here, since most models need none.
    from sklearn.feature_extraction.text import CountVectorizer

    if cut == "letters":
        options |= {"ngram_range": (3, 4)}  # type: ignore[dict-item]
    analyzer = {"letters": "char_wb", "words": "word"}[cut]
    return CountVectorizer(analyzer=analyzer, vocabulary=terms, **options)


def as_numbers(column: Column, style: Style) -> NDArray[np.float64]:
    """Return a column as numbers, NaN where it has none."""
    if isinstance(column, Numbers):
        return column.values
    if isinstance(column, Words):
        numbers = np.array([to_number(word, style) for word in column.words], dtype=np.float64)
        return column.spread(numbers, np.nan)
    raise _mismatch("numbers", column)


def to_number(word: str, style: Style) -> float:
    """Return the number that a text is, with signs of currencies and percent left out, or NaN."""
    text = word.translate(_SWAPPED) if style == "comma" else word
    number = float(text.translate(_UNITS)) if _NUMBER.fullmatch(text) else np.nan
    return number if np.isfinite(number) else np.nan


def as_dates(column: Column, date_formats: list[str]) -> NDArray[np.float64]:
    """Return a column as seconds since 1970, NaN where it has no date."""
    if isinstance(column, Dates):
        return column.seconds
    if isinstance(column, Numbers) and bool(np.isnan(column.values).all()):
        return column.values  # a column without any entry has no type
    if isinstance(column, Words):
        dates = np.array(
            [to_seconds(word, date_formats) for word in column.words], dtype=np.float64
        )
        return column.spread(dates, np.nan)
    raise _mismatch("dates", column)


def to_seconds(word: str, date_formats: list[str]) -> float:
    """Return the seconds since 1970 of a date as text, in one of the formats or ISO, or NaN."""
    for date_format in date_formats:
        try:
            return _timestamp(datetime.strptime(word, date_format))
        except ValueError:
            continue
    try:
        return _timestamp(datetime.fromisoformat(word))
    except ValueError:
        return np.nan


def _timestamp(found: datetime) -> float:
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def as_words(column: Column) -> Words:
    """Return a column as text."""
    if isinstance(column, Words):
        return column
    if isinstance(column, Numbers):
        return column.as_words()
    raise _mismatch("text", column)


def _squashed(
    values: NDArray[np.float64], center: float, scale: float, has_gaps: bool
) -> NDArray[np.float32]:
    is_missing = np.isnan(values)
    with np.errstate(over="ignore"):
        z = np.where(is_missing, 0.0, (values - center) * scale).clip(-_CLIPPED, _CLIPPED)
    columns = [z / np.sqrt(1 + (z / _LARGEST) ** 2)]
    if has_gaps:
        columns.append(is_missing.astype(np.float64))
    return np.column_stack(columns).astype(np.float32)


def _mismatch(needed: str, column: Column) -> ValueError:
    found = column.kind if isinstance(column, Unreadable) else type(column).__name__.lower()
    return ValueError(f"must be of {needed}, as in fit, but it is of {found}")


def _missing(name: str, has_gaps: bool) -> list[str]:
    return [f"{name} is missing"] if has_gaps else []
