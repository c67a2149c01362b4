"""A fitted estimator as tensors and a JSON document, and back."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from torch import Tensor

from jlgcn.closed_form import FeatureScaler
from jlgcn.estimator.class_weights import to_plain
from jlgcn.estimator.document import (
    TableNames,
    classes_from_document,
    classes_to_document,
    model_from_tensors,
    model_to_tensors,
    plain,
)
from jlgcn.estimator.encoder_document import encoder_from_tensors, encoder_to_tensors
from jlgcn.estimator.encoding import num_columns_of


def to_document(
    estimator: Any,  # noqa: ANN401
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors of a fitted :class:`JLGCNClassifier`, and all else as JSON."""
    tensors, model = model_to_tensors(estimator.model_)
    scaler = estimator.scaler_
    tensors |= {"scaler/shift": scaler.shift, "scaler/scale": scaler.scale}
    of_encoder, encoder = encoder_to_tensors(estimator.encoder_)
    tensors |= of_encoder
    names = getattr(estimator, "feature_names_in_", None)
    parameters = {name: plain(value) for name, value in estimator.get_params().items()}
    for name in ("class_weight", "class_prior"):
        parameters[name] = to_plain(parameters[name])
    document = {
        "model": model,
        "estimator": type(estimator).__name__,
        "parameters": parameters | {"verbose": bool(estimator.verbose)},
        "classes": classes_to_document(estimator.classes_),
        "scaler": {name: getattr(scaler, name) for name in ("kind", "is_count", "power")},
        "feature_names": None if names is None else names.tolist(),
        "encoder": encoder,
        "table": None if estimator.table_ is None else asdict(estimator.table_),
    }
    return tensors, document


def restore(
    estimator: Any,  # noqa: ANN401
    tensors: dict[str, Tensor],
    document: dict[str, Any],
) -> None:
    """Set the fitted attributes of an estimator; raise a ValueError unless they fit together."""
    encoder = encoder_from_tensors(tensors, document["encoder"])
    model = model_from_tensors(tensors, document["model"])
    num_rows, num_classes = model.logits.shape
    num_features = num_columns = model.x.shape[1]
    if encoder is not None:
        num_encoded = len(encoder.get_feature_names_out())
        if num_encoded != num_features:
            raise ValueError(f"{num_features:,} features are encoded as {num_encoded:,}")
        num_columns = num_columns_of(encoder)
    names, table = document["feature_names"], document["table"]
    found = None if table is None else TableNames(**table)
    counts = [("classes", num_classes, document["classes"]["values"])]
    counts += [] if names is None else [("features", num_columns, names)]
    if found is not None:
        counts += [("rows", num_rows, found.ids)]
        counts += [("columns", num_columns, found.feature_names)]
        counts += [] if found.texts is None else [("rows", num_rows, found.texts)]
    for what, number, given in counts:
        if len(given) != number:
            raise ValueError(f"{number:,} {what} have {len(given):,} names")
    estimator.encoder_ = encoder
    estimator.n_features_in_ = num_columns
    estimator.table_ = found
    estimator.classes_ = classes_from_document(document["classes"], num_rows)
    if names is not None:
        estimator.feature_names_in_ = np.array(names, dtype=object)
    shift, scale = tensors["scaler/shift"], tensors["scaler/scale"]
    estimator.scaler_ = FeatureScaler(shift=shift, scale=scale, **document["scaler"])
    estimator.model_ = model
