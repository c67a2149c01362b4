"""A fitted encoder of tables or texts as tensors and JSON, and the checks of both."""

from __future__ import annotations

import re
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from jlgcn._schema import Check, flag, list_of, maybe, real, record, text, variant, word
from jlgcn.estimator.encoding import Encoder
from jlgcn.estimator.table_columns import (
    PERIODS,
    STYLES,
    TERMS,
    CategoryColumn,
    DateColumn,
    Dropped,
    FittedColumn,
    NumberColumn,
    TextColumn,
)
from jlgcn.estimator.table_encoder import TableEncoder
from jlgcn.estimator.tensors import check_shapes
from jlgcn.estimator.text_encoder import TextEncoder

_NAME = text(100_000)
_ENTRY = text(20_000)
_MANY = 1_000_000
_NUMBER = real(-1e308, 1e308)
_SCALE = real(0, 1e308, above=True)
_DIRECTIVE = re.compile(r"([^%]|%[a-zA-Z%])*")

_KINDS: dict[str, type[FittedColumn]] = {
    "dropped": Dropped,
    "number": NumberColumn,
    "date": DateColumn,
    "category": CategoryColumn,
    "text": TextColumn,
}


def _date_format(value: Any, where: str) -> Any:  # noqa: ANN401
    text(200)(value, where)
    if not _DIRECTIVE.fullmatch(value):
        raise ValueError(f"{where} must be a format of dates, but it is {value[:40]!r}")
    return value


_SCALED: dict[str, Check] = {"name": _NAME, "center": _NUMBER, "scale": _SCALE, "has_gaps": flag}
_COLUMNS: dict[str, dict[str, Check]] = {
    "dropped": {"name": _NAME, "why": _NAME},
    "number": _SCALED | {"style": word(*STYLES)},
    "date": _SCALED
    | {
        "date_formats": list_of(_date_format, 10, min_length=1),
        "periods": list_of(word(*PERIODS), len(PERIODS)),
    },
    "category": {"name": _NAME, "words": list_of(_ENTRY, 1000), "has_gaps": flag},
    "text": {"name": _NAME, "cut": word(*TERMS), "terms": list_of(_ENTRY, _MANY, min_length=1)},
}
_TABLE: dict[str, Check] = {
    "columns": list_of(
        variant("kind", {kind: partial(dict, checks) for kind, checks in _COLUMNS.items()}), _MANY
    ),
    "notes": list_of(record({"column": _NAME, "note": _NAME}), _MANY),
}
_TEXTS: dict[str, Check] = {
    "cut": word(*TERMS),
    "terms": list_of(_ENTRY, _MANY, min_length=1),
}

#: The check of an encoder's document, which may be null.
ENCODER = maybe(variant("kind", {"table": partial(dict, _TABLE), "texts": partial(dict, _TEXTS)}))


def encoder_to_tensors(encoder: Encoder | None) -> tuple[dict[str, Tensor], Any]:
    """Return the tensors of an encoder, and all else as JSON."""
    if encoder is None:
        return {}, None
    if isinstance(encoder, TextEncoder):
        return {}, {"kind": "texts", "cut": encoder.cut_, "terms": encoder.terms_}
    tensors: dict[str, Tensor] = {}
    columns = []
    for index, column in enumerate(encoder.columns_):
        kind = next(kind for kind, of in _KINDS.items() if type(column) is of)
        found = {"kind": kind}
        for field in fields(column):
            value = getattr(column, field.name)
            if isinstance(value, np.ndarray):
                tensors[f"encoder/{index}/{field.name}"] = torch.from_numpy(value)
            else:
                found[field.name] = value
        columns.append(found)
    notes = [{"column": name, "note": note} for name, note in encoder.notes_.items()]
    return tensors, {"kind": "table", "columns": columns, "notes": notes}


def encoder_from_tensors(tensors: dict[str, Tensor], document: Any) -> Encoder | None:  # noqa: ANN401
    """Return an encoder, after validating its tensors, which are taken out of `tensors`."""
    own = {name: tensors.pop(name) for name in list(tensors) if name.startswith("encoder/")}
    encoder: Encoder | None = None
    if document is not None and document["kind"] == "texts":
        encoder = TextEncoder()
        encoder.cut_, encoder.terms_ = document["cut"], _distinct(document["terms"], "terms")
    elif document is not None:
        columns = document["columns"]
        names = _distinct([column["name"] for column in columns], "names of columns")
        encoder = TableEncoder()
        encoder.columns_ = [_column(own, index, column) for index, column in enumerate(columns)]
        encoder.notes_ = {note["column"]: note["note"] for note in document["notes"]}
        encoder.feature_names_in_ = np.array(names, dtype=object)
        encoder.n_features_in_ = len(names)
    if own:
        raise ValueError(f"there are unknown tensors of the encoder: {', '.join(own)[:200]}")
    return encoder


def _column(tensors: dict[str, Tensor], index: int, document: dict[str, Any]) -> FittedColumn:
    values = {name: value for name, value in document.items() if name != "kind"}
    for name in ("words", "terms", "periods"):
        if name in values:
            _distinct(values[name], f"{name} of column {index}")
    if document["kind"] == "text":
        shapes = {f"encoder/{index}/idf": ("V",), f"encoder/{index}/projection": ("V", "D")}
        missing = shapes.keys() - tensors.keys()
        if missing:
            raise ValueError(f"tensors are missing: {', '.join(sorted(missing))}")
        sizes = check_shapes(tensors, shapes, torch.float32, sizes={"V": len(values["terms"])})
        if sizes["D"] < 1:
            raise ValueError(f"encoder/{index}/projection is empty")
        for name in shapes:
            values[name.rpartition("/")[2]] = tensors.pop(name).cpu().numpy()
    column: FittedColumn = _KINDS[document["kind"]](**values)
    return column


def _distinct(values: list[str], what: str) -> list[str]:
    if len(set(values)) < len(values):
        raise ValueError(f"{what} must differ from each other")
    return values
