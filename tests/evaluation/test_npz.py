from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from evaluation.npz import load_npz
from tests.real_data import DATA, needs_data


@needs_data
@pytest.mark.parametrize(
    ("file", "nodes", "edges"),
    [
        ("graphs/amazon_photo.npz", 7650, 119081),
        ("graphs/amazon_cs.npz", 13752, 245861),
        ("graphs/blogcatalog.npz", 5196, 171743),
        ("graphs/coauthor_cs.npz", 18333, 81894),
        ("graphs/flickr.npz", 7575, 239738),
    ],
)
def test_graphs_without_a_split(file: str, nodes: int, edges: int) -> None:
    data = load_npz(DATA / file)
    assert data.num_nodes == nodes
    assert data.edge_index.shape == (2, 2 * edges)
    assert len(data.train) == 0
    assert data.x.dtype == torch.float32


@needs_data
def test_debian_packages_have_names() -> None:
    data = load_npz(DATA / "graphs/debian_packages.npz")
    assert data.num_nodes == 60_506
    assert data.edge_index.shape == (2, 2 * 249_605)
    assert data.names is not None
    assert "python3" in data.names
    assert data.class_names is not None
    assert len(data.class_names) == data.num_classes == 39
    row, col = data.edge_index
    assert float((data.y[row] == data.y[col]).float().mean()) == pytest.approx(0.51, abs=0.01)


@needs_data
@pytest.mark.parametrize("name", ["actor", "chameleon_filtered", "minesweeper", "tolokers"])
def test_ten_splits(name: str) -> None:
    first, last = (load_npz(DATA / f"heterophilous/{name}.npz", split=s) for s in (0, 9))
    for data in (first, last):
        parts = torch.cat([data.train, data.val, data.test])
        assert len(parts.unique()) == len(parts)
        assert len(data.train) > len(data.val)
    assert not torch.equal(first.train, last.train)
    with pytest.raises(ValueError, match="has splits 0 to 9, but split is 10"):
        load_npz(DATA / f"heterophilous/{name}.npz", split=10)


@needs_data
def test_attacked_graphs() -> None:
    clean = load_npz(DATA / "attacks/cora_metattack.npz", edges="edge_index_0.00")
    attacked = load_npz(DATA / "attacks/cora_metattack.npz", edges="edge_index_0.25")
    assert clean.num_nodes == 2485
    assert clean.edge_index.shape[1] == 2 * 5069
    assert attacked.edge_index.shape[1] > clean.edge_index.shape[1]
    with pytest.raises(ValueError, match=r"no array 'edge_index'; it has edge_index_0\.00"):
        load_npz(DATA / "attacks/cora_metattack.npz")


def small(**changed: np.ndarray) -> dict[str, np.ndarray]:
    arrays = {
        "edge_index": np.array([[0, 1, 1], [1, 2, 0]]),
        "y": np.array([0, 1, 0]),
        "x_indptr": np.array([0, 1, 2, 2]),
        "x_indices": np.array([0, 1]),
        "x_data": np.array([1.0, 2.0]),
        "x_shape": np.array([3, 2]),
    }
    return arrays | changed


def test_a_small_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "small.npz", **small(train=np.array([0])))  # type: ignore[arg-type]
    data = load_npz(tmp_path / "small.npz")
    assert data.x.tolist() == [[1, 0], [0, 2], [0, 0]]
    assert data.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert data.train.tolist() == [0]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"edge_index": np.array([[0], [7]])}, r"edge 0 is \(0, 7\)"),
        ({"y": np.array([0, 1])}, "3 rows of features but 2 labels"),
        ({"x_data": np.array([1.0, np.nan])}, r"x of .* must be finite.*but entry \(1, "),
        ({"x_indices": np.array([0, 9])}, "are not compressed rows"),
        ({"x_shape": np.array([3])}, "are not compressed rows"),
        ({"test": np.array([5])}, r"test of .* must lie between 0 and 2, but entry \(0,\) is 5"),
        ({"train": np.array([-1])}, r"train of .* must lie between 0 and 2, .* is -1"),
        ({"val": np.array([0.9])}, "val of .* must be of whole numbers, but it is float64"),
        ({"val": np.array([[0]])}, r"one-dimensional splits, .* and \(0,\), \(1, 1\), \(0,\)"),
        ({"edge_index": np.array([[0.0], [1.5]])}, "edge_index of .* whole numbers, .* float64"),
        ({"edge_index": np.array([[0], [-1]])}, r"between 0 and .*, but entry \(1, 0\) is -1"),
        ({"y": np.array([0, np.nan, 1])}, "y of .* float64, which may hide NaN.*write it as int64"),
        ({"y": np.array([True, False, True])}, "y of .* must be of whole numbers, but it is bool"),
        ({"y": np.array([0, -2, 1])}, r"y of .* between -1 and 2, but entry \(1,\) is -2"),
        ({"y": np.array([0, 2**62, 1])}, r"y of .* between -1 and 2, but entry \(1,\) is 4611"),
        (
            {"y": np.array([0, 2**64 - 1, 1], np.uint64)},
            r"but entry \(1,\) is 18446744073709551615",
        ),
        ({"x_indices": np.array([0.2, 1.0])}, "x_indices of .* must be of whole numbers"),
        ({"x_indptr": np.array([0.0, 1.0, 2.0, 2.0])}, "x_indptr of .* must be of whole numbers"),
        ({"x_indptr": np.array([0, 1, 2, 9])}, r"x_indptr of .* 0 and 2, but entry \(3,\) is 9"),
        ({"x_indptr": np.array([0, 2, 1, 2])}, "are not compressed rows"),
        ({"x_indptr": np.array([0, 1, 2])}, r"x_shape is \[3, 2\], x_indptr of shape \(3,\)"),
        ({"x_shape": np.array([3.0, 2.0])}, "x_shape of .* must be of whole numbers"),
        ({"x_shape": np.array([3, 6 * 10**8])}, "says that it holds 7,200,000,000.*leave out col"),
        ({"x_data": np.array([1j, 2])}, "x_data be of real numbers, but .* x_data complex128"),
        ({"names": np.array(["a", "b"])}, "3 rows of features but 2 names"),
        ({"names": np.array([1, 2, 3])}, "names of .* must be a list of texts, but it is int64"),
        ({"y": np.array([{}], dtype=object)}, "is not a plain NPZ file"),
    ],
)
def test_wrong_arrays_are_refused(
    tmp_path: Path, changed: dict[str, np.ndarray], message: str
) -> None:
    np.savez(tmp_path / "wrong.npz", **small(**changed))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        load_npz(tmp_path / "wrong.npz")


