"""Weights and prior probabilities of classes, as users give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jlgcn._schema import Check, list_of, real


def class_weights(
    class_weight: Any,  # noqa: ANN401
    classes: NDArray[Any],
    codes: NDArray[np.int64],
    count: NDArray[np.float64] | None = None,
) -> NDArray[np.float64] | None:  # (C,)
    """Return the weight of every class; None if all weigh the same.

    Args:
        class_weight: None, "balanced", or weights by class; classes that are not named weigh 1.
        classes: names of the classes, (C,).
        codes: classes of the labels, as indices into `classes`, (M,).
        count: number of labels that each counts as, (M,); None for 1.
    """
    if class_weight is None:
        return None
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise ValueError(
                f'class_weight must be None, "balanced" or a dict, but it is {class_weight!r}'
            )
        number = np.bincount(codes, count, minlength=len(classes))
        is_present = number > 0
        weight = np.ones(len(classes))
        weight[is_present] = number.sum() / (is_present.sum() * number[is_present])
    else:
        weight = _by_class(class_weight, classes, "class_weight", default=1.0)
        if not (weight > 0).all():
            raise ValueError(f"weights of class_weight must be above 0, but they are {weight}")
    return weight


def prior_probabilities(
    class_prior: Any,  # noqa: ANN401
    classes: NDArray[Any],
) -> NDArray[np.float64] | None:  # (C,)
    """Return the prior probability of every class, which sum to 1; None if none are given.

    Args:
        class_prior: None, probabilities in the order of `classes`, or a dict by class.
        classes: names of the classes, (C,).
    """
    if class_prior is None:
        return None
    if isinstance(class_prior, Mapping):
        prior = _by_class(class_prior, classes, "class_prior", default=np.nan)
    else:
        prior = np.asarray(class_prior, dtype=np.float64)
    if prior.shape != (len(classes),) or not (prior > 0).all():
        raise ValueError(
            f"class_prior must have a probability above 0 for each of the {len(classes)} classes "
            f"{classes.tolist()}, but it is {class_prior}"
        )
    found: NDArray[np.float64] = prior / prior.sum()
    return found


def _by_class(
    values: Mapping[Any, float], classes: NDArray[Any], name: str, *, default: float
) -> NDArray[np.float64]:
    known = classes.tolist()
    unknown = [value for value in values if value not in known]
    if unknown:
        raise ValueError(f"{name} names {unknown[0]!r}, but the classes of y are {known}")
    return np.array([float(values.get(value, default)) for value in known])


def to_plain(value: Any) -> Any:  # noqa: ANN401
    """Return a parameter as JSON can store it: a dict as pairs, an array as a list."""
    if isinstance(value, Mapping):
        return [[_plain(key), float(weight)] for key, weight in value.items()]
    if isinstance(value, str) or value is None:
        return value
    return [float(weight) for weight in np.asarray(value, dtype=np.float64)]


def from_plain(value: Any) -> Any:  # noqa: ANN401
    """Return the parameter that :func:`to_plain` made storable."""
    if isinstance(value, list) and value and isinstance(value[0], list):
        return dict(value)
    return value


def check_plain(class_value: Check) -> Check:
    """Return the check of a stored parameter, whose classes have a check of their own."""
    amount = real(0, 1e300)

    def entry(value: Any, where: str) -> Any:  # noqa: ANN401
        if not isinstance(value, list):
            return amount(value, where)
        if len(value) != 2:
            raise ValueError(f"{where} must be a class and a number, but it is {value!r:.60}")
        return [class_value(value[0], where), amount(value[1], where)]

    many = list_of(entry, 10**9)

    def check(value: Any, where: str) -> Any:  # noqa: ANN401
        return value if value is None or value == "balanced" else many(value, where)

    return check


def _plain(value: Any) -> Any:  # noqa: ANN401
    return value.item() if isinstance(value, np.generic) else value
