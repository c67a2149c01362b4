from __future__ import annotations

from collections.abc import Callable

import pytest
import scipy.sparse
import torch

from jlgcn.graphs import KernelGraph, attach, gaussian_knn_graph, personalized_pagerank, top_edges
from jlgcn.graphs.explanation import mean_contributions
from jlgcn.ops import SparseFeatures, kernel_matmul, nearest_neighbors
from jlgcn.ops.dropout import dropout
from jlgcn.ops.flash import flash_works
from jlgcn.ops.gaussian import _Part, _parts
from jlgcn.ops.sparse_matrix import pair_distances
from jlgcn.ops.svd import principal_directions
from tests.devices import explicit_devices, no_synchronization

Z = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
SPARSE = SparseFeatures.from_scipy(scipy.sparse.random_array((20, 30), density=0.2, random_state=0))
WIDE = SparseFeatures.from_scipy(scipy.sparse.random_array((40, 1200), density=0.1, random_state=0))


@pytest.mark.parametrize(
    "compute",
    [
        lambda: kernel_matmul(Z, Z, Z),
        lambda: kernel_matmul(100 * Z, Z, Z),
        lambda: kernel_matmul(Z, Z, Z, method="blocks"),
        lambda: flash_works.__wrapped__(Z.device, Z.dtype),
        lambda: nearest_neighbors(Z, 2),
        lambda: nearest_neighbors(SPARSE, 2),
        lambda: pair_distances(SPARSE, torch.tensor([0]), torch.tensor([1])),
        lambda: dropout(torch.eye(9), 0.5),
        lambda: dropout(torch.ones(9, 9), 0.5),
        lambda: principal_directions(Z, 2),
        lambda: principal_directions(SPARSE, 30),
        lambda: principal_directions(SPARSE, 2),
        lambda: principal_directions(WIDE, 2),
        lambda: SPARSE.mT.scaled(torch.ones(30), torch.ones(20)).square_norms(),
        lambda: gaussian_knn_graph(Z, 2, gaussian_knn_graph(Z, 1)),
        lambda: personalized_pagerank(KernelGraph(Z).normalized(), Z, 0.5),
        lambda: top_edges(KernelGraph(Z), top_k=2),
        lambda: top_edges(gaussian_knn_graph(Z, 3), top_k=2),
        lambda: attach(KernelGraph(Z), 2),
        lambda: mean_contributions(SPARSE, torch.ones(30, 2)),
    ],
)
def test_every_new_tensor_names_its_device(compute: Callable[[], object]) -> None:
    with explicit_devices():
        compute()


def test_lengths_of_points_are_not_read_on_an_accelerator() -> None:
    z = torch.empty(5, 2, device="meta")
    assert _parts(z, z, None, guarded=True) == [_Part()]


def test_an_accelerator_drops_without_counting_zeros() -> None:
    with no_synchronization():
        assert dropout(torch.empty(5, 2, device="meta"), 0.5).shape == (5, 2)


def test_sparse_features_are_scaled_without_reading_sizes() -> None:
    with no_synchronization():
        SPARSE.scaled(torch.ones(20), torch.ones(30)).square_norms()
