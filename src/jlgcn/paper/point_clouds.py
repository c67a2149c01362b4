"""Point clouds from the community's HDF5 folders."""

from __future__ import annotations

import hashlib
import math
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from jlgcn._memory import check_unpacked
from jlgcn._optional import require
from jlgcn._validation import check_finite
from jlgcn.io.files import data_root
from jlgcn.paper.cloud_data import CloudData
from jlgcn.paper.corrupt import drop_labels

# Errors of h5py and zlib on damaged or unexpected files.
_NOT_HDF5 = (
    *(OSError, KeyError, ValueError, TypeError, RuntimeError, AttributeError, MemoryError),
    zlib.error,
)


def load_clouds(
    folder: str | os.PathLike[str],
    root: str | os.PathLike[str] | None = None,
    *,
    val_fraction: float = 0.1,
    seed: int = 0,
) -> CloudData:
    """Read point clouds from a folder in the layout of ``modelnet40_ply_hdf5_2048``.

    ``train_files.txt`` and ``test_files.txt`` list HDF5 files of the same folder, each with
    datasets ``data`` (B, N, 3) and ``label`` (B, 1); ``shape_names.txt`` lists the classes. A
    stratified part of the training clouds becomes the validation set, so that test clouds are never
    used for selection. Needs the extra `pointcloud`.

    Args:
        folder (path): folder of the data set, absolute or relative to `root`.
        root (path or None, default None): folder of all data; None for the environment variable
            JLGCN_DATA.
        val_fraction (float in [0, 1], default 0.1): fraction of each class for validation.
        seed (int, default 0): random seed of the split.

    Returns:
        Clouds, classes and split, on the CPU.
    """
    h5py = require("h5py", "pointcloud", "reading point clouds")
    path = Path(folder) if Path(folder).is_dir() else data_root(root) / folder
    if not path.is_dir():
        raise FileNotFoundError(
            f"{path} is not there; set JLGCN_DATA (or root=, --data) to the folder that has it, or "
            "pass its path"
        )
    digest = hashlib.sha256()
    parts = {}
    for part in ("train", "test"):
        files = [path / Path(line).name for line in _lines(path / f"{part}_files.txt")]
        read = [_read_hdf5(h5py, file, digest) for file in files]
        if not read:
            raise ValueError(f"{path / f'{part}_files.txt'} lists no files")
        parts[part] = [torch.cat(tensors) for tensors in zip(*read, strict=True)]
    num_train = len(parts["train"][0])
    points, y = (torch.cat([parts["train"][i], parts["test"][i]]) for i in range(2))
    clouds = torch.arange(len(y), device=y.device)
    train, test = clouds[:num_train], clouds[num_train:]
    val = drop_labels(train, y, 1 - val_fraction, seed=seed)
    names = path / "shape_names.txt"
    return CloudData(
        name=path.name,
        points=points,
        y=y,
        train=train[~torch.isin(train, val)],
        val=val,
        test=test,
        sha256=digest.hexdigest(),
        class_names=tuple(_lines(names)) if names.exists() else None,
    )


def _lines(path: Path) -> list[str]:
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is not there; a folder of clouds has train_files.txt and test_files.txt"
        )
    return [line.strip() for line in path.read_text().splitlines() if line.strip()]


def _read_hdf5(
    h5py: Any,  # noqa: ANN401
    path: Path,
    digest: Any,  # noqa: ANN401
) -> tuple[Tensor, Tensor]:
    if not path.exists():
        raise FileNotFoundError(f"{path} is listed in its folder but not there; get it again")
    digest.update(path.read_bytes())
    try:
        with h5py.File(path, "r") as file:
            arrays = [_own_array(h5py, file, "data", "fiu"), _own_array(h5py, file, "label", "iu")]
            # HDF5 reads whole chunks, and numbers are converted to float32 and int64.
            claimed = sum(
                max(array.size, math.prod(array.chunks or ())) * max(array.dtype.itemsize, width)
                for array, width in zip(arrays, (4, 8), strict=True)
            )
            check_unpacked(path, claimed, "write it without compression if it is meant")
            for array in arrays:
                _check_chunks(h5py, array, path.stat().st_size)
            data, label = (np.asarray(array) for array in arrays)
    except _NOT_HDF5 as problem:
        raise ValueError(f"{path} is not a file of clouds ({problem}); get it again") from None
    if data.ndim != 3 or data.shape[-1] != 3 or label.size != len(data):
        raise ValueError(
            f"{path} must have data (clouds, points, 3) and a label for each, but they are "
            f"{data.shape} and {label.shape}"
        )
    points = torch.from_numpy(data.astype(np.float32))
    check_finite(points, f"points of {path}", "leave out this cloud, or get the file again")
    return points, torch.from_numpy(label.reshape(-1).astype(np.int64))


def _own_array(h5py: Any, file: Any, name: str, kinds: str) -> Any:  # noqa: ANN401
    """Return a dataset stored in the file itself; HDF5 would follow links to other files."""
    link = file.get(name, getlink=True)
    if not isinstance(link, h5py.HardLink):
        where = "is not there" if link is None else f"is a link ({type(link).__name__})"
        raise ValueError(f"{name!r} {where}; write the array itself under this name")
    array = file[name]
    if not isinstance(array, h5py.Dataset):
        raise ValueError(f"{name!r} must be a dataset, but it is a {type(array).__name__}")
    for is_elsewhere, kind in ((array.is_virtual, "a virtual"), (array.external, "an external")):
        if is_elsewhere:
            raise ValueError(
                f"{name!r} is {kind} dataset, stored in other files; store its numbers in this one"
            )
    if array.dtype.kind not in kinds:
        raise ValueError(
            "points must be numbers and labels whole numbers, but "
            f"{name!r} is {array.dtype}; write float32 and int64"
        )
    return array


def _check_chunks(h5py: Any, array: Any, file_bytes: int) -> None:  # noqa: ANN401
    """Raise on a decompression bomb: HDF5 unpacks a chunk beyond the size of its shape."""
    properties = array.id.get_create_plist()
    filters = [properties.get_filter(index)[0] for index in range(properties.get_nfilters())]
    z = h5py.h5z
    known = {z.FILTER_SHUFFLE, z.FILTER_DEFLATE, z.FILTER_LZF, z.FILTER_FLETCHER32}
    if len(set(filters)) < len(filters) or not known.issuperset(filters):
        raise ValueError(
            f"{array.name} has the HDF5 filters {filters}, but only gzip or lzf, shuffle and "
            "fletcher32 are supported, each once; write it with gzip, or uncompressed"
        )
    if z.FILTER_DEFLATE not in filters:
        return  # lzf expands less than 100-fold
    was_skipped = 1 << filters.index(z.FILTER_DEFLATE)
    longest = math.prod(array.chunks) * array.dtype.itemsize + 4  # with a checksum
    chunks: list[Any] = []
    array.id.chunk_iter(chunks.append)
    for chunk in chunks:
        if chunk.size > file_bytes:
            raise ValueError(f"a chunk of {array.name} is longer than the file")
        if chunk.filter_mask & was_skipped:
            continue
        _, packed = array.id.read_direct_chunk(chunk.chunk_offset)
        if len(zlib.decompressobj().decompress(packed, longest + 1)) > longest:
            raise ValueError(
                f"a chunk of {array.name} has {longest - 4:,} bytes by its shape, but unpacks to "
                "more"
            )
