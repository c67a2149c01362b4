"""Inputs that are not numbers: data frames of mixed columns, and texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from jlgcn.closed_form.scaling import Kind
from jlgcn.estimator.table_encoder import TableEncoder
from jlgcn.estimator.text_encoder import TextEncoder
from jlgcn.io.frames import is_frame, is_numeric_frame

Encoder = TableEncoder | TextEncoder


class Encoded(NamedTuple):
    """Features of `fit`.

    Attributes:
        x: an array, a data frame of numbers, or a sparse matrix.
        encoder: what made them of other columns, or of texts; None if X was of numbers.
        scaler: how to scale them.
    """

    x: Any
    encoder: Encoder | None
    scaler: Kind


def encode(x: Any, scaler: Kind) -> Encoded:  # noqa: ANN401
    """Return the features of `fit`; `scaler` is the parameter of the estimator."""
    texts = as_texts(x)
    encoder: Encoder
    if texts is not None:
        encoder = TextEncoder().fit(texts)
        return Encoded(encoder.transform(texts), encoder, scaler)
    if is_frame(x) and not is_numeric_frame(x):
        encoder = TableEncoder().fit(x)
        # Columns weigh the same already; to standardise features would favour long texts.
        return Encoded(encoder.transform(x), encoder, "none" if scaler == "auto" else scaler)
    return Encoded(x, None, scaler)


def encode_new(encoder: Encoder, x: Any) -> Any:  # noqa: ANN401
    """Return the features of new rows."""
    if isinstance(encoder, TableEncoder):
        return encoder.transform(x)
    texts = as_texts(x)
    if texts is None:
        raise ValueError(
            f"X must be texts, as in fit, but it is a {type(x).__name__}; pass a list of strings"
        )
    return encoder.transform(texts)


def num_columns_of(encoder: Encoder) -> int:
    """Return the number of columns that an encoder was fitted to; texts are one."""
    return encoder.n_features_in_ if isinstance(encoder, TableEncoder) else 1


def as_texts(x: Any) -> list[str] | None:  # noqa: ANN401
    """Return a list, an array or a column of texts as a list; None if it is something else.

    A missing text is empty.
    """
    if not isinstance(x, list | tuple):
        if len(getattr(x, "shape", ())) != 1 or str(x.dtype)[:3] in ("int", "uin", "flo", "boo"):
            return None
        x = x.to_list() if hasattr(x, "to_list") else x.tolist()
    first = next((entry for entry in x if not _is_missing(entry)), None)
    if not isinstance(first, str):
        return None
    for row, entry in enumerate(x):
        if not isinstance(entry, str) and not _is_missing(entry):
            raise ValueError(
                f"X must be texts, one a row, but row {row} is {entry!r:.60}; write all as text"
            )
    return [entry if isinstance(entry, str) else "" for entry in x]


def _is_missing(entry: Any) -> bool:  # noqa: ANN401
    # pandas.NA has no truth value.
    return entry is None or type(entry).__name__ == "NAType" or bool(np.all(entry != entry))


def feature_names(model: Any) -> list[str]:  # noqa: ANN401
    """Return the names of the features that a fitted estimator learned from, after encoding."""
    if getattr(model, "encoder_", None) is not None:
        return [str(name) for name in model.encoder_.get_feature_names_out()]
    if getattr(model, "table_", None) is not None:
        return list(model.table_.feature_names)
    names = getattr(model, "feature_names_in_", None)
    return [f"x{k}" for k in range(model.n_features_in_)] if names is None else names.tolist()


def column_names(model: Any) -> list[str]:  # noqa: ANN401
    """Return the name of the table's column that each feature was made of.

    Of texts and numbers, the name of the feature.
    """
    encoder = getattr(model, "encoder_", None)
    if not isinstance(encoder, TableEncoder):
        return feature_names(model)
    return [column.name for column in encoder.columns_ for _ in column.feature_names]


def sum_by_name(
    values: Tensor,  # (..., F)
    names: Sequence[str],
) -> tuple[Tensor, list[str]]:  # (..., G)
    """Return sums of the values whose features share a name, and the G distinct names."""
    place = {name: k for k, name in enumerate(dict.fromkeys(names))}
    if len(place) == len(names):
        return values, list(names)
    index = torch.tensor([place[name] for name in names], device=values.device)
    sums = values.new_zeros(*values.shape[:-1], len(place))
    return sums.index_add(-1, index, values), list(place)
