"""Work around labels: rows of no known class, and labels that come later."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


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
