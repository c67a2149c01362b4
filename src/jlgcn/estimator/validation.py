"""Validation of the estimator's inputs: features, edges, devices."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data
from torch import Tensor

from jlgcn._memory import check_memory
from jlgcn._validation import not_finite
from jlgcn.closed_form import FeatureScaler
from jlgcn.errors import NodeCountError
from jlgcn.estimator.encoding import encode_new
from jlgcn.graphs import DenseGraph, SparseGraph, as_graph
from jlgcn.ops import SparseFeatures


def validated(
    estimator: BaseEstimator,
    X: ArrayLike,  # noqa: N803
    dtype: Any,  # noqa: ANN401
    labels: NDArray[Any] | None = None,
) -> Any:  # noqa: ANN401
    """Return features as scikit-learn validates them, with errors that say what to do.

    Args:
        estimator: the estimator.
        X: features.
        dtype: dtype of the result, or a list of dtypes that it may have.
        labels: labels in `fit`; None in `predict`, where features must be those of `fit`.
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
    is_fit = labels is not None
    only: dict[str, Any] = {"y": labels, "ensure_min_samples": 2} if is_fit else {"reset": False}
    try:
        found = validate_data(
            estimator, X, dtype=dtype, accept_sparse="csr", ensure_all_finite=False, **only
        )
    except ValueError as error:
        num_columns = None if is_fit else estimator.n_features_in_
        raise ValueError(_with_remedy(str(error), X, num_columns)) from None
    features = found[0] if is_fit else found
    _check_finite(features)
    return features


def _check_finite(features: Any) -> None:  # noqa: ANN401
    is_sparse = scipy.sparse.issparse(features)
    entries = features.data if is_sparse else features
    is_bad = ~np.isfinite(entries)
    if not is_bad.any():
        return
    first = tuple(int(index) for index in np.unravel_index(is_bad.argmax(), is_bad.shape))
    place = first
    if is_sparse:  # row and column of the stored entry
        row = int(np.searchsorted(features.indptr, first[0], side="right")) - 1
        place = (row, int(features.indices[first[0]]))
    raise not_finite("X", place, float(entries[first]), "fill in or leave out such rows")


def _with_remedy(message: str, x: Any, num_columns: int | None) -> str:  # noqa: ANN401
    """Return scikit-learn's message about features, with a remedy.

    Args:
        message: the message.
        x: the features.
        num_columns: number of features in fit; None during fit.
    """
    shape = (x if hasattr(x, "shape") else np.asarray(x, dtype=object)).shape
    if num_columns is not None and shape[:1] == (0,):
        return f"X has 0 rows, its shape is {shape}; pass at least one row to classify"
    if num_columns is not None and len(shape) == 2 and shape[1] != num_columns:
        return f"{message} Pass the columns of fit, in their order"
    if num_columns is None and len(shape) == 2 and shape[0] < 2:
        return f"{message} Pass unlabelled rows, too: the graph joins all rows"
    if scipy.sparse.issparse(x):
        return message
    for place, entry in np.ndenumerate(np.asarray(x, dtype=object)):
        if isinstance(entry, str):
            try:
                float(entry)
            except ValueError:
                return (
                    f"X must be of numbers, but entry {place} is {entry!r}; pass a data "
                    "frame, whose categories, text and dates are encoded, or encode them yourself"
                )
    return message


