"""Graphs in plain NPZ files: no pickle, every array checked."""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from jlgcn._files import sha256_of
from jlgcn._memory import check_unpacked
from jlgcn._validation import check_edge_index, check_finite
from jlgcn.paper.node_data import NodeData, both_directions

Arrays = Mapping[str, np.ndarray]

_PARTS = ("train", "val", "test")
_UNCOMPRESSED = "write it with numpy.savez, uncompressed, if it is meant"

#: Bags of words hold few numbers other than 0: ours grow up to 420-fold when they become dense.
_LARGEST_DENSE_RATIO = 2000

# What NumPy and zipfile raise for files that are not theirs, or not any more.
_NOT_NPZ = (
    *(ValueError, OSError, zipfile.BadZipFile, EOFError, KeyError, TypeError, SyntaxError),
    *(NotImplementedError, RuntimeError, MemoryError, OverflowError, zlib.error, struct.error),
)


def load_npz(path: str | os.PathLike[str], *, split: int = 0, edges: str | None = None) -> NodeData:
    """Read nodes, features, classes, edges and, where there is one, a split.

    Two ways to name the arrays are understood:

    - ``edge_index`` (2, E), ``y`` (N,), features in compressed rows as ``x_indptr``,
      ``x_indices``, ``x_data``, ``x_shape``; optional ``train``, ``val``, ``test`` (indices),
      ``names`` (N,), ``classes`` (C,);
    - ``edges`` (E, 2), ``node_labels``, ``node_features`` (N, K), ``train_masks``, ``val_masks``,
      ``test_masks`` (S, N), of which row `split` is taken.

    Args:
        path: the file.
        split: which of several splits.
        edges: name of the array of edges, where a file has several (the attacked graphs have
            ``edge_index_0.00`` to ``edge_index_0.25``).

    Without a split, `train`, `val` and `test` are empty. Features are returned dense.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there; pass the path of an NPZ file")
    content = path.read_bytes()
    arrays = _read_arrays(path)
    try:
        return _as_data(path, arrays, split, edges, sha256_of(content))
    except (TypeError, IndexError, OverflowError, RuntimeError, AttributeError) as problem:
        raise ValueError(
            f"the arrays of {path} are not those of a graph ({problem}); get the file again"
        ) from None


def _read_arrays(path: Path) -> Arrays:
    try:
        with zipfile.ZipFile(path) as archive:
            claimed = sum(entry.file_size for entry in archive.infolist())
        check_unpacked(path, claimed, _UNCOMPRESSED)
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except _NOT_NPZ as problem:
        raise ValueError(
            f"{path} is not a plain NPZ file ({problem}); write it with numpy.savez"
        ) from None


def _as_data(path: Path, arrays: Arrays, split: int, edges: str | None, sha256: str) -> NodeData:
    if "node_features" in arrays:
        x = _numbers(arrays, "node_features", path)
        label_name = "node_labels"
        edge_array = _integers(arrays, edges or "edges", path).T
        indices = _split_of_masks(arrays, split, len(x) if x.dim() else 0, path)
    else:
        x = _compressed_features(arrays, path)
        label_name = "y"
        edge_array = _integers(arrays, edges or "edge_index", path)
        indices = [
            _integers(arrays, part, path, high=len(x) - 1) if part in arrays else np.empty(0, int)
            for part in _PARTS
        ]
    classes = _texts(arrays, "classes", path)
    # There are never more classes than nodes, unless the file names more.
    most = max(len(x), 0 if classes is None else len(classes)) - 1
    y = _integers(arrays, label_name, path, low=-1, high=most)
    if x.dim() != 2 or y.ndim != 1 or any(index.ndim != 1 for index in indices):
        raise ValueError(
            f"{path} must have features (N, K), labels (N,) and one-dimensional splits, but they "
            f"are {tuple(x.shape)}, {y.shape} and {', '.join(str(i.shape) for i in indices)}; get "
            "the file again"
        )
    if len(y) != len(x):
        raise ValueError(f"{path} has {len(x)} rows of features but {len(y)} labels")
    names = _texts(arrays, "names", path)
    if names is not None and len(names) != len(x):
        raise ValueError(f"{path} has {len(x)} rows of features but {len(names)} names")
    check_finite(x, f"x of {path}", "get the file again, or fill them in")
    edge_index = torch.from_numpy(np.ascontiguousarray(edge_array))
    check_edge_index(edge_index, len(x))
    train, val, test = (torch.from_numpy(index) for index in indices)
    return NodeData(
        name=path.stem,
        x=x,
        y=torch.from_numpy(y),
        edge_index=both_directions(edge_index, len(x)),
        train=train,
        val=val,
        test=test,
        sha256=sha256,
        names=names,
        class_names=classes,
    )


def _split_of_masks(arrays: Arrays, split: int, num_nodes: int, path: Path) -> list[np.ndarray]:
    masks = [_required(arrays, f"{part}_masks", path) for part in _PARTS]
    num_splits = len(masks[0]) if masks[0].ndim else 0
    for part, mask in zip(_PARTS, masks, strict=True):
        if mask.dtype != np.bool_ or mask.shape != (num_splits, num_nodes):
            raise ValueError(
                f"{part}_masks of {path} must be bool of shape (splits, nodes), here "
                f"({num_splits}, {num_nodes}), but it is {mask.dtype} of shape {mask.shape}; write "
                "a row of bool for each split"
            )
    if not 0 <= split < num_splits:
        raise ValueError(f"{path} has splits 0 to {num_splits - 1}, but split is {split}")
    return [mask[split].nonzero()[0] for mask in masks]


def _compressed_features(arrays: Arrays, path: Path) -> Tensor:
    shape = _integers(arrays, "x_shape", path).tolist()
    data = _required(arrays, "x_data", path)
    indptr = _integers(arrays, "x_indptr", path, high=data.size)
    if np.shape(shape) != (2,) or indptr.shape != (shape[0] + 1,) or data.dtype.kind not in "biuf":
        raise ValueError(
            f"the features of {path} are not compressed rows: x_shape must be (rows, columns), "
            "x_indptr have an entry for each row and one more, and x_data be of real numbers, but "
            f"x_shape is {shape}, x_indptr of shape {indptr.shape} and x_data {data.dtype}"
        )
    remedy = "leave out columns without entries, or write all zeros, as node_features"
    check_unpacked(path, 4 * shape[0] * shape[1], remedy, largest_ratio=_LARGEST_DENSE_RATIO)
    indices = _integers(arrays, "x_indices", path)
    try:
        with np.errstate(over="ignore"):  # what float32 cannot hold is refused as infinite
            values = data.astype(np.float32)
        matrix = scipy.sparse.csr_matrix((values, indices, indptr), shape=tuple(shape))
        matrix.check_format(full_check=True)
    except (ValueError, TypeError) as problem:
        raise ValueError(f"the features of {path} are not compressed rows ({problem})") from None
    return torch.from_numpy(matrix.toarray())


def _numbers(arrays: Arrays, name: str, path: Path) -> Tensor:
    found = _required(arrays, name, path)
    if found.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} of {path} must be of real numbers, but it is {found.dtype}; write float32"
        )
    check_unpacked(path, 4 * found.size, _UNCOMPRESSED)
    return torch.from_numpy(found).float()


def _integers(
    arrays: Arrays, name: str, path: Path, *, low: int = 0, high: int = 2**63 - 1
) -> np.ndarray:
    """Return an array as int64 if its numbers are whole and between `low` and `high`."""
    found = _required(arrays, name, path)
    if found.dtype.kind not in "iu":
        raise ValueError(
            f"{name} of {path} must be of whole numbers, but it is {found.dtype}, which may hide "
            "NaN and fractions; write it as int64"
        )
    check_unpacked(path, 8 * found.size, _UNCOMPRESSED)
    if found.size and (int(found.min()) < low or int(found.max()) > high):
        is_bad = (found < low) | (found > high)
        first = tuple(int(place[0]) for place in is_bad.nonzero())
        raise ValueError(
            f"{name} of {path} must lie between {low} and {high}, but entry {first} is "
            f"{found[first]}; number nodes and classes from 0"
        )
    return found.astype(np.int64)


def _texts(arrays: Arrays, name: str, path: Path) -> tuple[str, ...] | None:
    if name not in arrays:
        return None
    found = arrays[name]
    if found.ndim != 1 or found.dtype.kind != "U":
        raise ValueError(
            f"{name} of {path} must be a list of texts, but it is {found.dtype} of shape "
            f"{found.shape}; write it with numpy.array(names, dtype=str)"
        )
    return tuple(found.tolist())


def _required(arrays: Arrays, name: str, path: Path) -> np.ndarray:
    if name not in arrays:
        raise ValueError(f"{path} has no array {name!r}; it has {', '.join(sorted(arrays))}")
    return arrays[name]
