from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from jlgcn.distributed import distribute
from jlgcn.distributed.sharded import ShardedKernelGraph
from jlgcn.nn import JLGCN
from tests.brute import F64, largest_difference


@pytest.fixture
def _one_process() -> Iterator[None]:
    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("_one_process")
def test_one_process_alone_computes_what_it_did_before() -> None:
    x = torch.randn(9, 4, dtype=F64)
    model = JLGCN(4, 5, 3, backend="exact").double().eval()
    before = model(x).logits
    shards = distribute(model, 9)
    out = model(x[shards.own])
    assert isinstance(out.learned[0], ShardedKernelGraph)
    assert largest_difference(out.logits, before) < 1e-12


@pytest.mark.usefixtures("_one_process")
def test_graphs_of_neighbours_are_refused() -> None:
    model = JLGCN(4, 5, 3, backend="knn").eval()
    shards = distribute(model, 9)
    with pytest.raises(ValueError, match="only an exact graph can be sharded"):
        model(torch.randn(9, 4)[shards.own])
