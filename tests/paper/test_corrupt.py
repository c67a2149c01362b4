from __future__ import annotations

import pytest
import torch

from jlgcn import SparseGraph
from jlgcn.paper.corrupt import corrupt, drop_edges, drop_labels
from tests.training.small import small_data


def ring(size: int) -> torch.Tensor:
    nodes = torch.arange(size)
    edges = torch.stack([nodes, nodes.roll(1)])
    return torch.cat([edges, edges.flip(0)], -1)


@pytest.mark.parametrize("fraction", [0.0, 0.25, 0.5, 0.9, 1.0])
def test_the_asked_share_of_edges_goes_in_both_directions(fraction: float) -> None:
    kept = drop_edges(ring(100), fraction, seed=0)
    assert kept.shape[1] == 2 * round((1 - fraction) * 100)
    SparseGraph(kept, num_nodes=100)  # refuses a graph with one direction only


def test_seeds_choose_edges() -> None:
    first = drop_edges(ring(100), 0.5, seed=0)
    assert torch.equal(first, drop_edges(ring(100), 0.5, seed=0))
    assert not torch.equal(first, drop_edges(ring(100), 0.5, seed=1))


def test_dropping_more_keeps_a_part_of_what_dropping_less_keeps() -> None:
    more = set(map(tuple, drop_edges(ring(100), 0.75, seed=0).t().tolist()))
    less = set(map(tuple, drop_edges(ring(100), 0.25, seed=0).t().tolist()))
    assert more < less


@pytest.mark.parametrize(("fraction", "left"), [(0, 20), (0.25, 15), (0.5, 10), (0.75, 5), (1, 1)])
def test_each_class_loses_the_same_share_of_labels(fraction: float, left: int) -> None:
    y = torch.arange(7).repeat(30)
    train = torch.arange(140)
    kept = drop_labels(train, y, fraction, seed=0)
    assert torch.bincount(y[kept]).tolist() == [left] * 7
    assert torch.isin(kept, train).all()
    if 0 < fraction < 1:
        assert not torch.equal(kept, drop_labels(train, y, fraction, seed=1))


def test_shares_outside_of_zero_and_one_are_refused() -> None:
    with pytest.raises(ValueError, match=r"between 0 and 1, but it is 1\.5"):
        drop_edges(ring(5), 1.5, seed=0)
    with pytest.raises(ValueError, match="between 0 and 1, but it is -1"):
        drop_labels(torch.arange(3), torch.zeros(3), -1, seed=0)


def test_both_are_taken_away_as_each_alone() -> None:
    data = small_data()
    less = corrupt(data, edges_missing=0.5, labels_missing=0.25, seed=3)
    assert torch.equal(less.edge_index, drop_edges(data.edge_index, 0.5, seed=3))
    assert torch.equal(less.train, drop_labels(data.train, data.y, 0.25, seed=3))
    assert corrupt(data, edges_missing=0, labels_missing=0, seed=3) is data
