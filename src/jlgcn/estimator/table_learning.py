"""Deciding what each column of a table is, and learning how to encode it."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jlgcn._optional import require
from jlgcn.estimator.table_columns import (
    STYLES,
    CategoryColumn,
    DateColumn,
    Dropped,
    FittedColumn,
    NumberColumn,
    Style,
    Terms,
    TextColumn,
    as_dates,
    as_numbers,
    to_number,
    to_seconds,
    vectorizer,
)
from jlgcn.io.frames import MAX_LETTERS, Column, Dates, Numbers, Unreadable, Words

# Share of the entries that must be numbers, or dates, for a column of text to be of them.
_MIN_SHARE = 0.9
# Distinct strings above which a column is text: skrub's threshold, or half of the entries.
_MAX_CATEGORIES = 40
# Mean words of a text above which its terms are words.
_MIN_WORDS = 12
# Terms of a text column, the most frequent: their projection is most of a saved encoder.
_MAX_TERMS = 10_000
_NUM_COMPONENTS = 30
# Share of the rows that must differ in a column of ids.
_MIN_DISTINCT = 0.99
_SAMPLED = 1000
_SHOWN_TEXT = 40
_DAY = 86_400.0
_MAX_FORMATS = 4  # of the dates of a column

_ID_NAME = re.compile(r"(^|[\W_])(id|key|uuid|guid|index)$|[a-z]I[dD]$|^(unnamed: \d+)?$", re.I)


def learn_column(name: str, column: Column) -> tuple[FittedColumn, str]:
    """Return how a column is encoded, and what is odd about it, or "".

    Args:
        name: name of the column.
        column: its entries.
    """
    match column:
        case Unreadable(kind):
            return Dropped(name, f"of {kind}, which is neither numbers nor text nor dates"), ""
        case Numbers(values):
            return _learn_numbers(name, values, "point")
        case Dates(seconds):
            return _learn_dates(name, seconds, ["%Y-%m-%d"])
        case Words():
            return _learn_words(name, column)


def looks_like_ids(name: str, column: Column) -> bool:
    """Return whether a column names the rows.

    Text does if almost all rows differ, and the name ends with "id" or they are codes without
    spaces, neither numbers nor dates. Whole numbers do if all rows differ, and the name ends with
    "id" or they count the rows from 0 or 1.
    """
    is_named = bool(_ID_NAME.search(name))
    if isinstance(column, Numbers):
        values = column.values
        if len(values) < 3 or len(np.unique(values)) < len(values) or np.isnan(values).any():
            return False
        is_whole = bool((values == np.round(values)).all())
        counts = values[0] in (0, 1) and bool((np.diff(values) == 1).all())
        return is_whole and (is_named or counts)
    if not isinstance(column, Words) or len(column.words) < 3:
        return False
    if len(column.words) < _MIN_DISTINCT * len(column.codes):
        return False
    sample = _sample(column.words)
    is_code = [" " not in word and any(c.isdigit() for c in word) for word in sample]
    if is_named or np.mean(is_code) < _MIN_SHARE:
        return is_named
    return not _number_style(sample) and not _date_formats(sample)


def _learn_words(name: str, column: Words) -> tuple[FittedColumn, str]:
    has_gaps = bool((column.codes < 0).any())
    if not column.words:
        return Dropped(name, "empty"), ""
    if len(column.words) == 1 and not has_gaps:
        return Dropped(name, f"constant: every row has {column.words[0][:_SHOWN_TEXT]!r}"), ""
    sample = _sample(column.words)
    if style := _number_style(sample):
        values = as_numbers(column, style)
        if _share(values, column) >= _MIN_SHARE:
            found, _ = _learn_numbers(name, values, style)
            return found, _unread(column, values, "numbers")
    formats = _date_formats(sample)
    if formats and _readable(sample, partial(to_seconds, date_formats=formats)) > 0.5:
        seconds = as_dates(column, formats)
        if _share(seconds, column) >= _MIN_SHARE:
            found, _ = _learn_dates(name, seconds, formats)
            odd = f"dates in {len(formats)} formats" if len(formats) > 1 else ""
            return found, "; ".join(filter(None, (odd, _unread(column, seconds, "dates"))))
    if looks_like_ids(name, column):
        return Dropped(name, _ids(len(column.words), len(column.codes))), ""
    present = int((column.codes >= 0).sum())
    if len(column.words) > min(_MAX_CATEGORIES, max(2, present // 2)):
        return _learn_text(name, column)
    counts = np.bincount(column.codes[column.codes >= 0], minlength=len(column.words))
    order = np.argsort(-counts, kind="stable")
    return CategoryColumn(name, [column.words[k] for k in order], has_gaps), ""


def _learn_numbers(
    name: str, values: NDArray[np.float64], style: Style
) -> tuple[FittedColumn, str]:
    found = values[~np.isnan(values)]
    why = _useless(found, len(values))
    if why:
        return Dropped(name, why), ""
    if looks_like_ids(name, Numbers(values)):
        return Dropped(name, _ids(len(values), len(values))), ""
    return NumberColumn(name, *_quartiles(found), style, len(found) < len(values)), ""


def _learn_dates(
    name: str, seconds: NDArray[np.float64], date_formats: list[str]
) -> tuple[FittedColumn, str]:
    found = seconds[~np.isnan(seconds)]
    why = _useless(found, len(seconds))
    if why:
        return Dropped(name, why), ""
    days = found / _DAY
    periods = ["season"] if np.ptp(days) > 60 else []
    periods += ["weekday"] if np.ptp(days) > 6 and len(np.unique(days // 1 % 7)) > 1 else []
    periods += ["hour"] if (days % 1 != days[0] % 1).any() else []
    has_gaps = len(found) < len(seconds)
    return DateColumn(name, *_quartiles(found), date_formats, periods, has_gaps), ""


def _learn_text(name: str, column: Words) -> tuple[FittedColumn, str]:
    """Learn tf-idf and SVD by skrub's StringEncoder, from the distinct texts."""
    skrub = require("skrub", "table", "a column of text")
    pandas = require("pandas", "table", "a column of text")
    words = column.words
    num_words = np.mean([word.count(" ") + 1 for word in _sample(words)])
    cut: Terms = "words" if num_words >= _MIN_WORDS else "letters"
    counter = vectorizer(cut, None, max_features=_MAX_TERMS)
    try:
        terms = sorted(counter.fit(words).vocabulary_)
    except ValueError:  # no term at all
        terms = []
    if len(terms) < 3:
        return Dropped(name, "text without words"), ""
    encoder = skrub.StringEncoder(
        n_components=min(_NUM_COMPONENTS, len(terms) - 1, len(words) - 1),
        analyzer=counter.analyzer,
        ngram_range=counter.ngram_range,
        vocabulary=terms,
        random_state=0,
    )
    encoder.fit(pandas.Series(words, name=name, dtype="str"))
    projection: Any = encoder.tsvd_.components_.T / encoder.scaling_factor_
    idf: Any = encoder.vectorizer_.idf_
    is_cut = any(len(word) >= MAX_LETTERS for word in words)
    odd = f"text is cut after {MAX_LETTERS:,} letters" if is_cut else ""
    return TextColumn(name, cut, terms, idf.astype(np.float32), projection.astype(np.float32)), odd


