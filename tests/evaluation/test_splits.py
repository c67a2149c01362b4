from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from evaluation.splits import random_split
from evaluation.tables import load_table
from jlgcn.paper.node_data import NodeData


@pytest.fixture
def data() -> NodeData:
    none = torch.arange(0)
    y = torch.tensor([0] * 50 + [1] * 40 + [2] * 6 + [-1] * 4)
    return NodeData("three", torch.ones(100, 1), y, none.view(2, 0), none, none, none, "")


def test_a_split_has_the_sizes_asked_for(data: NodeData) -> None:
    split = random_split(data, per_class=10, num_val=20, seed=0)
    assert torch.bincount(split.y[split.train]).tolist() == [10, 10, 3]  # half of a small class
    assert len(split.val) == 20
    together = torch.cat([split.train, split.val, split.test])
    assert together.sort().values.tolist() == list(range(96))  # each once, none without a class


def test_a_split_depends_on_its_seed_alone(data: NodeData) -> None:
    first = random_split(data, per_class=10, num_val=20, seed=0)
    again = random_split(replace(data, train=torch.arange(9)), per_class=10, num_val=20, seed=0)
    other = random_split(data, per_class=10, num_val=20, seed=1)
    assert torch.equal(first.train, again.train)
    assert torch.equal(first.val, again.val)
    assert not torch.equal(first.train, other.train)


def test_excluded_nodes_get_into_no_part(data: NodeData) -> None:
    split = random_split(data, per_class=10, num_val=20, exclude=torch.arange(25), seed=0)
    assert int(torch.cat([split.train, split.val, split.test]).min()) == 25


def test_a_split_without_test_nodes_is_refused(data: NodeData) -> None:
    with pytest.raises(ValueError, match="but 73 nodes with a class are left"):
        random_split(data, per_class=10, num_val=73, seed=0)


@pytest.mark.parametrize(
    ("name", "rows", "features", "classes", "labels"),
    [("wine", 178, 13, 3, 10), ("cancer", 569, 30, 2, 10), ("digits", 1797, 64, 10, 50)],
)
def test_tables(name: str, rows: int, features: int, classes: int, labels: int) -> None:
    data = load_table(name, seed=3)  # type: ignore[arg-type]
    assert data.x.shape == (rows, features)
    assert data.num_classes == classes
    assert (len(data.train), len(data.val)) == (labels, 2 * labels)
    together = torch.cat([data.train, data.val, data.test])
    assert together.sort().values.tolist() == list(range(rows))
    assert len(data.y[data.train].unique()) == classes
    is_scaled = torch.allclose(data.x.mean(0), torch.zeros(features), atol=1e-5)
    assert is_scaled == (name != "digits")


def test_an_unknown_table_is_refused() -> None:
    with pytest.raises(ValueError, match="name must be one of wine, cancer, digits"):
        load_table("iris", seed=0)  # type: ignore[arg-type]