def check_scaled(scaled: Tensor | SparseFeatures, x: Tensor | SparseFeatures) -> None:
    """Raise if squared distances of scaled features would overflow.

    Args:
        scaled: scaled features.
        x: features before scaling.
    """
    entries = scaled.value if isinstance(scaled, SparseFeatures) else scaled
    bound = _largest_square_root(entries.dtype)
    if not entries.numel() or float(entries.abs().amax()) <= bound:  # False for NaN, too
        return
    first = int((~(entries.abs() <= bound)).flatten().nonzero()[0])
    if isinstance(scaled, SparseFeatures):
        row = int(torch.searchsorted(scaled.crow, first, right=True)) - 1
        place, value = (row, int(scaled.col[first])), "too large"
    else:
        place = (first // scaled.shape[1], first % scaled.shape[1])
        value = f"{float(x[place]):.3g}" if isinstance(x, Tensor) else "too large"
    raise ValueError(
        f"X must be of numbers whose squares {entries.dtype} can hold, but entry {place} is "
        f"{value}, so row {place[0]} is too far from all others; leave it out, or pass the "
        "logarithm of such columns"
    )


def scaled_like_fit(
    estimator: BaseEstimator,
    X: ArrayLike,  # noqa: N803
    scaler: FeatureScaler,
    fitted: Tensor | SparseFeatures,
) -> Tensor | SparseFeatures:
    """Return new rows, scaled, in the format and on the device of the rows of fit.

    Args:
        estimator: the fitted estimator.
        X: features of new rows.
        scaler: its scaler.
        fitted: scaled features of the rows of fit.
    """
    dtype = np.float64 if scaler.scale.dtype == torch.float64 else np.float32
    encoder = getattr(estimator, "encoder_", None)
    if encoder is None:
        features = validated(estimator, X, dtype)
    else:
        features = encode_new(encoder, X).astype(dtype)
    # Distances to rows of fit need the same format: both dense, or both sparse.
    must_be_sparse = isinstance(fitted, SparseFeatures)
    if scipy.sparse.issparse(features) and not must_be_sparse:
        needed = features.shape[0] * features.shape[1] * features.dtype.itemsize
        check_memory(needed, fitted.device, "X with its zeros", "predicting some rows at a time")
        features = features.toarray()
    x = as_features(features).to(fitted.device)
    scaled = scaler(x)
    check_scaled(scaled, x)
    if isinstance(scaled, Tensor) and must_be_sparse:
        scaled = SparseFeatures.from_dense(scaled)
    return scaled


def _largest_square_root(dtype: torch.dtype) -> float:
    """Return a number of which 1e8 squares sum without overflow."""
    return math.sqrt(torch.finfo(dtype).max) / 1e4


def warn_of_equal_rows(x: Tensor | SparseFeatures, scaled: Tensor | SparseFeatures) -> None:
    """Warn if all rows are equal, or if most become equal by scaling.

    Args:
        x: features before scaling.
        scaled: scaled features.
    """
    if not isinstance(x, Tensor):
        return
    differs = (x[1:] != x[:-1]).any(-1)
    if not bool(differs.any()) and bool((x == x[0]).all()):
        warnings.warn(
            "all rows of X are equal, so features carry no information; pass columns that differ",
            UserWarning,
            stacklevel=3,
        )
    elif isinstance(scaled, Tensor):
        distance = (scaled[1:] - scaled[:-1]).square().sum(-1)
        if 2 * int((differs & (distance == 0)).sum()) > int(differs.sum()):
            largest = int(x.abs().argmax())
            place = (largest // x.shape[1], largest % x.shape[1])
            warnings.warn(
                f"most rows of X are equal after scaling, by the range of entry {place}, which is "
                f"{float(x[place]):.3g}; leave out such rows, or subtract a constant",
                UserWarning,
                stacklevel=3,
            )


def probabilities(logits: Tensor) -> NDArray[np.floating]:  # (N, num_classes)
    """Return class probabilities by softmax; raise if one is not finite."""
    found = logits.softmax(-1)
    if not bool(found.isfinite().all()):
        row = int((~found.isfinite()).any(-1).nonzero()[0])
        raise ValueError(
            f"probabilities of row {row} are not finite: its features, or weights of its edges, "
            "are too large or too small; scale them, or leave out the row"
        )
    probability: NDArray[np.floating] = found.cpu().numpy()
    return probability


def as_device(name: str) -> torch.device:
    """Return a device by name, after checking that tensors can be created on it."""
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"device must be one that PyTorch can use here, but {name!r} is not ({reason}); use "
            '"cpu", or a device that "jlgcn doctor" lists'
        ) from None


def as_features(features: Any) -> Tensor | SparseFeatures:  # noqa: ANN401
    """Return validated features as tensors."""
    if scipy.sparse.issparse(features):
        return SparseFeatures.from_scipy(features)
    return torch.from_numpy(np.array(features))  # a copy, as the array may be read-only


def as_sparse(graph: Any, num_nodes: int, dtype: torch.dtype) -> SparseGraph | None:  # noqa: ANN401
    """Return the given graph as a sparse one; None if it has no edges."""
    if graph is None:
        return None
    try:
        found = as_graph(graph, num_nodes, dtype=dtype)
    except NodeCountError as error:
        raise NodeCountError(
            f"{error}. cross_val_score splits rows, so it cannot use a graph of all rows; "
            "jlgcn.compare holds out labels instead"
        ) from None
    if len(found.shape) > 2:
        raise ValueError(f"graph must be one graph, but it is {found}; pass one of the batch")
    if isinstance(found, DenseGraph):
        dense = found.to_dense()
        index = dense.nonzero().mT.contiguous()
        found = SparseGraph(index, dense[index[0], index[1]], num_nodes)
    if not isinstance(found, SparseGraph):
        raise ValueError(
            f"graph must be edges or a matrix, but it is {found}, which is a dense matrix of "
            f"{num_nodes:,} × {num_nodes:,} numbers; pass a kNN graph, "
            "jlgcn.graphs.gaussian_knn_graph(z, 20), or None: a graph is learned anyway"
        )
    if found.has_no_edges:
        return None
    found = found.detach()
    if not float(found.weight.amax()) <= _largest_square_root(dtype):
        raise ValueError(
            f"weights of the graph must be at most {_largest_square_root(dtype):.0e}, but the "
            f"largest is {float(found.weight.amax()):.3g}; divide all of them by a constant"
        )
    return found
