"""Graphs over processes: one process passes the contract, several equal one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import ClassVar

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from jlgcn import Graph, SparseGraph
from jlgcn.distributed.sharded import ShardedKernelGraph, ShardedSparseGraph, Shards
from tests.brute import F64, gaussian, points
from tests.graphs.contract import NUM_NODES, GraphContract
from tests.processes import run_processes


@pytest.fixture(scope="module", autouse=True)
def one_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    store = tmp_path_factory.mktemp("store") / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class ShardedContract(GraphContract):
    batches: ClassVar[list[tuple[int, ...]]] = [()]

    # A gather is a break: what is compiled is what stands between products.
    test_compiles_without_graph_breaks = None  # type: ignore[assignment]


class TestLearned(ShardedContract):
    def tensors(self, batch: tuple[int, ...]) -> tuple[Tensor, ...]:
        return (points(NUM_NODES, 3, grad=True),)

    def build(self, *tensors: Tensor) -> Graph:
        return ShardedKernelGraph(tensors[0], Shards(NUM_NODES))

    def matrix(self, *tensors: Tensor) -> Tensor:
        return gaussian(tensors[0], tensors[0])


class TestGivenAndLearned(TestLearned):
    def build(self, *tensors: Tensor) -> Graph:
        ring = torch.stack([torch.arange(NUM_NODES), torch.arange(NUM_NODES).roll(1)])
        given = SparseGraph(
            torch.cat([ring, ring.flip(0)], -1), torch.ones(2 * NUM_NODES, dtype=F64)
        )
        shards = Shards(NUM_NODES)
        return ShardedSparseGraph.from_graph(given, shards) + super().build(*tensors)

    def matrix(self, *tensors: Tensor) -> Tensor:
        eye = torch.eye(NUM_NODES, dtype=F64)
        return super().matrix(*tensors) + eye.roll(1, 0) + eye.roll(-1, 0)


def test_rows_are_laid_out_nearly_equally() -> None:
    assert Shards.of_sizes(10, 4) == [3, 3, 2, 2]
    assert Shards.of_sizes(2, 4) == [1, 1, 0, 0]
    assert Shards(10).own == slice(0, 10)


def test_points_of_another_process_are_refused() -> None:
    with pytest.raises(ValueError, match=r"process 0 holds 10 of 10 rows.*pass x\[shards.own\]"):
        ShardedKernelGraph(torch.randn(4, 2), Shards(10))


@pytest.mark.slow
@pytest.mark.parametrize("num_processes", [2, pytest.param(3, marks=pytest.mark.nightly)])
def test_several_processes_equal_one(num_processes: int) -> None:
    printed = run_processes(num_processes, "tests.distributed.sharded_worker")
    (line,) = (line for line in printed.splitlines() if line.startswith("{"))
    differences = json.loads(line)
    assert differences["float64"] < 1e-12
    assert differences["float32"] < 1e-5
    assert differences["threads"] == 0, "threads that outlive their group can abort the process"


@pytest.mark.slow
def test_one_process_can_ask_whether_there_are_edges_without_the_others() -> None:
    run_processes(2, "tests.distributed.one_rank_worker")
