from __future__ import annotations

import pytest
import torch

from jlgcn.ops import SparseFeatures
from jlgcn.ops.svd import principal_directions
from tests.brute import F64, largest_difference, points


def test_features_along_directions_are_those_of_a_singular_value_decomposition() -> None:
    x = points(40, 7)
    u, s, _ = torch.linalg.svd(x, full_matrices=False)
    projected = x @ principal_directions(x, 4, power=0.5)
    expected = (u * (s / s[0]) ** 0.5 * s[0])[:, :4]
    assert largest_difference(projected.abs(), expected.abs()) < 1e-12


def test_sparse_features_have_the_directions_of_dense_ones() -> None:
    x = points(30, 6) * (torch.rand(30, 6) < 0.5)
    dense, sparse = (principal_directions(f, 3) for f in (x, SparseFeatures.from_dense(x)))
    assert largest_difference(dense, sparse) < 1e-13


@pytest.mark.parametrize("is_sparse", [False, True])
def test_wide_features_keep_nearly_all_of_their_length(is_sparse: bool) -> None:
    signal = points(200, 5) @ points(5, 1500)
    x = signal + 0.01 * points(200, 1500)
    features = SparseFeatures.from_dense(x) if is_sparse else x
    found = principal_directions(features, 5)
    assert largest_difference(found.mT @ found, torch.eye(5, dtype=F64)) < 1e-10
    assert float((x @ found).norm() / x.norm()) > 0.999
    assert torch.equal(
        found, principal_directions(SparseFeatures.from_dense(x) if is_sparse else x, 5)
    )


def test_features_of_zeros_and_more_components_than_features() -> None:
    assert principal_directions(torch.zeros(4, 3), 2).isfinite().all()
    assert principal_directions(torch.randn(10, 3), 99).shape == (3, 3)


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("num_features", [30, 2000])
def test_there_are_no_more_directions_than_rows(num_features: int, is_sparse: bool) -> None:
    x = points(20, num_features)
    features = SparseFeatures.from_dense(x) if is_sparse else x
    found = principal_directions(features, 1024, power=0.5)
    assert found.shape == (num_features, 20)
    u, s, _ = torch.linalg.svd(x, full_matrices=False)
    expected = u * (s / s[0]) ** 0.5 * s[0]
    assert largest_difference((x @ found).abs(), expected.abs()) < 1e-10
    every = principal_directions(features, 1024)
    assert largest_difference(every.mT @ every, torch.eye(20, dtype=F64)) < 1e-10


def test_rows_that_are_all_alike_or_zeros_have_finite_directions() -> None:
    x = torch.ones(5, 30) * torch.linspace(0, 1, 30)
    found = principal_directions(x, 9)
    assert float((x @ found).norm() / x.norm()) == pytest.approx(1)
    assert float((x @ found[:, 1:]).abs().max()) < 1e-4
    assert principal_directions(torch.zeros(4, 30), 9).isfinite().all()
