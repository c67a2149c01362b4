from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from jlgcn.paper import load_clouds
from tests.real_data import DATA, needs_data


def write_folder(folder: Path, **changes: np.ndarray) -> Path:
    folder.mkdir()
    generator = np.random.default_rng(0)
    for part, count in (("train", 20), ("test", 6)):
        arrays = {
            "data": generator.normal(size=(count, 8, 3)).astype(np.float32),
            "label": (np.arange(count) % 2).astype(np.uint8)[:, None],
        } | changes
        with h5py.File(folder / f"ply_data_{part}0.h5", "w") as file:
            for name, array in arrays.items():
                file[name] = array
        (folder / f"{part}_files.txt").write_text(f"data/elsewhere/ply_data_{part}0.h5\n")
    (folder / "shape_names.txt").write_text("chair\nlamp\n")
    return folder


def test_a_folder_in_the_communitys_layout(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "clouds")
    data = load_clouds(folder, val_fraction=0.2)
    assert data.points.shape == (26, 8, 3)
    assert (len(data.train), len(data.val), len(data.test)) == (16, 4, 6)
    assert sorted(torch.cat([data.train, data.val, data.test]).tolist()) == list(range(26))
    assert data.y[data.val].bincount().tolist() == [2, 2]
    assert data.class_names == ("chair", "lamp")
    assert data.num_classes == 2
    assert "26 clouds of 8 points" in repr(data)
    again = load_clouds("clouds", tmp_path, val_fraction=0.2)
    assert again.sha256 == data.sha256
    assert torch.equal(again.val, data.val)
    assert not torch.equal(load_clouds(folder, val_fraction=0.2, seed=1).val, data.val)


@needs_data
@pytest.mark.parametrize(
    ("name", "train", "test", "classes"),
    [("modelnet10_voxel_hdf5_1024", 3979, 836, 10), ("shapes69_hdf5_1024", 1977, 493, 69)],
)
def test_the_sets_at_hand(name: str, train: int, test: int, classes: int) -> None:
    data = load_clouds(name, DATA)
    assert (len(data.train) + len(data.val), len(data.test)) == (train, test)
    assert data.num_classes == classes == len(data.class_names or ())
    assert data.points.shape[1:] == (1024, 3)
    assert float(data.points.norm(dim=-1).max()) < 1.01
    assert set(data.y[data.val].tolist()) == set(range(classes))


def test_what_is_no_folder_of_clouds_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="set JLGCN_DATA"):
        load_clouds("nothing", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"has train_files\.txt and test_files\.txt"):
        load_clouds(tmp_path)
    folder = write_folder(tmp_path / "a", data=np.zeros((4, 8, 2), np.float32))
    with pytest.raises(ValueError, match=r"must have data \(clouds, points, 3\)"):
        load_clouds(folder)
    folder = write_folder(tmp_path / "b", data=np.full((20, 8, 3), np.nan, np.float32))
    with pytest.raises(ValueError, match=r"points of .* must be finite.*but entry \(0, "):
        load_clouds(folder)
    folder = write_folder(tmp_path / "c")
    (folder / "ply_data_test0.h5").write_bytes(b"cut")
    with pytest.raises(ValueError, match="is not a file of clouds"):
        load_clouds(folder)
    (folder / "ply_data_test0.h5").unlink()
    with pytest.raises(FileNotFoundError, match="is listed in its folder but not there"):
        load_clouds(folder)


def secret(folder: Path) -> Path:
    """Write a file whose numbers must not come back as points."""
    with h5py.File(folder / "secret.h5", "w") as file:
        file["data"] = np.ones((20, 8, 3), np.float32)
    np.ones((20, 8, 3), np.float32).tofile(folder / "secret.raw")
    return folder / "secret.h5"


def link_out(file: h5py.File, other: Path) -> None:
    file["data"] = h5py.ExternalLink(str(other), "data")


def link_within(file: h5py.File, other: Path) -> None:
    file["inner"] = h5py.ExternalLink(str(other), "/")
    file["data"] = h5py.SoftLink("/inner/data")


def store_outside(file: h5py.File, other: Path) -> None:
    raw = [(str(other.with_suffix(".raw")), 0, 20 * 8 * 3 * 4)]
    file.create_dataset("data", (20, 8, 3), "f4", external=raw)


def gather(file: h5py.File, other: Path) -> None:
    layout = h5py.VirtualLayout((20, 8, 3), "f4")
    layout[:] = h5py.VirtualSource(str(other), "data", (20, 8, 3))
    file.create_virtual_dataset("data", layout)


def nothing(file: h5py.File, other: Path) -> None:
    pass


def group(file: h5py.File, other: Path) -> None:
    file.create_group("data")


def words(file: h5py.File, other: Path) -> None:
    file["data"] = np.array([["a", "b", "c"]] * 20, dtype=h5py.string_dtype())


def unpack_twice(file: h5py.File, other: Path) -> None:
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk((20, 8, 3))
    for _ in range(2):
        properties.set_deflate(9)
    space = h5py.h5s.create_simple((20, 8, 3))
    h5py.h5d.create(file.id, b"data", h5py.h5t.IEEE_F32LE, space, properties)


def pack_too_much(file: h5py.File, other: Path) -> None:
    data = file.create_dataset("data", (20, 8, 3), "f4", chunks=(20, 8, 3), compression="gzip")
    data.id.write_direct_chunk((0, 0, 0), zlib.compress(bytes(10**5)))


def one_huge_chunk(file: h5py.File, other: Path) -> None:
    shape, chunks = (20, 8, 3), (2**24, 8, 3)
    file.create_dataset("data", shape, "f4", chunks=chunks, maxshape=(None, 8, 3))


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (link_out, r"'data' is a link \(ExternalLink\); write the array itself"),
        (link_within, r"'data' is a link \(SoftLink\); write the array itself"),
        (store_outside, "'data' is an external dataset, stored in other files"),
        (gather, "'data' is a virtual dataset, stored in other files"),
        (nothing, "'data' is not there"),
        (group, "'data' must be a dataset, but it is a Group"),
        (words, "points must be numbers and labels whole numbers, but 'data' is object"),
        (unpack_twice, r"has the HDF5 filters \[1, 1\], but only gzip or lzf, .* each once"),
        (pack_too_much, "a chunk of /data has 1,920 bytes by its shape, but unpacks to more"),
        (one_huge_chunk, "says that it holds 1,610,612,"),
    ],
)
def test_only_numbers_of_the_file_itself_are_read_and_no_more_than_it_says(
    tmp_path: Path, write: Callable[[h5py.File, Path], None], message: str
) -> None:
    folder = write_folder(tmp_path / "clouds")
    with h5py.File(folder / "ply_data_train0.h5", "a") as file:
        del file["data"]
        write(file, secret(tmp_path))
    with pytest.raises(ValueError, match=message):
        load_clouds(folder)


def test_points_are_the_same_however_they_are_packed(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "clouds")
    plain = load_clouds(folder)
    for packing in ({"compression": "gzip", "shuffle": True}, {"compression": "lzf"}):
        with h5py.File(folder / "ply_data_train0.h5", "a") as file:
            points = file["data"][:]
            del file["data"]
            file.create_dataset(
                "data",
                data=points,
                chunks=(3, 8, 3),
                maxshape=(None, 8, 3),
                fletcher32=True,
                **packing,
            )
        assert torch.equal(load_clouds(folder).points, plain.points)
