"""Point clouds of one size: normalisation, augmentation, subsampling."""

from __future__ import annotations

import torch
from torch import Tensor


def unit_sphere(
    points: Tensor,  # (*batch, N, 3)
) -> Tensor:
    """Centre each cloud and scale its farthest point to distance 1.

    Example:
        >>> unit_sphere(torch.tensor([[0.0, 0, 0], [4.0, 0, 0]]))
        tensor([[-1.,  0.,  0.],
                [ 1.,  0.,  0.]])
    """
    centred = points - points.mean(-2, keepdim=True)
    radius = centred.norm(dim=-1).amax(-1)[..., None, None]
    return centred / torch.where(radius > 0, radius, 1)


def augment(
    points: Tensor,  # (B, N, 3)
    *,
    scale: tuple[float, float] = (2 / 3, 3 / 2),
    shift: float = 0.2,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Augment clouds by random anisotropic scaling and translation.

    Args:
        points (Tensor): the clouds.
        scale (pair of float, default (2/3, 3/2)): range of the factor of each cloud and axis.
        shift (float ≥ 0, default 0.2): bound of the translation of each cloud and axis.
        generator (torch.Generator or None, default None): source of random numbers, on the device
            of the points; None for the default generator.

    Example:
        >>> augment(torch.zeros(2, 5, 3)).shape
        torch.Size([2, 5, 3])
    """
    size = (points.shape[0], 1, 3)
    low, high = scale
    device = points.device
    factor = low + (high - low) * torch.rand(size, generator=generator, device=device)
    offset = shift * (2 * torch.rand(size, generator=generator, device=device) - 1)
    return points * factor + offset


def drop_points(
    points: Tensor,  # (B, N, 3)
    fraction: float,
    *,
    seed: int,
) -> Tensor:  # (B, N', 3)
    """Remove a random fraction of the points of each cloud; at least one point remains.

    Example:
        >>> drop_points(torch.zeros(2, 100, 3), 0.75, seed=0).shape
        torch.Size([2, 25, 3])
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction must be between 0 and 1, but it is {fraction}")
    kept = max(1, round((1 - fraction) * points.shape[1]))
    generator = torch.Generator(points.device).manual_seed(seed)
    return choose_points(points, kept, generator=generator)


def choose_points(
    points: Tensor,  # (B, N, 3)
    num_points: int,
    *,
    generator: torch.Generator | None = None,
) -> Tensor:  # (B, num_points, 3)
    """Draw points of each cloud uniformly, without replacement.

    Example:
        >>> choose_points(torch.zeros(2, 100, 3), 10).shape
        torch.Size([2, 10, 3])
    """
    if num_points > points.shape[1]:
        raise ValueError(
            f"num_points must be at most {points.shape[1]}, the size of the clouds, but it is "
            f"{num_points}; use fewer"
        )
    drawn = torch.rand(points.shape[:2], generator=generator, device=points.device)
    order = drawn.argsort(-1)[:, :num_points]
    return points.gather(1, order.unsqueeze(-1).expand(-1, -1, points.shape[-1]))
