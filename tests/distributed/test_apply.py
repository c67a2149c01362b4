from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from jlgcn.distributed import share_batches
from tests.nn.small_clouds import small_classifier


@pytest.fixture
def one_process() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("one_process")
def test_a_batch_that_one_process_shares_with_nobody_is_its_own() -> None:
    torch.manual_seed(0)
    alone = small_classifier().double()
    torch.manual_seed(0)
    shared = share_batches(small_classifier().double())
    clouds = torch.randn(4, 16, 3, dtype=torch.float64)
    alone(clouds)  # a metric takes its scale from the first points
    shared(clouds)
    for model in (alone, shared):
        torch.manual_seed(1)  # of dropout
        model(clouds).logits.square().sum().backward()
    for one, other in zip(alone.parameters(), shared.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.allclose(one.grad, other.grad)
