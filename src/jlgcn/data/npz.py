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

from jlgcn._checks import check_edge_index, check_finite, check_unpacked
from jlgcn.data.files import sha256_of
from jlgcn.data.node_data import NodeData, both_directions

Arrays = Mapping[str, np.ndarray]

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
        check_unpacked(path, claimed, "write it with numpy.savez, uncompressed, if it is meant")
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except _NOT_NPZ as problem:
        raise ValueError(
            f"{path} is not a plain NPZ file ({problem}); write it with numpy.savez"
        ) from None


def _as_data(path: Path, arrays: Arrays, split: int, edges: str | None, sha256: str) -> NodeData:
    if "node_features" in arrays:
        x = torch.from_numpy(arrays["node_features"]).float()
        y = _required(arrays, "node_labels", path)
        edge_array = _required(arrays, edges or "edges", path).T
        parts = [_required(arrays, f"{part}_masks", path) for part in ("train", "val", "test")]
        if not 0 <= split < len(parts[0]):
            raise ValueError(f"{path} has splits 0 to {len(parts[0]) - 1}, but split is {split}")
        indices = [masks[split].nonzero()[0] for masks in parts]
    else:
        x = _compressed_features(arrays, path)
        y = _required(arrays, "y", path)
        edge_array = _required(arrays, edges or "edge_index", path)
        indices = [arrays.get(part, np.empty(0, np.int64)) for part in ("train", "val", "test")]
    if x.dim() != 2 or y.ndim != 1:
        raise ValueError(
            f"{path} must have features (N, K) and labels (N,), but they are {tuple(x.shape)} and "
            f"{y.shape}; get the file again"
        )
    if len(y) != len(x):
        raise ValueError(f"{path} has {len(x)} rows of features but {len(y)} labels")
    check_finite(x, f"x of {path}", "get the file again, or fill them in")
    edge_index = torch.from_numpy(np.ascontiguousarray(edge_array)).long()
    check_edge_index(edge_index, len(x))
    train, val, test = (torch.from_numpy(index).long() for index in indices)
    for part in (train, val, test):
        check_edge_index(part.expand(2, -1), len(x))
    return NodeData(
        name=path.stem,
        x=x,
        y=torch.from_numpy(y).long(),
        edge_index=both_directions(edge_index, len(x)),
        train=train,
        val=val,
        test=test,
        sha256=sha256,
        names=tuple(arrays["names"].tolist()) if "names" in arrays else None,
        class_names=tuple(arrays["classes"].tolist()) if "classes" in arrays else None,
    )


def _compressed_features(arrays: Arrays, path: Path) -> Tensor:
    indptr, indices, data, shape = (
        _required(arrays, f"x_{part}", path) for part in ("indptr", "indices", "data", "shape")
    )
    try:
        matrix = scipy.sparse.csr_matrix(
            (data.astype(np.float32), indices.astype(np.int64), indptr), shape=tuple(shape.tolist())
        )
        matrix.check_format(full_check=True)
    except (ValueError, TypeError) as problem:
        raise ValueError(f"the features of {path} are not compressed rows ({problem})") from None
    return torch.from_numpy(matrix.toarray())


def _required(arrays: Arrays, name: str, path: Path) -> np.ndarray:
    if name not in arrays:
        raise ValueError(f"{path} has no array {name!r}; it has {', '.join(sorted(arrays))}")
    return arrays[name]
