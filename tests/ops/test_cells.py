"""The index in steps: cells that are trained on two levels, and kept for the search."""

import pytest
import torch

from jlgcn.ops.cells import NUM_PROBES, CellIndex, rows_for_training, train_cells

pytest.importorskip("faiss")
NUM_CELLS = 150


@pytest.fixture(name="points", scope="module")
def _points() -> torch.Tensor:
    random = torch.Generator().manual_seed(0)
    centers = 4 * torch.randn(30, 12, generator=random)
    return centers.repeat(200, 1) + torch.randn(6000, 12, generator=random)


@pytest.fixture(name="quantizer", scope="module")
def _quantizer(points: torch.Tensor) -> torch.Tensor:
    return train_cells(points[: rows_for_training(NUM_CELLS)], NUM_CELLS)


def test_cells_are_as_many_as_asked_for_and_none_is_far_too_large(
    points: torch.Tensor, quantizer: torch.Tensor
) -> None:
    cells = CellIndex.assign(quantizer, points)
    assert cells.shape == (len(points), NUM_PROBES)
    sizes = cells[:, 0].bincount(minlength=NUM_CELLS)
    assert len(sizes) == NUM_CELLS
    assert (sizes > 0).float().mean() > 0.97
    assert sizes.max() < 6 * len(points) / NUM_CELLS


def test_more_cells_than_a_group_has_rows_for() -> None:
    few = torch.tensor([[0.0, 0.0], [0.0, 1.0], [9.0, 9.0], [9.0, 8.0], [9.0, 9.5], [50.0, 0.0]])
    cells = CellIndex.assign(train_cells(few, 6), few)[:, 0]
    assert len(cells.unique()) == 6


def test_cells_that_were_kept_find_what_a_search_finds_by_itself(
    points: torch.Tensor, quantizer: torch.Tensor
) -> None:
    cells = CellIndex.assign(quantizer, points)
    index = CellIndex.empty(quantizer)
    index.add(points, torch.arange(len(points)), cells[:, 0])
    found = index.search(points[:500], 11, cells[:500])
    torch.testing.assert_close(found, index.search(points[:500], 11), rtol=0, atol=0)
    exact = torch.cdist(points[:500], points).topk(11, largest=False).indices
    shared = (found[0].unsqueeze(2) == exact.unsqueeze(1)).any(2)
    assert shared.float().mean() > 0.97
