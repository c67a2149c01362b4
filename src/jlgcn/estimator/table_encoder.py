"""Encoding of raw tables: categories, text, dates and gaps become numbers."""

from __future__ import annotations

import logging
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from jlgcn._memory import check_memory
from jlgcn.estimator.table_columns import CategoryColumn, Dropped, FittedColumn, TextColumn
from jlgcn.estimator.table_learning import learn_column
from jlgcn.io.frames import Column, Numbers, Words, is_frame, read_columns

logger = logging.getLogger(__name__)

_SHOWN = 5  # names in a message


class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Encodes a data frame of pandas, polars or Arrow as a matrix of numbers.

    A scikit-learn transformer, which :class:`jlgcn.JLGCNClassifier` fits to data frames that have
    other columns than numbers, or gaps. Each column weighs about the same in distances:

    - numbers, also as text ("1,234.5", "12 %"), are scaled by their quartiles and squashed
      (:class:`skrub.SquashingScaler`);
    - dates, in formats that :class:`skrub.ToDatetime` guesses, become time, season, weekday, hour;
    - text of up to 40 values that occur twice on average is one-hot; other text becomes 30
      components of a tf-idf of runs of letters, or of words (:class:`skrub.StringEncoder`);
    - gaps are 0, and have a feature of their own;
    - empty and constant columns, ids and columns of lists are dropped.

    skrub learns formats, vocabularies and projections; `transform` needs none of it.

    Attributes:
        columns_: what was learned of each column.
        notes_: what was dropped or is odd, and what was done about it, by column.
        feature_names_in_: names of the columns.
        n_features_in_: their number.

    Cost: O(N) a column; of text, linear in the letters of the distinct strings.

    Example:
        >>> import pandas as pd
        >>> people = pd.DataFrame({"age": [31, None, 40], "kind": ["red", "blue", "red"], "x": 1})
        >>> encoder = TableEncoder().fit(people)
        >>> encoder.get_feature_names_out().tolist()
        ['age', 'age is missing', 'kind=red', 'kind=blue']
        >>> encoder.notes_["x"]
        'dropped; constant: every row has 1'
        >>> encoder.transform(people)[1].tolist()
        [0.0, 1.0, 0.0, 1.0]
    """

    def fit(self, X: Any, y: object = None) -> Self:  # noqa: ANN401, N803
        """Learn how to encode the columns of a data frame; `y` is not read."""
        columns = _columns(X)
        self.columns_: list[FittedColumn] = []
        self.notes_: dict[str, str] = {}
        for name, column in columns.items():
            learned, odd = learn_column(name, column)
            self.columns_.append(learned)
            if isinstance(learned, Dropped):
                self.notes_[name] = f"dropped; {learned.why}"
            elif note := "; ".join(filter(None, (_gaps(learned, column), odd))):
                self.notes_[name] = note
        if not self.get_feature_names_out().size:
            raise ValueError(
                f"X has no column to learn from: {self.notes_}; add one that differs between rows"
            )
        if self.notes_:
            logger.warning(
                "%d of %d columns %s dropped or odd:%s",
                len(self.notes_),
                len(columns),
                "is" if len(self.notes_) == 1 else "are",
                "".join(f"\n  {name!r}: {note}" for name, note in self.notes_.items()),
            )
        self.feature_names_in_ = np.array(list(columns), dtype=object)
        self.n_features_in_ = len(columns)
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:  # noqa: ANN401, N803
        """Return the features of rows, (n_samples, n_features_out).

        Columns are found by name; those that `fit` dropped or has not seen are not read.
        """
        check_is_fitted(self, "columns_")
        used = [column for column in self.columns_ if not isinstance(column, Dropped)]
        columns = _columns(X, [column.name for column in used])
        num_rows = len(next(iter(columns.values()))[0])
        needed = 4 * num_rows * sum(len(column.feature_names) for column in used)
        check_memory(needed, "cpu", "the encoded table", "encoding some rows at a time")
        features = []
        for column in used:
            try:
                features.append(column.features(columns[column.name]))
            except ValueError as error:
                raise ValueError(f"column {column.name!r} {error}") from None
        return np.concatenate(features, axis=1)

    def get_feature_names_out(self, input_features: object = None) -> NDArray[np.object_]:
        """Return the names of the features: "age", "kind=red", "note #1", "age is missing"."""
        names = [name for column in self.columns_ for name in column.feature_names]
        return np.array(names, dtype=object)


def _columns(frame: Any, names: list[str] | None = None) -> dict[str, Column]:  # noqa: ANN401
    """Return the columns of a data frame, or those of some names, after checking them."""
    if not is_frame(frame):
        raise ValueError(
            f"X must be a data frame with named columns, but it is a {type(frame).__name__}; pass "
            "one of pandas, polars or Arrow"
        )
    columns = read_columns(frame)
    if names is not None:
        missing = [name for name in names if name not in columns]
        if missing:
            more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
            shown = ", ".join(map(repr, missing[:_SHOWN]))
            raise ValueError(f"X has no column {shown}{more}, of which the model learned; add it")
        columns = {name: columns[name] for name in names}
    for name, column in columns.items():
        if isinstance(column, Numbers) and np.isinf(column.values).any():
            row = int(np.isinf(column.values).argmax())
            raise ValueError(
                f"numbers must be finite, but column {name!r} of row {row} is "
                f"{column.values[row]}; replace it, or leave out the row"
            )
    return columns


def _gaps(learned: FittedColumn, column: Column) -> str:
    """Return how many entries of a column are missing, and what was done about it."""
    missing = column.codes < 0 if isinstance(column, Words) else np.isnan(column[0])
    if not missing.any():
        return ""
    done = {CategoryColumn: "a category of their own", TextColumn: "no text"}
    taken = done.get(type(learned), "the median, and marked")
    number = int(missing.sum())
    verb = "is" if number == 1 else "are"
    return f"{number:,} of {len(missing):,} rows {verb} missing: taken as {taken}"
