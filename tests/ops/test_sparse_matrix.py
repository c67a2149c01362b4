from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch
from torch.autograd import gradcheck, gradgradcheck

from jlgcn.ops import SparseFeatures
from jlgcn.ops.sparse_matrix import pair_distances
from tests.brute import F64, largest_difference, points


def bag(rows: int = 9, columns: int = 12) -> torch.Tensor:
    x = torch.rand(rows, columns, dtype=F64)
    x[x < 0.7] = 0
    x[3] = 0  # a row and a column without entries
    x[:, 5] = 0
    return x


def test_products_and_gradients_equal_those_of_the_dense_matrix() -> None:
    dense = bag()
    sparse = SparseFeatures.from_dense(dense)
    weight = points(12, 4, grad=True)
    assert largest_difference(sparse @ weight, dense @ weight) < 1e-14
    assert gradcheck(lambda w: sparse @ w, (weight,))
    assert gradgradcheck(lambda w: (sparse @ w).square(), (weight,))


def test_dropout_drops_entries_and_keeps_their_mean() -> None:
    ones = SparseFeatures.from_dense(torch.ones(100, 100))
    dropped = ones.dropout(0.25)
    values = dropped.value
    assert values.unique().tolist() == pytest.approx([0, 4 / 3])
    assert float(values.mean()) == pytest.approx(1, abs=0.03)
    assert ones.dropout(0.25, training=False) is ones
    assert float(ones.value.min()) == 1


def test_dropout_of_nothing_and_of_everything() -> None:
    x = SparseFeatures.from_dense(bag())
    assert x.dropout(0.0) is x
    assert x.dropout(1.0, training=False) is x
    assert not x.dropout(1.0).value.any()


def test_scipy_matrices_of_any_kind() -> None:
    dense = bag()
    for kind in (scipy.sparse.csr_matrix, scipy.sparse.coo_array, scipy.sparse.csc_array):
        sparse = SparseFeatures.from_scipy(kind(dense.numpy()))
        assert sparse.dtype == F64
        assert (sparse.to_scipy().toarray() == dense.numpy()).all()
    counts = SparseFeatures.from_scipy(scipy.sparse.csr_array([[0, 3], [1, 0]]))
    assert counts.dtype == torch.float32
    twice = scipy.sparse.coo_array(([1.0, 2.0, 0.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    assert SparseFeatures.from_scipy(twice).value.tolist() == [3]
    assert repr(counts) == "SparseFeatures(2 × 2, 2 entries, cpu)"


def test_compiles() -> None:
    torch.compiler.reset()
    sparse, weight = SparseFeatures.from_dense(bag()), points(12, 4)
    compiled = torch.compile(lambda w: (sparse @ w) * 2, fullgraph=True, backend="aot_eager")
    assert largest_difference(compiled(weight), 2 * (sparse @ weight)) < 1e-14


def test_weights_of_other_features_are_refused() -> None:
    with pytest.raises(ValueError, match=r"a row for each of 12 columns.* have 3"):
        SparseFeatures.from_dense(bag()) @ points(3, 4)


def test_transposing_scaling_and_mapping_equal_those_of_the_dense_matrix() -> None:
    dense = bag()
    sparse = SparseFeatures.from_dense(dense)
    assert torch.equal(torch.from_numpy(sparse.mT.to_scipy().toarray()), dense.mT)
    assert torch.equal(torch.from_numpy(sparse.mT.mT.to_scipy().toarray()), dense)
    weight = points(9, 2, grad=True)
    assert gradcheck(lambda w: sparse.mT @ w, (weight,))
    rows, columns = points(9).abs(), points(12)
    scaled = torch.from_numpy(sparse.scaled(rows, columns).to_scipy().toarray())
    assert largest_difference(scaled, rows[:, None] * dense * columns) < 1e-14
    assert torch.equal(sparse.map(torch.sqrt).value, sparse.value.sqrt())
    assert largest_difference(sparse.square_norms(), dense.square().sum(-1)) < 1e-14


def test_distances_of_pairs_dense_and_sparse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jlgcn.ops.sparse_matrix._CHUNK_ENTRIES", 30)  # a few pairs at a time
    first, second = bag(), bag(7)
    row, col = torch.randint(9, (50,)), torch.randint(7, (50,))
    expected = (first[row] - second[col]).square().sum(-1)
    assert largest_difference(pair_distances(first, row, col, second), expected) < 1e-14
    sparse = [SparseFeatures.from_dense(x) for x in (first, second)]
    assert largest_difference(pair_distances(sparse[0], row, col, sparse[1]), expected) < 1e-14
    assert pair_distances(first, row, row).max() == 0
    none = torch.empty(0, dtype=torch.int64)
    assert pair_distances(first, none, none).shape == (0,)
    assert pair_distances(sparse[0], none, none).shape == (0,)


def test_a_scipy_matrix_is_not_changed_and_its_later_changes_have_no_effect() -> None:
    parts = np.array([0.0, 2.0, 3.0]), np.array([1, 1, 0]), np.array([0, 2, 3])
    matrix = scipy.sparse.csr_array(parts, shape=(2, 2))  # a 0, and an entry in two parts
    for part in (matrix.data, matrix.indices, matrix.indptr):
        part.flags.writeable = False
    features = SparseFeatures.from_scipy(matrix)
    assert matrix.nnz == 3
    assert matrix.data.tolist() == [0, 2, 3]
    canonical = scipy.sparse.csr_array(np.eye(2))
    features = SparseFeatures.from_scipy(canonical)
    canonical.data *= 5
    assert features.value.tolist() == [1, 1]