def masked(**changed: np.ndarray) -> dict[str, np.ndarray]:
    arrays = {
        "edges": np.array([[0, 1], [1, 2]]),
        "node_labels": np.array([0, 1, 0]),
        "node_features": np.eye(3),
        "train_masks": np.array([[True, False, False], [False, True, False]]),
        "val_masks": np.array([[False, True, False], [False, False, True]]),
        "test_masks": np.array([[False, False, True], [True, False, False]]),
    }
    return arrays | changed


def test_a_small_file_of_masks(tmp_path: Path) -> None:
    np.savez(tmp_path / "small.npz", **masked())  # type: ignore[arg-type]
    data = load_npz(tmp_path / "small.npz", split=1)
    assert [part.tolist() for part in (data.train, data.val, data.test)] == [[1], [2], [0]]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"train_masks": np.zeros((2, 3))},
            r"train_masks of .* bool .* but it is float64 of shape",
        ),
        ({"val_masks": np.zeros((2, 4), bool)}, r"here \(2, 3\), but it is bool of shape \(2, 4\)"),
        ({"test_masks": np.zeros((1, 3), bool)}, r"test_masks .* but it is bool of shape \(1, 3\)"),
        ({"train_masks": np.array(True)}, r"train_masks of .* but it is bool of shape \(\)"),
        ({"node_features": np.eye(3) * 1j}, "node_features of .* real numbers, but it is complex"),
        ({"node_features": np.array(["a"] * 3)}, "node_features of .* real numbers, but it is <U1"),
        ({"node_features": np.array(1.0)}, "masks of .* must be bool of shape"),
        ({"node_labels": np.array([0.0, 1, 0])}, "node_labels of .* whole numbers, .* float64"),
        (
            {"edges": np.array([[0.5, 1]])},
            "edges of .* must be of whole numbers, but it is float64",
        ),
    ],
)
def test_wrong_masks_features_and_labels_are_refused(
    tmp_path: Path, changed: dict[str, np.ndarray], message: str
) -> None:
    np.savez(tmp_path / "wrong.npz", **masked(**changed))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        load_npz(tmp_path / "wrong.npz")


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("node_features", np.zeros((60, 10**6), np.int8)),
        ("edges", np.zeros((3 * 10**7, 2), np.int8)),
    ],
)
def test_what_grows_as_it_becomes_wider_is_refused_before(
    tmp_path: Path, name: str, array: np.ndarray
) -> None:
    np.savez_compressed(tmp_path / "narrow.npz", **masked(**{name: array}))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"and says that it holds [24]\d\d,"):
        load_npz(tmp_path / "narrow.npz")


def test_a_class_that_no_node_has_may_be_named(tmp_path: Path) -> None:
    changes = {"y": np.array([0, 4, -1]), "classes": np.array(list("abcde"))}
    np.savez(tmp_path / "named.npz", **small(**changes))  # type: ignore[arg-type]
    assert load_npz(tmp_path / "named.npz").num_classes == 5


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("not a zip file")
    with pytest.raises(ValueError, match="is not a plain NPZ file"):
        load_npz(tmp_path / "text.npz")
    with pytest.raises(FileNotFoundError, match="is not there"):
        load_npz(tmp_path / "nothing.npz")
