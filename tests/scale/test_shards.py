"""Tables from shard to shard, in turn and over Ray, against those that one machine holds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from jlgcn.nn import JLGCN, GraphLearner
from jlgcn.scale import (
    Mapper,
    NeighborTable,
    PackedTable,
    fit_over_ray,
    in_turn,
    infer,
    over_ray,
    pack,
    planted_table,
    write_planted,
)
from jlgcn.scale.candidates import _at_most
from tests.processes import run_processes
from tests.scale.test_batches import entries, with_known_edges
from tests.scale.test_fit_batches import CONFIG, make_model, split_of, train

# Ray warns of settings of its own, and leaves sockets and processes to the collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def learner_of(packed: PackedTable) -> GraphLearner:
    torch.manual_seed(0)
    learner = GraphLearner(packed.num_features, 4)
    learner.project(packed.rows(torch.arange(min(1_000, packed.num_nodes))))
    return learner


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> PackedTable:
    folder = tmp_path_factory.mktemp("rows")
    write_planted(folder / "parquet", 5_000, num_features=8, num_classes=3)
    pack(folder / "parquet", folder / "packed", label="kind", rows=1_500)
    return PackedTable(folder / "packed")


def build(
    packed: PackedTable, folder: Path, run: Mapper | None, shard_rows: int = 700
) -> NeighborTable:
    return NeighborTable.build(
        packed, learner_of(packed), 5, folder, run=run, shard_rows=shard_rows
    )


def pairs_of(table: NeighborTable) -> set[tuple[int, int]]:
    row, col = entries(table).tolist()
    return set(zip(row, col, strict=True))


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_shards_find_what_one_machine_finds(packed: PackedTable, tmp_path: Path) -> None:
    exact = build(packed, tmp_path / "exact", None)  # all pairs, at this size
    for shard_rows in (700, 5_000):
        found = build(packed, tmp_path / f"by-{shard_rows}", in_turn, shard_rows)
        assert found.recall(packed, learner_of(packed), 5) > 0.99
        expected, pairs = pairs_of(exact), pairs_of(found)
        assert len(expected & pairs) > 0.97 * len(expected)
        assert {(j, i) for i, j in pairs} == pairs
        assert not any(i == j for i, j in pairs)
        assert bool((found.start.diff() >= 5).all())
        assert {path.name for path in found.folder.iterdir()} == {"start.npy", "neighbor.npy"}
        assert not list(tmp_path.glob("*.tmp"))


def test_known_edges_are_those_of_one_machine(tmp_path: Path) -> None:
    packed, whole, _ = with_known_edges(tmp_path, 300)
    found = build(packed, tmp_path / "found", in_turn, 70)
    dense = []
    for table in (whole, found):
        assert table.given is not None
        row, col = entries(table)
        dense.append(torch.zeros(300, 300).index_put((row, col), table.given))
    assert torch.equal(*dense)
    assert float(dense[0].sum()) > 0


def test_shards_done_twice_are_the_same(packed: PackedTable, tmp_path: Path) -> None:
    def twice(function: Callable[[int], object], count: int, label: str) -> None:
        """As after the loss of a machine, and in another order."""
        for shard in [*range(count), *reversed(range(count))]:
            function(shard)

    build(packed, tmp_path / "once", in_turn)
    build(packed, tmp_path / "twice", twice)
    assert files(tmp_path / "once") == files(tmp_path / "twice")


@pytest.mark.parametrize(("num_rows", "num_entries"), [(1, 0), (2, 2), (4, 12)])
def test_few_rows_have_all_others(tmp_path: Path, num_rows: int, num_entries: int) -> None:
    packed = planted_table(tmp_path, num_rows)[0]
    euclidean = GraphLearner(8, 8, metric_init="identity")
    for shard_rows in (1, 3):
        found = NeighborTable.build(
            packed, euclidean, 5, tmp_path / "found", run=in_turn, shard_rows=shard_rows
        )
        assert found.num_entries == num_entries


def test_very_many_equal_rows_are_capped() -> None:
    cell = np.array([3] * 10 + [1] * 2 + [3] * 90)
    kept = _at_most(cell, 20)
    assert np.bincount(cell[kept]).tolist() == [0, 2, 0, 20]
    assert kept[-1] > 90  # spread over all of them
    assert (_at_most(cell, 1_000) == np.arange(102)).all()


def test_rows_far_from_the_origin_have_the_same_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed, near = planted_table(tmp_path / "near", 400)
    rows = packed.chunk(0, 400)
    folder = planted_table(tmp_path / "far", 400)[0].folder
    np.save(folder / "nodes-00000.npy", (rows + 2.0**12).numpy())
    far = PackedTable(folder)
    monkeypatch.setattr("jlgcn.scale.table.CHUNK_ROWS", 50)  # chunks have means of their own
    euclidean = GraphLearner(8, 8, metric_init="identity")
    table = NeighborTable.build(far, euclidean, 5, tmp_path / "table")
    expected = pairs_of(near)
    assert len(pairs_of(table) & expected) > 0.99 * len(expected)
    assert table.recall(far, euclidean, 5) > 0.999
    monkeypatch.setattr("jlgcn.scale.inference._CHUNK_ENTRIES", 300)
    torch.manual_seed(0)
    model = JLGCN(8, 16, 3, options="paper", num_learned=1).eval()
    model.learners[0].project(rows)
    infer(model, far, table, tmp_path / "out")
    infer(model, packed, near, tmp_path / "out-near")
    torch.testing.assert_close(table.degree, near.degree, rtol=0.02, atol=0.02)


@pytest.fixture(scope="module")
def ray() -> Iterator[ModuleType]:
    found = pytest.importorskip("ray", reason='Ray is not installed: pip install "jlgcn[ray]"')
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # as Ray will have it
    found.init(
        address="local",
        num_cpus=3,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=80 << 20,
        runtime_env={"env_vars": {"PYTHONPATH": str(Path(__file__).parents[2])}},
    )
    yield found
    found.shutdown()


def test_over_ray_everything_is_the_same_to_the_last_bit(
    ray: ModuleType, packed: PackedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(packed.folder.parent)  # processes of Ray are elsewhere: paths are resolved
    pack("parquet", "again", label="kind", rows=1_500, run=over_ray)
    again = PackedTable("again")
    assert files(again.folder) == files(packed.folder)
    torch.manual_seed(0)
    model = JLGCN(8, 16, 3, options="paper").eval()
    logits = []
    for run in (in_turn, over_ray):
        table = build(again, Path(run.__name__), run)
        logits.append(infer(model, again, table, f"{run.__name__}-logits", run=run))
    assert files(Path("in_turn")) == files(Path("over_ray"))
    assert torch.equal(*logits)


def test_an_error_in_a_shard_reaches_the_caller(ray: ModuleType) -> None:
    def fail(shard: int) -> None:
        raise ValueError(f"shard {shard} is bad")

    with pytest.raises(Exception, match="shard 0 is bad"):
        over_ray(fail, 1, "bad")


def test_processes_of_ray_end_as_those_of_torchrun(
    ray: ModuleType, packed: PackedTable, tmp_path: Path
) -> None:
    printed = run_processes(2, "tests.scale.batch_worker", str(packed.folder), str(tmp_path / "a"))
    model, logits, result = fit_over_ray(
        make_model,
        packed,
        split_of(packed),
        CONFIG,
        folder=tmp_path / "b",
        seed=0,
        num_processes=2,
    )
    assert f"hash {result.parameter_sha256} " in printed
    assert logits.shape == (5_000, 3)
    again = infer(model, packed, NeighborTable(tmp_path / "b" / "table-0"), tmp_path / "again")
    torch.testing.assert_close(again, logits)


def test_batches_learn_from_tables_by_shards(packed: PackedTable, tmp_path: Path) -> None:
    _, result = train(packed, tmp_path, run_shards=in_turn)
    assert result.test_accuracy > 0.5
