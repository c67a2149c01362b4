"""The JSON document of a saved estimator, and the schema that validates it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from jlgcn._saved import Schema
from jlgcn._schema import Check, flag, list_of, maybe, real, record, text, variant, word
from jlgcn.closed_form import ClosedFormModel
from jlgcn.closed_form.options import CHECKS, SELECTED
from jlgcn.closed_form.scaling import KINDS
from jlgcn.estimator.class_weights import check_plain
from jlgcn.estimator.closed_form_document import (
    CLOSED_FORM_FIELDS,
    closed_form_from_tensors,
    closed_form_to_tensors,
)
from jlgcn.estimator.encoder_document import ENCODER
from jlgcn.estimator.network_options import NETWORK_CHECKS, SOLVERS
from jlgcn.estimator.solvers import FittedModel


@dataclass(frozen=True)
class TableNames:
    """Names of a table's rows and columns.

    Attributes:
        ids: ids of the rows of `fit`, (N,).
        id_column: column of the ids; None if rows are numbered.
        label_column: column of the classes.
        drop: columns that are not features.
        feature_names: columns that are features, before they are encoded.
        texts: what a person reads of each row, (N,), such as the beginning of its text; None for
            nothing besides its id.
    """

    ids: list[str]
    id_column: str | None
    label_column: str
    drop: list[str]
    feature_names: list[str]
    texts: list[str] | None = None


# Predictions repeat a class name for every row; names that need more memory are refused.
_MAX_CLASS_NAME_BYTES = 100 * 2**20

_MANY = 10**9
_NAME = text(100_000)


def _class_value(value: Any, where: str) -> Any:  # noqa: ANN401
    if isinstance(value, str):
        return _NAME(value, where)
    if isinstance(value, bool):
        return value
    return real(-1e308, 1e308)(value, where)


def _network_fields() -> dict[str, Check]:
    # Here, since a closed-form model needs no network.
    from jlgcn.estimator.network_document import NETWORK_FIELDS

    return NETWORK_FIELDS


#: Names, types and ranges of all fields of a model's document.
SCHEMA = Schema(
    9,
    {
        "model": variant(
            "solver", {"closed_form": lambda: CLOSED_FORM_FIELDS, "gradient": _network_fields}
        ),
        "estimator": text(200),
        "parameters": record(
            CHECKS
            | {name: maybe(CHECKS[name]) for name in SELECTED}
            | NETWORK_CHECKS
            | {"solver": word(*SOLVERS), "scaler": word(*KINDS)}
            | {"device": text(100), "verbose": flag}
            | dict.fromkeys(("class_weight", "class_prior"), check_plain(_class_value))
        ),
        "classes": record(
            {
                "dtype": word(
                    *("bool", "str", "object", "float16", "float32", "float64"),
                    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
                ),
                "values": list_of(_class_value, _MANY),
            }
        ),
        "scaler": record(
            {
                "kind": word(*(kind for kind in KINDS if kind != "auto")),
                "is_count": flag,
                "power": real(0, 1, above=True),
            }
        ),
        "feature_names": maybe(list_of(_NAME, _MANY)),
        "encoder": ENCODER,
        "table": maybe(
            record(
                {
                    "ids": list_of(_NAME, _MANY),
                    "id_column": maybe(_NAME),
                    "label_column": _NAME,
                    "drop": list_of(_NAME, _MANY),
                    "feature_names": list_of(_NAME, _MANY),
                    "texts": maybe(list_of(_NAME, _MANY)),
                }
            )
        ),
    },
)


def plain(value: Any) -> Any:  # noqa: ANN401
    """Return a parameter as JSON can store it: not as a NumPy scalar, which grid searches set."""
    return value.item() if isinstance(value, np.generic) else value


def classes_to_document(classes: np.ndarray) -> dict[str, Any]:
    """Return the names of classes as JSON."""
    dtype = "str" if classes.dtype.kind == "U" else str(classes.dtype)
    return {"dtype": dtype, "values": classes.tolist()}


def classes_from_document(document: dict[str, Any], num_rows: int) -> np.ndarray:
    """Return the names of classes; predictions will repeat them `num_rows` times."""
    dtype, values = document["dtype"], document["values"]
    kind: Any = {"bool": bool, "str": str, "object": str}.get(
        dtype, int if "int" in dtype else float
    )
    for index, value in enumerate(values):
        if type(value) is not kind:
            raise ValueError(f"classes.values[{index}] must be of {dtype}, but it is {value!r:.60}")
    if kind is int and values:
        limits = np.iinfo(dtype)
        if min(values) < limits.min or max(values) > limits.max:
            raise ValueError(f"classes.values must fit into {dtype}")
    if dtype == "str":
        needed = 4 * max(map(len, values), default=0) * max(num_rows, len(values))
        if needed > _MAX_CLASS_NAME_BYTES:
            raise ValueError(f"names of classes would take {needed:,} bytes; use shorter ones")
        return np.array(values, dtype=str)
    return np.array(values, dtype=np.dtype(dtype))


def model_to_tensors(model: FittedModel) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors of a fitted model, and its other fields as JSON."""
    if isinstance(model, ClosedFormModel):
        tensors, document = closed_form_to_tensors(model)
        return tensors, {"solver": "closed_form"} | document
    from jlgcn.estimator.network_document import network_to_tensors

    tensors, document = network_to_tensors(model)
    return tensors, {"solver": "gradient"} | document


def model_from_tensors(tensors: dict[str, Tensor], document: dict[str, Any]) -> FittedModel:
    """Return a fitted model, on the device of its tensors, after validating all of them."""
    if document["solver"] == "closed_form":
        return closed_form_from_tensors(tensors, document)
    from jlgcn.estimator.network_document import network_from_tensors

    return network_from_tensors(tensors, document)
