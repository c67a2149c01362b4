"""Download of ModelNet40 in the community's layout."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path, PurePosixPath

from jlgcn._files import new_folder, sha256_of, write_file
from jlgcn._memory import check_unpacked
from jlgcn.io.download import download
from jlgcn.io.files import data_root

#: Archives by the name of their folder. No hash is published with them.
ADDRESSES = {
    "modelnet40_ply_hdf5_2048": (
        "https://shapenet.cs.stanford.edu/media/modelnet40_ply_hdf5_2048.zip"
    )
}

_CONTENT = "train_files.txt, test_files.txt, shape_names.txt and the ply_data_*.h5 they list"


def download_clouds(
    folder: str,
    root: str | os.PathLike[str] | None = None,
    *,
    sha256: str | None,
) -> Path:
    """Download and unpack a folder of clouds, unless it is there; return its path.

    Args:
        folder: name of the folder.
        root: folder of all data; None for the environment variable JLGCN_DATA.
        sha256: SHA-256 of the archive. This package knows none, so whoever trusts one passes it.

    Raises:
        ValueError: the folder has no known address, or the archive no known hash, or another.
    """
    path = data_root(root) / folder
    if path.is_dir():
        return path
    place = f"the folder {path} has {_CONTENT}"
    if folder not in ADDRESSES:
        raise ValueError(
            f"{folder} cannot be downloaded, no address is known; put the files there yourself, so "
            f"that {place}"
        )
    address = ADDRESSES[folder]
    if sha256 is None:
        raise ValueError(
            f"{address} is not downloaded without a SHA-256 to compare it with, and none is "
            "published; pass the one you trust (--sha256), or unpack the archive yourself, so that "
            f"{place}"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    packed = path.with_suffix(".zip")
    if not packed.exists():
        download(address, packed, sha256)
    unpack_clouds(packed, path, sha256)
    packed.unlink()
    return path


def unpack_clouds(packed: Path, path: Path, sha256: str) -> None:
    """Unpack the lists and HDF5 files of an archive, and nothing else, to a new folder.

    Args:
        packed: the archive.
        path: the folder; complete if it exists.
        sha256: hash of the archive.
    """
    content = packed.read_bytes()
    found = sha256_of(content)
    if found != sha256.lower():
        raise ValueError(
            f"{packed} must have the SHA-256 {sha256[:16]}…, but it has {found[:16]}…; delete it "
            "and download it again, or pass its hash if you trust it"
        )
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        # By their last name only: a path of an archive may point anywhere.
        members = {
            PurePosixPath(each.filename).name: each
            for each in archive.infolist()
            if not each.is_dir() and PurePosixPath(each.filename).suffix in (".txt", ".h5")
        }
        if "train_files.txt" not in members:
            raise ValueError(f"{packed} must have {_CONTENT}, but it has no train_files.txt")
        size = sum(each.file_size for each in members.values())
        check_unpacked(packed, size, "unpack it yourself if it is meant")
        with new_folder(path) as folder:
            for name, each in members.items():
                write_file(folder / name, archive.read(each))