def _number_style(sample: list[str]) -> Style | None:
    """Return how most texts are written as numbers; None if they are none, or codes such as 007."""
    if any(len(word) > 1 and word[0] == "0" and word.isdigit() for word in sample):
        return None
    shares = {s: _readable(sample, partial(to_number, style=s)) for s in STYLES}
    style = max(STYLES, key=shares.__getitem__)
    return style if shares[style] > 0.5 else None


def _date_formats(sample: list[str]) -> list[str]:
    """Return the formats of dates, the most frequent first; none if the texts are no dates."""
    formats: list[str] = []
    others = sample
    while others and len(formats) < _MAX_FORMATS and (found := _date_format(others)):
        formats.append(found)
        others = [word for word in others if math.isnan(to_seconds(word, formats))]
    return formats


def _date_format(sample: list[str]) -> str:
    """Return the format of the most frequent kind of dates, guessed by skrub; "" if it is none."""
    shapes = [re.sub(r"\d+", "9", re.sub(r"[^\W\d_]+", "a", word)) for word in sample]
    shape, _ = Counter(shapes).most_common(1)[0]
    alike = [word for word, other in zip(sample, shapes, strict=True) if other == shape]
    if shape.count("9") < 2 or max(map(len, alike)) < 6:
        return ""
    skrub = require("skrub", "table", "a column of text")
    pandas = require("pandas", "table", "a column of text")
    try:
        return skrub.ToDatetime().fit(pandas.Series(alike, dtype="str")).format_ or ""
    except ValueError:  # RejectColumn
        return ""


def _sample(words: list[str]) -> list[str]:
    return words[:: max(1, len(words) // _SAMPLED)]


def _readable(words: list[str], read: Callable[[str], float]) -> float:
    """Return the share of texts that can be read as a number."""
    return sum(not math.isnan(read(word)) for word in words) / len(words)


def _share(values: NDArray[np.float64], column: Words) -> float:
    """Return the share of the entries of a column that could be read."""
    return float((~np.isnan(values)).sum() / (column.codes >= 0).sum())


def _unread(column: Words, values: NDArray[np.float64], what: str) -> str:
    is_unread = np.isnan(values) & (column.codes >= 0)
    if not is_unread.any():
        return ""
    example = column.words[column.codes[is_unread.argmax()]]
    number = int(is_unread.sum())
    entries = "entry is" if number == 1 else "entries are"
    return f"{number:,} {entries} no {what}, such as {example[:_SHOWN_TEXT]!r}: taken as missing"


def _useless(found: NDArray[np.float64], num_rows: int) -> str:
    if not len(found):
        return "empty"
    if len(found) == num_rows and (found == found[0]).all():
        return f"constant: every row has {found[0]:g}"
    return ""


def _ids(num_distinct: int, num_rows: int) -> str:
    return f"ids: {num_distinct:,} of {num_rows:,} rows differ"


def _quartiles(found: NDArray[np.float64]) -> tuple[float, float]:
    """Return center and scale as skrub's SquashingScaler does."""
    low, first, center, third, high = np.quantile(found, [0, 0.25, 0.5, 0.75, 1]).tolist()
    width = third - first if third > first else (high - low) / 2
    return center, 1 / min(max(width, 1e-300), 1e300) if width > 0 else 1.0
