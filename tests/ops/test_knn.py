from __future__ import annotations

import sys

import pytest
import torch
from torch import Tensor

from jlgcn.ops import SparseFeatures, nearest_neighbors
from jlgcn.ops.knn import NeighborIndex, Search, _without_self
from tests.brute import points


def brute(z: Tensor, num_neighbors: int) -> Tensor:
    distance = (z.unsqueeze(0) - z.unsqueeze(1)).square().sum(-1)
    distance.fill_diagonal_(torch.inf)
    return distance.topk(num_neighbors, largest=False).indices


@pytest.mark.parametrize("num_neighbors", [1, 5, 79])
def test_exact_search_equals_brute_force(
    monkeypatch: pytest.MonkeyPatch, num_neighbors: int
) -> None:
    monkeypatch.setattr("jlgcn.ops.knn.BLOCK_ENTRIES", 80 * 7)  # several blocks
    z = points(80, 4)
    got = nearest_neighbors(z, num_neighbors, search="exact")
    assert torch.equal(got.sort(-1).values, brute(z, num_neighbors).sort(-1).values)


def test_faiss_finds_nearly_all_neighbours() -> None:
    z = torch.randn(20, 16).repeat_interleave(100, 0) + 0.3 * torch.randn(2000, 16)
    found = nearest_neighbors(z, 10, search="faiss")
    exact = nearest_neighbors(z, 10, search="exact")
    assert found.shape == (2000, 10)
    assert not (found == torch.arange(2000).unsqueeze(-1)).any()
    recall = (found.unsqueeze(-1) == exact.unsqueeze(-2)).any(-1).float().mean()
    assert float(recall) > 0.95


@pytest.mark.parametrize("search", ["exact", "faiss"])
def test_neighbours_of_other_points(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jlgcn.ops.knn.BLOCK_ENTRIES", 80 * 7)
    z, queries = points(80, 4), points(30, 4)
    got = nearest_neighbors(z, 5, queries=queries, search=search, num_probes=99)
    distance = (queries.unsqueeze(1) - z).square().sum(-1)
    assert torch.equal(got.sort(-1).values, distance.topk(5, largest=False).indices.sort().values)
    itself = nearest_neighbors(z, 1, queries=z[:9], search=search, num_probes=99)
    assert itself.squeeze().tolist() == list(range(9))
    assert nearest_neighbors(z, 99, queries=queries, search="exact").shape == (30, 80)


@pytest.mark.parametrize("search", ["exact", "faiss"])
def test_equal_rows_are_neighbours_but_none_is_its_own(search: Search) -> None:
    z = torch.randn(30, 4).repeat_interleave(4, 0)
    found = nearest_neighbors(z, 3, search=search)
    group = torch.arange(120) // 4
    assert torch.equal(group[found], group.unsqueeze(-1).expand(-1, 3))
    assert not (found == torch.arange(120).unsqueeze(-1)).any()


def test_an_offset_does_not_change_neighbours() -> None:
    z = torch.randint(-500, 500, (60, 3)).float() / 64
    near = nearest_neighbors(z, 5).sort(-1).values
    assert torch.equal(nearest_neighbors(z + 4096, 5).sort(-1).values, near)


def test_a_row_that_did_not_find_itself_loses_its_last_neighbour() -> None:
    found = torch.tensor([[1, 0, 2], [1, 2, 0], [0, 1, -1]])
    assert _without_self(found).tolist() == [[1, 2], [2, 0], [0, 1]]


def test_half_precision_and_no_other_rows() -> None:
    assert nearest_neighbors(torch.randn(40, 3).bfloat16(), 4).shape == (40, 4)
    assert nearest_neighbors(torch.randn(1, 3), 4).shape == (1, 0)
    assert nearest_neighbors(torch.randn(3, 3), 4).shape == (3, 2)
    assert nearest_neighbors(torch.randn(0, 3), 4, queries=torch.randn(2, 3)).shape == (2, 0)


def test_many_rows_without_faiss_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    monkeypatch.setattr("jlgcn.ops.knn.MAX_EXACT_ROWS", 10)
    with pytest.raises(ModuleNotFoundError, match=r'11 rows.*pip install "jlgcn\[ann\]"'):
        nearest_neighbors(torch.randn(11, 2), 3)


def test_bad_arguments_are_refused_with_a_remedy() -> None:
    z = torch.randn(5, 2)
    with pytest.raises(ValueError, match="auto, exact, faiss, but it is 'fast'"):
        nearest_neighbors(z, 2, search="fast")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="z must be a matrix"):
        nearest_neighbors(z.unsqueeze(0), 2)
    with pytest.raises(ValueError, match="num_neighbors must be at least 1, but it is 0"):
        nearest_neighbors(z, 0)


def test_sparse_rows_have_the_neighbours_of_dense_ones_but_empty_ones_are_nobodys() -> None:
    x = torch.rand(60, 20, dtype=torch.float64) * (torch.rand(60, 20) < 0.4)
    x[x.sum(-1) == 0, 0] = 0.5
    sparse, queries = SparseFeatures.from_dense(x), SparseFeatures.from_dense(x[:7])
    for of in (None, queries):
        dense_of = None if of is None else x[:7]
        found = nearest_neighbors(sparse, 5, queries=of).sort(-1).values
        assert torch.equal(found, nearest_neighbors(x, 5, queries=dense_of).sort(-1).values)
    x[10:] = 0
    found = nearest_neighbors(SparseFeatures.from_dense(x), 12)
    assert found.shape == (60, 12)
    assert int(found.max()) < 10
    assert int((found[0] < 0).sum()) == 3  # nine others have entries


def test_faiss_finds_neighbours_of_sparse_rows_by_their_components() -> None:
    pytest.importorskip("faiss")
    x = torch.rand(300, 20) * (torch.rand(300, 20) < 0.4)
    x[:5] = 0
    sparse = SparseFeatures.from_dense(x)
    for queries in (None, SparseFeatures.from_dense(x[100:150])):
        exact = nearest_neighbors(sparse, 5, queries=queries)
        found = nearest_neighbors(sparse, 5, queries=queries, search="faiss", num_probes=40)
        rows = slice(5, None) if queries is None else slice(None)
        assert torch.equal(found.sort(-1).values[rows], exact.sort(-1).values[rows])
        assert int(found.min()) >= 5  # rows without an entry are nobody's neighbours


def test_an_index_answers_few_and_many_queries_alike() -> None:
    z, queries = torch.randn(400, 6), torch.randn(300, 6)
    index = NeighborIndex(z, search="exact")
    found = index.search(4, queries)
    assert torch.equal(index.search(4, queries[:3]), found[:3])
    assert torch.equal(found, nearest_neighbors(z, 4, queries=queries))
