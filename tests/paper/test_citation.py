from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from jlgcn.paper import load_planetoid
from jlgcn.paper.citation import SHA256, Planetoid, normalize_rows, subsample
from jlgcn.paper.node_data import NodeData
from jlgcn.paper.restricted_pickle import read_numbers
from tests.real_data import DATA, needs_data


@needs_data
@pytest.mark.parametrize(
    ("name", "nodes", "edges", "features", "classes", "train"),
    [
        ("cora", 2708, 5278, 1433, 7, 140),
        ("citeseer", 3327, 4552, 3703, 6, 120),
        ("pubmed", 19717, 44324, 500, 3, 60),
    ],
)
def test_the_published_facts(
    name: Planetoid, nodes: int, edges: int, features: int, classes: int, train: int
) -> None:
    data = load_planetoid(name, DATA)
    assert data.x.shape == (nodes, features)
    assert data.edge_index.shape == (2, 2 * edges)
    assert data.num_classes == classes
    assert (len(data.train), len(data.val), len(data.test)) == (train, 500, 1000)
    assert torch.bincount(data.y[data.train]).tolist() == [20] * classes
    assert int((data.y < 0).sum()) == (15 if name == "citeseer" else 0)
    assert len(torch.cat([data.train, data.val, data.test]).unique()) == train + 1500
    graph = data.graph()
    assert torch.equal(graph.weight, torch.ones(2 * edges))
    assert f"{nodes:,} nodes, {edges:,} edges" in repr(data)


@needs_data
def test_labels_fit_the_edges() -> None:
    # A shuffled test part would spoil this: most citations of Cora stay within a class.
    data = load_planetoid("cora", DATA)
    row, col = data.edge_index
    within = torch.isin(row, data.test) | torch.isin(col, data.test)
    assert float((data.y[row] == data.y[col])[within].float().mean()) > 0.8


@needs_data
def test_the_papers_part_of_pubmed() -> None:
    part = subsample(load_planetoid("pubmed", DATA), 10_000)
    assert part.num_nodes == 11_560
    assert (len(part.train), len(part.val), len(part.test)) == (60, 500, 1000)
    assert part.edge_index.max() < 11_560
    assert torch.bincount(part.y[part.train]).tolist() == [20, 20, 20]


def test_a_subset_is_numbered_anew() -> None:
    data = NodeData(
        name="path",
        x=torch.arange(4.0).unsqueeze(-1),
        y=torch.tensor([0, 1, 0, 1]),
        edge_index=torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]),
        train=torch.tensor([0, 1]),
        val=torch.tensor([2]),
        test=torch.tensor([3]),
        sha256="",
        names=("a", "b", "c", "d"),
    )
    part = data.subset(torch.tensor([3, 2, 0]))
    assert part.x.flatten().tolist() == [3, 2, 0]
    assert part.edge_index.tolist() == [[1, 0], [0, 1]]
    assert (part.train.tolist(), part.val.tolist(), part.test.tolist()) == ([2], [1], [0])
    assert part.names == ("d", "c", "a")


def test_rows_have_length_one() -> None:
    x = normalize_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    assert x.norm(dim=-1).tolist() == [1, 0]


def test_missing_files_say_where_they_are_looked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"JLGCN_DATA.*planetoid/ind\.cora\.x.*download"):
        load_planetoid("cora", tmp_path)


def test_another_file_of_the_same_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "planetoid").mkdir()
    for name in SHA256:
        (tmp_path / "planetoid" / name).write_bytes(b"something else")
    with pytest.raises(ValueError, match="is not the published file"):
        load_planetoid("cora", tmp_path)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match="citeseer, cora, pubmed, but it is 'core'"):
        load_planetoid("core")  # type: ignore[arg-type]


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (Path.touch, (Path("exploded"),))  # type: ignore[return-value]


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps(Bomb()),
        pickle.dumps(print),
        pickle.dumps({"a": np.float64(1)}),
        b"cos\nsystem\n(S'touch exploded'\ntR.",
        b"not a pickle",
        b"",
    ],
)
def test_anything_but_numbers_is_refused_unrun(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="not a Planetoid file"):
        read_numbers(content)
    assert not list(tmp_path.iterdir())


def test_operations_of_newer_protocols_are_refused() -> None:
    for content in (
        pickle.dumps(bytearray(b"abc"), protocol=5),
        b"\x80\x05\x96\x01\x00\x00\x00\x00\x00\x00\x00a\x98.",
    ):
        with pytest.raises(ValueError, match="belongs to protocol"):
            read_numbers(content)


def test_a_small_pickle_cannot_ask_for_much_memory() -> None:
    with pytest.raises(ValueError, match="has memo index 2147483647, beyond the file"):
        read_numbers(b"\x80\x02]r\xff\xff\xff\x7f.")
    content = pickle.dumps(np.arange(3), protocol=3)
    # The shape it begins with, K\x00\x85, becomes two thousand million.
    harmful = content.replace(b"K\x00\x85", b"J\xff\xff\xff\x7f\x85", 1)
    assert harmful != content
    with pytest.raises(ValueError, match="begins with shape"):
        read_numbers(harmful)


def test_a_matrix_without_its_fields_is_refused() -> None:
    content = b"\x80\x02cscipy.sparse._csr\ncsr_matrix\nq\x00)\x81q\x01."  # found by fuzzing
    with pytest.raises(ValueError, match="not a Planetoid file"):
        read_numbers(content)


def test_arrays_and_lists_are_read() -> None:
    array = np.arange(6.0).reshape(2, 3)
    assert np.array_equal(read_numbers(pickle.dumps(array, protocol=3)), array)
    assert read_numbers(pickle.dumps({0: [1, 2]}, protocol=2)) == {0: [1, 2]}
