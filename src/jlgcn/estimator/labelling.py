"""Work around labels: rows of no known class, labels that come later, folds of labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import StratifiedKFold

from jlgcn.closed_form import ClosedFormModel
from jlgcn.closed_form.update import update_labels, with_classes
from jlgcn.estimator.class_weights import class_weights, prior_probabilities
from jlgcn.estimator.labels import read_labels
from jlgcn.estimator.solvers import FittedModel, fit_model
from jlgcn.graphs.candidates import Features


def with_unknown(
    classes: NDArray[Any],  # (C,)
    probability: NDArray[np.floating],  # (N, C)
    reject: float | None,
) -> NDArray[Any]:  # (N,)
    """Return the most probable class of each row; unknown where an error is likelier than `reject`.

    The reject option of `Chow (1970) <https://doi.org/10.1109/TIT.1970.1054406>`_: optimal if an
    abstention costs `reject` times as much as an error, and probabilities are calibrated. An
    unknown row has the mark of an unlabelled one: -1 among numbers, None among text and booleans.

    Args:
        classes: classes.
        probability: their probabilities.
        reject: largest accepted probability of an error, in [0, 1); None accepts all.
    """
    found: NDArray[Any] = classes[probability.argmax(-1)]
    if reject is None:
        return found
    if not 0 <= reject < 1:
        raise ValueError(f"reject must be at least 0 and below 1, but it is {reject!r}")
    is_number = classes.dtype.kind in "iuf"
    if not is_number:
        found = found.astype(object)
    elif classes.dtype.kind == "u":
        found = found.astype(np.int64)
    found[1 - probability.max(-1) > reject] = -1 if is_number else None
    return found


def label_folds(
    y: ArrayLike, n_splits: int, random_state: int | None
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return stratified folds of the labelled rows; unlabelled rows are in every training part.

    Args:
        y: labels of all rows.
        n_splits: number of folds.
        random_state: seed of the shuffle.
    """
    labels = read_labels(y)
    known, others = np.flatnonzero(labels.is_known), np.flatnonzero(~labels.is_known)
    if n_splits > len(known):
        raise ValueError(
            f"n_splits must be at most {len(known)}, the number of labelled rows, but it is "
            f"{n_splits}"
        )
    splitter = StratifiedKFold(n_splits, shuffle=True, random_state=random_state)
    _, codes = np.unique(labels.values[known], return_inverse=True)
    return [
        (np.sort(np.concatenate([known[kept], others])), known[held_out])
        for kept, held_out in splitter.split(known, codes)
    ]


class _Labels(NamedTuple):
    """Labels of some rows.

    Attributes:
        classes: names of the classes, (C,).
        train: labelled rows, (M,).
        codes: their classes, as indices into `classes`, (M,).
        counts: number of labels that each counts as, (M,).
    """

    classes: NDArray[Any]
    train: NDArray[np.int64]
    codes: NDArray[np.int64]
    counts: NDArray[np.float64]


def updated(
    model: FittedModel,
    classes: NDArray[Any],
    labels: Mapping[int, Any],
    parameters: dict[str, Any],
    *,
    relearn: bool,
) -> tuple[NDArray[Any], FittedModel]:
    """Return classes and a model for more, other or fewer labels.

    Args:
        model: the fitted model.
        classes: its classes, (C,).
        labels: class by row number; None, -1, NaN or "" takes the label of a row away.
        parameters: parameters of the estimator.
        relearn: learn metric and graph again, too.
    """
    if not isinstance(model, ClosedFormModel) and not relearn:
        raise ValueError(
            "the head of a network is trained with its metric and graph; pass relearn=True, or "
            'fit with solver="closed_form"'
        )
    merged = _merge(model, classes, labels)
    device = model.train.device
    train, codes, count = (torch.from_numpy(part).to(device) for part in merged[1:])
    if relearn or not isinstance(model, ClosedFormModel):
        y = torch.full((len(model.logits),), -1, device=device)
        y[train] = codes
        counts = torch.ones(len(y), dtype=torch.float64, device=device)
        counts[train] = count
        found = fit_model(
            parameters,
            _scaled_features(model),
            y,
            model.given,
            train,
            classes=merged.classes,
            count=counts if bool((count != 1).any()) else None,
            progress=bool(parameters["verbose"]),
        )
        return merged.classes, found
    if not np.array_equal(merged.classes, classes):
        kept = np.isin(classes, merged.classes)
        if not kept.all():
            lost = classes[~kept].tolist()[0]
            raise ValueError(
                f"class {lost!r} would have no label left; pass relearn=True to do without it"
            )
        places = torch.from_numpy(np.searchsorted(merged.classes, classes)).to(device)
        model = with_classes(model, places, len(merged.classes))
    weights = class_weights(parameters["class_weight"], merged.classes, merged.codes, merged.counts)
    prior = prior_probabilities(parameters["class_prior"], merged.classes)
    return merged.classes, update_labels(
        model,
        train,
        codes,
        weight=None if weights is None else torch.from_numpy(weights[merged.codes]).to(device),
        count=count,
        class_prior=None if prior is None else torch.from_numpy(prior).to(device),
    )


def _scaled_features(model: FittedModel) -> Features:
    """Return the features of a model's rows as scaled; a network divides them by their unit."""
    if isinstance(model, ClosedFormModel):
        return model.x
    # Here, so that the closed form imports no network.
    from jlgcn.estimator.network_model import NetworkModel, as_float64

    assert isinstance(model, NetworkModel)
    return as_float64(model.x, model.unit)


def _merge(model: FittedModel, classes: NDArray[Any], labels: Mapping[int, Any]) -> _Labels:
    """Return the labels of a model with others in addition."""
    last = len(model.logits) - 1
    for row in labels:
        if not isinstance(row, int | np.integer) or not 0 <= row <= last:
            raise ValueError(
                f"labels must name rows of fit by number, from 0 to {last}, but one is {row!r}"
            )
    train = model.train.cpu().numpy()
    names = classes[model.labels.cpu().numpy()].tolist()
    known: dict[int, Any] = dict(zip(train.tolist(), names, strict=True))
    counts = getattr(model, "counts", torch.ones(len(train))).tolist()
    count: dict[int, float] = dict(zip(train.tolist(), counts, strict=True))
    known |= {int(row): label for row, label in labels.items()}
    rows = np.array(sorted(known), dtype=np.int64)
    read = read_labels([known[row] for row in rows.tolist()])
    if not read.is_known.any():
        raise ValueError("no label is left; keep at least one row of each class")
    found, codes = np.unique(read.values[read.is_known], return_inverse=True)
    if classes.dtype.kind == found.dtype.kind:
        found = found.astype(np.promote_types(classes.dtype, found.dtype))
    rows = rows[read.is_known]
    return _Labels(found, rows, codes, np.array([count.get(row, 1.0) for row in rows.tolist()]))
