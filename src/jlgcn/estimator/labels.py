"""Validation of labels: classes, what means unlabelled, weights, validation rows."""

from __future__ import annotations

import numbers
import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import column_or_1d

# Above so many classes, numeric labels may be measurements, of which we warn.
_MANY_CLASSES = 50


class Labels(NamedTuple):
    """Labels of rows, some of which are unlabelled.

    Attributes:
        values: labels, (N,); an arbitrary label in unlabelled rows.
        is_known: whether a row is labelled, (N,).
    """

    values: NDArray[Any]
    is_known: NDArray[np.bool_]


def read_labels(y: ArrayLike, *, are_learned: bool = True) -> Labels:
    """Return labels and which rows have one.

    A row is unlabelled if y is -1, NaN, None, NA, NaT or masked, or, as text, "" or "-1".

    Args:
        y: labels of all rows: an array, a list, a column of a data frame.
        are_learned (bool, default True): whether to refuse labels that are not classes.
    """
    if y is None:
        raise ValueError(
            "requires y to be passed, but the target y is None; pass -1 for rows without a label"
        )
    given = _as_array(y)
    if given.ndim == 2 and given.shape[1] > 1:
        raise ValueError(
            f"y must have one class a row, but its shape is {given.shape}; for one-hot columns "
            "pass y.argmax(1), for several labels a row fit a model for each"
        )
    given = column_or_1d(given, warn=True)
    if given.dtype.kind in "biuf":
        is_known = ~(np.isnan(given) | (given == -1))
        known = given[is_known]
    else:
        is_known = np.array([not _is_missing(label) for label in given], dtype=bool)
        known = _of_one_type(given[is_known].astype(object))
    values = np.zeros(len(given), dtype=known.dtype)
    if len(known):
        values[:] = known[0]
        values[is_known] = known
        if are_learned:
            _check_classes(known, given[~is_known])
    return Labels(values, is_known)


def read_sample_weight(value: ArrayLike | None, labels: Labels) -> NDArray[np.float64] | None:
    """Return the weight of every row's label, (N,), or None if none are given.

    Args:
        value: weights as a user gave them.
        labels: the labels; weights of unlabelled rows may be anything.
    """
    if value is None:
        return None
    num_rows = len(labels.values)
    given = np.asarray(value)
    if given.ndim == 0:
        raise ValueError(f"sample_weight must have a weight for each row, but it is {value!r}")
    found = np.array(column_or_1d(given), dtype=np.float64)
    if len(found) != num_rows:
        raise ValueError(
            f"sample_weight has {len(found)} weights but X has {num_rows} rows; pass one for each "
            "row, whatever number for unlabelled ones"
        )
    found[~labels.is_known] = 0
    is_bad = ~(np.isfinite(found) & (found >= 0))
    if is_bad.any():
        row = int(is_bad.argmax())
        raise ValueError(
            f"weights of sample_weight must be finite and not negative, but that of row {row} is "
            f"{found[row]}; pass 0 to leave its label out"
        )
    if labels.is_known.any() and not found.any():
        raise ValueError(
            "weights of sample_weight are zero for all labels; weigh one of each class"
        )
    return found


def _as_array(y: Any) -> NDArray[Any]:  # noqa: ANN401
    if isinstance(y, np.ma.MaskedArray):
        y = y.tolist()  # masked entries become None
    # Lists and data frame columns as objects: NumPy would convert integers with gaps to floats, and
    # NaN among text to the text "nan".
    if hasattr(y, "to_list"):
        y = y.to_list()
    return np.array(y, dtype=object) if isinstance(y, list | tuple) else np.asarray(y)


def _is_missing(label: Any) -> bool:  # noqa: ANN401
    if isinstance(label, str):
        return label in ("", "-1")
    try:
        return label is None or bool(label != label) or bool(label == -1)
    except TypeError:  # pandas.NA has no truth value
        return True


def _of_one_type(known: NDArray[np.object_]) -> NDArray[Any]:
    """Return labels as an array of numbers or booleans if all of them are."""
    is_text = np.array([isinstance(label, str) for label in known], dtype=bool)
    if is_text.any() and not is_text.all():
        raise ValueError(
            f"y must be of text or of numbers, but it has {known[is_text][0]!r} and "
            f"{known[~is_text][0]!r}; write all classes as text"
        )
    are_numbers = all(isinstance(label, numbers.Number | np.bool_) for label in known)
    return np.array(known.tolist()) if len(known) and are_numbers else known


def _check_classes(known: NDArray[Any], missing: NDArray[Any]) -> None:
    """Raise if labels are measurements, or the classes -1 and 1, of which -1 means unlabelled."""
    if known.dtype.kind == "f" and not np.isfinite(known).all():
        raise ValueError(
            f"y must be of classes, but one label is {known[~np.isfinite(known)][0]}; pass -1 for "
            "rows without a label"
        )
    if len(known) and isinstance(known[0], bytes):  # of which old scikit-learn only warns
        raise ValueError(f"y must be text or numbers, but it has {known[0]!r}; call y.astype(str)")
    kind = type_of_target(known, input_name="y")
    if kind not in ("binary", "multiclass"):
        what = "measurements" if kind == "continuous" else f"{type(known[0]).__name__} objects"
        raise ValueError(
            f"Unknown label type: {kind}. y must be of classes, but it is of {what}, such as "
            f"{known[0]}; bin measurements, for example with numpy.digitize, use a regressor, or "
            "pass text if each value is a class"
        )
    classes = np.unique(known)
    minus = {str(label) for label in missing.tolist()} & {"-1", "-1.0"}
    if len(classes) == 1 and str(classes[0]) in ("1", "1.0") and minus:
        raise ValueError(
            "y must have two classes, but it is -1 and 1, and -1 means unlabelled; pass "
            '(y + 1) // 2, or text such as "no" and "yes"'
        )
    if known.dtype.kind in "iuf" and len(classes) > max(_MANY_CLASSES, len(known) / 3):
        warnings.warn(
            f"y has {len(classes)} classes in {len(known)} labels, as measurements have; if it is "
            "one, use a regressor, or bin it, for example with numpy.digitize",
            UserWarning,
            stacklevel=4,
        )


def split_labels(
    is_known: NDArray[np.bool_],
    validation: ArrayLike | None,
) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
    """Return the labelled rows to learn from, and those to validate on.

    Args:
        is_known: which rows have a label, (N,).
        validation: numbers of labelled rows, or a mask, (N,); None for no validation rows.
    """
    if validation is None:
        return np.flatnonzero(is_known), None
    found = np.asarray(validation)
    if found.dtype == bool:
        if found.shape != is_known.shape:
            raise ValueError(
                f"validation is a mask of {len(found)} rows, but X has {len(is_known)} rows"
            )
        found = np.flatnonzero(found)
    is_val = np.zeros(len(is_known), dtype=bool)
    try:
        if found.size and int(found.min()) < 0:  # which NumPy would count from the end
            raise IndexError
        is_val[found] = True
    except (IndexError, ValueError, TypeError):
        raise ValueError(
            f"validation must be numbers of rows from 0 to {len(is_known) - 1}, or a mask, but it "
            f"is {validation!r:.80}"
        ) from None
    unlabelled = np.flatnonzero(is_val & ~is_known)
    if len(unlabelled):
        raise ValueError(f"row {unlabelled[0]} of validation has no label; leave it out")
    if not is_val.any() or not (is_known & ~is_val).any():
        raise ValueError("validation must leave labels to learn from, and name at least one row")
    return np.flatnonzero(is_known & ~is_val), np.flatnonzero(is_val)
