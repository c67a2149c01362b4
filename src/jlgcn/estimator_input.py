"""What people pass to the estimator, checked and made into tensors: features, labels, edges."""

from __future__ import annotations

import numbers
import warnings
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data
from torch import Tensor

from jlgcn._checks import not_finite
from jlgcn.graphs import SparseGraph, as_graph
from jlgcn.ops import SparseFeatures


def validated(estimator: BaseEstimator, X: ArrayLike, **options: Any) -> Any:  # noqa: ANN401, N803
    """Return features, and labels if there are any, as scikit-learn wants them checked.

    What it says of numbers is made to name the first bad one, and what to do.
    """
    shape = tuple(getattr(X, "shape", ()))
    if len(shape) == 2 and 0 in shape[1:]:
        raise ValueError(
            f"X has 0 feature(s) (shape={shape}) while a minimum of 1 is required.; "
            "pass at least one column"
        )
    if getattr(getattr(X, "dtype", None), "kind", "") == "c":
        raise ValueError(
            f"Complex data not supported: X is {X.dtype}; pass real and imaginary parts "  # type: ignore[union-attr]
            "as columns of their own"
        )
    try:
        found = validate_data(estimator, X, accept_sparse="csr", ensure_all_finite=False, **options)
    except ValueError as error:
        raise ValueError(_with_remedy(str(error), X)) from None
    _check_finite(found[0] if isinstance(found, tuple) else found)
    return found


def _check_finite(features: Any) -> None:  # noqa: ANN401
    is_sparse = scipy.sparse.issparse(features)
    entries = features.data if is_sparse else features
    is_bad = ~np.isfinite(entries)
    if not is_bad.any():
        return
    first = tuple(int(index) for index in np.unravel_index(is_bad.argmax(), is_bad.shape))
    place = first
    if is_sparse:  # the row and column, not where the entry is stored
        row = int(np.searchsorted(features.indptr, first[0], side="right")) - 1
        place = (row, int(features.indices[first[0]]))
    raise not_finite("X", place, float(entries[first]), "fill in or leave out such rows")


def plain_labels(y: ArrayLike) -> Any:  # noqa: ANN401
    """Return labels as an array, with -1 or, among words, "" for those that are missing."""
    if y is None:
        raise ValueError(
            "requires y to be passed, but the target y is None; pass -1 for rows without a label"
        )
    labels = np.asarray(y)
    if labels.dtype.kind not in "OU":
        return labels
    missing = [label is None or label == "" or label != label for label in labels.flat]
    known = [
        label for label, is_missing in zip(labels.flat, missing, strict=True) if not is_missing
    ]
    are_numbers = bool(known) and all(isinstance(label, numbers.Number) for label in known)
    labels = labels.astype(object)
    labels[np.array(missing, dtype=bool).reshape(labels.shape)] = -1 if are_numbers else ""
    # Numbers in an array of objects, as data frames hold them, are numbers: -1 means the same.
    return np.array(labels.tolist()) if are_numbers else labels


def is_labeled(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which rows of :func:`plain_labels` have one."""
    has_label: NDArray[np.bool_] = labels != ("" if labels.dtype.kind in "OU" else -1)
    return has_label


def _with_remedy(message: str, x: Any) -> str:  # noqa: ANN401
    """Return what scikit-learn says of features, with what to do about it."""
    if "is expecting" in message:
        return f"{message} Pass the columns of fit, in their order"
    if message.startswith("Input y"):
        return f"{message} Pass -1 for rows without a label"
    if "sample" in message and "minimum" in message:
        return f"{message} Pass rows without a label, too: they are learned from"
    for place, entry in np.ndenumerate(np.asarray(x, dtype=object)):
        if isinstance(entry, str):
            try:
                float(entry)
            except ValueError:
                return (
                    f"X must be of numbers, but entry {place} is {entry!r}; turn categories into "
                    "columns of 0 and 1, and text into counts of words"
                )
    return message


def warn_of_equal_rows(x: Tensor | SparseFeatures) -> None:
    """Warn if no feature tells any two rows apart."""
    if isinstance(x, Tensor) and bool((x == x[0]).all()):
        warnings.warn(
            "all rows of X are equal, so that nothing can be learned from features; pass columns "
            "that differ",
            UserWarning,
            stacklevel=3,
        )


def as_features(features: Any) -> Tensor | SparseFeatures:  # noqa: ANN401
    """Return checked features as tensors."""
    if scipy.sparse.issparse(features):
        return SparseFeatures.from_scipy(features)
    return torch.from_numpy(np.array(features))  # a copy: what is given may be read-only


def as_sparse(graph: Any, num_nodes: int, dtype: torch.dtype) -> SparseGraph | None:  # noqa: ANN401
    """Return a given graph of all rows; None if it has no edges."""
    if graph is None:
        return None
    try:
        found = as_graph(graph, num_nodes, dtype=dtype)
    except ValueError as error:
        if "are needed" not in str(error):
            raise
        raise ValueError(
            f"{error}. Where rows are split, as in cross_val_score, a graph of all rows cannot be "
            "used; jlgcn.compare hides labels instead of rows"
        ) from None
    if isinstance(found, SparseGraph):
        return None if found.has_no_edges else found
    dense = found.to_dense()
    index = dense.nonzero().mT.contiguous()
    return SparseGraph(index, dense[index[0], index[1]], num_nodes)


def as_edges(edges: ArrayLike, num_new: int, num_old: int) -> Tensor:
    """Return edges from new rows to old ones, each once, (2, E), int64."""
    given = np.asarray(edges)
    if given.ndim != 2 or given.shape[0] != 2:
        raise ValueError(
            f"edges must have the shape (2, edges), but it is {given.shape}; the first row counts "
            "new rows, the second those of fit"
        )
    if given.dtype.kind not in "iu" and given.size:
        raise ValueError(
            f"edges must be of integers, but they are {given.dtype}; call edges.astype(int)"
        )
    pairs = torch.as_tensor(given.astype(np.int64))
    for what, index, size in (("new", pairs[0], num_new), ("old", pairs[1], num_old)):
        if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < size:
            raise ValueError(
                f"edges must name {what} rows from 0 to {size - 1}, but they name "
                f"{int(index.min())} to {int(index.max())}; the first row of edges counts new "
                "rows, the second those of fit"
            )
    unique: Tensor = torch.unique(pairs, dim=1)
    if unique.shape[1] < pairs.shape[1]:
        warnings.warn(
            f"{pairs.shape[1] - unique.shape[1]} edges are listed more than once; they are joined",
            UserWarning,
            stacklevel=4,
        )
    return unique
