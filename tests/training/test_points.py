from __future__ import annotations

import pytest
import torch

from jlgcn.training.points import augment, choose_points, drop_points, unit_sphere


def test_the_unit_sphere() -> None:
    points = unit_sphere(torch.randn(4, 50, 3) * 7 + 100)
    assert points.mean(1).abs().max() < 1e-5
    assert torch.allclose(points.norm(dim=-1).amax(-1), torch.ones(4))
    assert unit_sphere(torch.ones(2, 5, 3)).eq(0).all()  # all points in one place


def test_augmentations_do_what_they_say() -> None:
    points = torch.randn(500, 20, 3)
    generator = torch.Generator().manual_seed(0)
    changed = augment(points, shift=0.0, generator=generator)
    factor = changed / points
    assert torch.allclose(factor, factor[:, :1], rtol=1e-3)  # the same for all points of a cloud
    assert float(factor.min()) >= 2 / 3 - 1e-5
    assert float(factor.max()) <= 1.5 + 1e-5
    shifted = augment(points, scale=(1, 1), shift=0.2, generator=generator) - points
    assert float(shifted.abs().max()) <= 0.2 + 1e-5


def test_points_are_dropped_without_repetition() -> None:
    points = torch.arange(40.0).view(1, 40, 1).expand(3, 40, 3)
    kept = drop_points(points, 0.75, seed=1)
    assert kept.shape == (3, 10, 3)
    assert all(len(set(cloud[:, 0].tolist())) == 10 for cloud in kept)
    assert not torch.equal(kept[0], kept[1])
    assert torch.equal(kept, drop_points(points, 0.75, seed=1))
    assert drop_points(points, 1.0, seed=0).shape == (3, 1, 3)
    with pytest.raises(ValueError, match=r"num_points must be at most 40, .* but it is 41"):
        choose_points(points, 41)
    with pytest.raises(ValueError, match="fraction must be between 0 and 1"):
        drop_points(points, 1.5, seed=0)
