from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from jlgcn.data import load_npz
from tests.data.real import DATA, needs_data


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
        ({"test": np.array([5])}, r"\(5, 5\)"),
        ({"y": np.array([{}], dtype=object)}, "is not a plain NPZ file"),
    ],
)
def test_wrong_arrays_are_refused(
    tmp_path: Path, changed: dict[str, np.ndarray], message: str
) -> None:
    np.savez(tmp_path / "wrong.npz", **small(**changed))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        load_npz(tmp_path / "wrong.npz")


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("not a zip file")
    with pytest.raises(ValueError, match="is not a plain NPZ file"):
        load_npz(tmp_path / "text.npz")
    with pytest.raises(FileNotFoundError, match="is not there"):
        load_npz(tmp_path / "nothing.npz")
