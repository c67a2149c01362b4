from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.sampler import NodeSamplerInput

from jlgcn.graphs import Graph, SparseGraph, as_graph
from jlgcn.nn import JLGCN, JLGCNConv
from jlgcn.scale import (
    BatchOutput,
    NeighborTable,
    PackedTable,
    TableFeatureStore,
    TableGraphStore,
    TableSampler,
    forward_batch,
    infer,
    pack,
    planted_table,
    table_loader,
    write_planted,
)
from jlgcn.scale.mapping import new_array, write_rows


def entries(table: NeighborTable) -> Tensor:  # (2, E)
    row = torch.arange(table.num_nodes).repeat_interleave(table.start.diff())
    return torch.stack([row, table.neighbor.long()])


def whole_graph(
    model: JLGCN, x: Tensor, table: NeighborTable, given: Graph | None = None
) -> tuple[Tensor, Tensor]:
    """Logits and degrees by graphs that hold every place of the table at once."""
    current = as_graph(None, len(x), dtype=x.dtype) if given is None else given
    degrees = []
    for index, conv in enumerate(model.convs):
        assert isinstance(conv, JLGCNConv)
        x = functional.leaky_relu(x, model.negative_slope) if index > 0 else x
        learned = SparseGraph.from_candidates(conv.learner.project(x), entries(table))
        degrees.append(learned.degree() + current.degree())
        x, current, _ = conv.convolve(x, current, learned)
    return x, torch.stack(degrees, -1)


def with_known_edges(folder: Path, num_nodes: int) -> tuple[PackedTable, NeighborTable, Graph]:
    edges = torch.randint(0, num_nodes, (2, 40))
    edges = edges[:, edges[0] != edges[1]]
    write_planted(folder / "rows", num_nodes, num_features=8, num_classes=3)
    columns = {"a": edges[0].numpy(), "b": edges[1].numpy(), "weight": np.full(len(edges[0]), 2.0)}
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "edges.parquet")
    pack(folder / "rows", folder / "packed", label="kind", edges=folder / "edges.parquet")
    packed = PackedTable(folder / "packed")
    learner = JLGCN(8, 16, 3, options="paper").learners[0]
    table = NeighborTable.build(packed, learner, 4, folder / "table")
    pairs = torch.cat([edges, edges.flip(0)], -1).unique(dim=1)
    return packed, table, SparseGraph(pairs, torch.full(pairs.shape[1:], 2.0), num_nodes)


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_a_batch_of_all_neighbours_is_the_whole_graph(tmp_path: Path, num_layers: int) -> None:
    packed, table = planted_table(tmp_path, 300)
    model = JLGCN(8, 16, 3, num_layers, options="paper").double().eval()
    expected, degrees = whole_graph(model, packed.chunk(0, 300).double(), table)
    table.degree = degrees.detach()
    nodes = torch.tensor([5, 17, 123, 299])
    batch = next(iter(table_loader(packed, table, nodes, [-1] * num_layers)))
    out = forward_batch(model, batch)
    assert isinstance(out, BatchOutput)
    # Degrees at the rim are scaled by a sum of others, which is rounded.
    torch.testing.assert_close(out.logits, expected[nodes], rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(out.degrees[-1], degrees[nodes, -1], rtol=1e-12, atol=0.0)


def test_gradients_of_a_batch_of_all_nodes_are_those_of_the_whole_graph(tmp_path: Path) -> None:
    packed, table = planted_table(tmp_path, 120)
    model = JLGCN(8, 16, 3, options="paper").double().eval()
    whole_graph(model, packed.chunk(0, 120).double(), table)[0].square().sum().backward()
    expected = [
        parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None
    ]
    model.zero_grad()
    batch = next(iter(table_loader(packed, table, torch.arange(120), [-1, -1])))
    forward_batch(model, batch).logits.square().sum().backward()
    for parameter, grad in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, grad, rtol=1e-9, atol=1e-11)


def test_known_edges_count_as_in_the_whole_graph(tmp_path: Path) -> None:
    packed, table, given = with_known_edges(tmp_path, 100)
    assert table.given is not None
    row, col = entries(table)
    dense = torch.zeros(100, 100).index_put((row, col), table.given)
    torch.testing.assert_close(dense, given.to_dense())
    model = JLGCN(8, 16, 3, options="paper").eval()
    expected, degrees = whole_graph(model, packed.chunk(0, 100), table, given)
    logits = infer(model, packed, table, tmp_path / "out")
    torch.testing.assert_close(logits, expected.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(table.degree, degrees.detach(), rtol=1e-5, atol=1e-5)
    batch = next(iter(table_loader(packed, table, torch.arange(7), [-1, -1])))
    out = forward_batch(model, batch, table.given[batch.e_id])
    torch.testing.assert_close(out.logits, expected[:7], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("num_learned", [1, 2])
def test_inference_by_layers_is_the_whole_graph(tmp_path: Path, num_learned: int) -> None:
    packed, table = planted_table(tmp_path, 500)
    model = JLGCN(8, 16, 3, num_learned=num_learned, options="paper").eval()
    logits = infer(model, packed, table, tmp_path / "out")
    batch = next(iter(table_loader(packed, table, torch.arange(500), [-1, -1], batch_size=500)))
    torch.testing.assert_close(logits, forward_batch(model, batch).logits.detach())
    again = torch.from_numpy(np.load(tmp_path / "out" / "logits.npy"))
    assert torch.equal(again, logits)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["logits.npy"]


def test_chunks_of_inference_do_not_change_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed, table = planted_table(tmp_path, 200)
    model = JLGCN(8, 16, 3, options="paper")
    expected = infer(model, packed, table, tmp_path / "one").clone()
    monkeypatch.setattr("jlgcn.scale.inference._CHUNK_ENTRIES", 3)  # a row at a time
    torch.testing.assert_close(infer(model, packed, table, tmp_path / "many"), expected)
    assert model.training


def test_inference_that_fails_leaves_the_model_in_training_mode(tmp_path: Path) -> None:
    packed, table = planted_table(tmp_path, 50)
    model = JLGCN(8, 16, 3, options="paper").train()

    def run(function: object, count: int, label: str) -> None:
        raise OSError(f"no space left on device: {label}")

    with pytest.raises(OSError, match="no space left on device: layer 1, columns"):
        infer(model, packed, table, tmp_path / "out", run=run)
    assert model.training


def test_what_is_sampled_is_in_the_table(tmp_path: Path) -> None:
    _, table = planted_table(tmp_path, 300)
    nodes = torch.tensor([250, 3, 77])
    out = TableSampler(table, [4, 3]).sample_from_nodes(NodeSamplerInput(None, nodes))
    assert torch.equal(out.node[:3], nodes)
    assert len(out.node.unique()) == len(out.node) == sum(out.num_sampled_nodes)
    assert len(out.row) == sum(out.num_sampled_edges)
    expected = torch.stack([out.node[out.col], out.node[out.row]])
    assert torch.equal(entries(table)[:, out.edge], expected)
    assert len(out.edge.unique()) == len(out.edge)
    assert torch.bincount(out.col)[:3].tolist() == [4, 4, 4]
    assert int(torch.bincount(out.col)[3:].max()) == 3


def test_every_neighbour_is_drawn_as_often(tmp_path: Path) -> None:
    _, table = planted_table(tmp_path, 60)
    node = int(table.start.diff().argmax())
    size = int(table.start[node + 1] - table.start[node])
    sampler = TableSampler(table, [3])
    draws = 4000
    asked = NodeSamplerInput(None, torch.full((draws,), node))
    # One node asked for so often is as good as so many draws: each row has a draw of its own.
    _, entry = sampler._draw(asked.node, 3)
    count = torch.bincount(entry - table.start[node], minlength=size)
    mean = 3 * draws / size
    assert size > 6
    assert count.sum() == 3 * draws
    assert float((count - mean).abs().max()) < 5 * mean**0.5


def test_sampled_degrees_have_the_true_ones_as_mean(tmp_path: Path) -> None:
    packed, table = planted_table(tmp_path, 200, num_neighbors=10)
    model = JLGCN(8, 16, 3, 1, options="paper").double().eval()
    _, degrees = whole_graph(model, packed.chunk(0, 200).double(), table)
    loader = table_loader(packed, table, torch.arange(200), [4], batch_size=200)
    with torch.no_grad():
        batches = [forward_batch(model, next(iter(loader))) for _ in range(400)]
    drawn = torch.stack([batch.degrees[0] for batch in batches])
    error = (drawn.mean(0) - degrees[:, 0].detach()).abs() / drawn.std(0).clamp(min=1e-9)
    assert float(error.max()) < 5 / 400**0.5
    assert float(drawn.std(0).max()) > 0.01


def test_the_energy_is_that_of_the_learned_graphs(tmp_path: Path) -> None:
    packed, table = planted_table(tmp_path, 80)
    model = JLGCN(8, 16, 3, 1, options="paper").double().eval()
    x = packed.chunk(0, 80).double()
    learned = SparseGraph.from_candidates(model.learners[0].project(x), entries(table))
    batch = next(iter(table_loader(packed, table, torch.arange(80), [-1])))
    energy = forward_batch(model, batch, with_energy=True).energy
    assert energy is not None
    torch.testing.assert_close(energy.sum(), learned.dirichlet(x) / 2)


def test_recall_is_whole_after_a_search_and_falls_with_another_metric(tmp_path: Path) -> None:
    packed, _ = planted_table(tmp_path, 400)
    first, other = (JLGCN(8, 16, 3, rank=2, options="paper").learners[0] for _ in range(2))
    table = NeighborTable.build(packed, first, 5, tmp_path / "table")
    assert table.recall(packed, first, 5) == pytest.approx(1.0)
    with torch.no_grad():
        first.metric.weight.mul_(10)  # the same nearest rows
        other.metric.weight.mul_(10)
    assert table.recall(packed, first, 5) == pytest.approx(1.0)
    assert table.recall(packed, other, 5) < 0.9


def test_many_rows_are_searched_by_faiss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("faiss")
    monkeypatch.setattr("jlgcn.scale.table.MAX_EXACT_ROWS", 100)
    packed, _ = planted_table(tmp_path, 5000)
    learner = JLGCN(8, 16, 3, rank=4, options="paper").learners[0]
    table = NeighborTable.build(packed, learner, 8, tmp_path / "table")
    assert table.recall(packed, learner, 8) > 0.7
    again = NeighborTable.build(packed, learner, 8, tmp_path / "again")
    assert torch.equal(table.neighbor, again.neighbor)


def test_stores_hand_out_what_loaders_ask_for(tmp_path: Path) -> None:
    packed, table = planted_table(tmp_path, 40)
    features, graph = TableFeatureStore(packed, table), TableGraphStore(table)
    assert features.get_tensor_size(features.get_all_tensor_attrs()[0]) == (40, 8)
    row, start = graph.get_edge_index(TableGraphStore.PLACES)
    assert torch.equal(row, table.neighbor.long())
    assert torch.equal(start, table.start)
    with pytest.raises(KeyError, match="nodes have x, y, num_neighbors and degree"):
        features.get_tensor(group_name=None, attr_name="z", index=torch.arange(2))


def test_mistakes_are_named(tmp_path: Path) -> None:
    packed, table = planted_table(tmp_path, 40)
    batch = next(iter(table_loader(packed, table, torch.arange(4), [2])))
    with pytest.raises(ValueError, match="2 layers, but the batch has 1 hops; pass 2 fanouts"):
        forward_batch(JLGCN(8, 16, 3, options="paper"), batch)
    with pytest.raises(ValueError, match='normalize_learned=True; pass options="paper"'):
        infer(JLGCN(8, 16, 3), packed, table, tmp_path / "out")
    with pytest.raises(ValueError, match=r"one for each layer, but they are \[0\]"):
        TableSampler(table, [0])
    with pytest.raises(FileNotFoundError, match=r"there is no table at .*; build one"):
        NeighborTable(tmp_path / "nowhere")
    with pytest.raises(NotImplementedError, match="NodeLoader, not LinkLoader"):
        TableSampler(table, [2]).sample_from_edges(None)


def is_read_at_random(path: Path) -> list[bool]:
    """Return, for every map of a file in this process, whether nothing is read ahead."""
    found, is_ours = [], False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if line.split()[0].count("-") == 1 and not line.split()[0].endswith(":"):
            is_ours = line.endswith(str(path))
        elif line.startswith("VmFlags:") and is_ours:
            found.append("rr" in line.split())
    return found


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="Linux alone shows its maps")
def test_nothing_is_read_ahead_of_scattered_rows_where_memory_cannot_hold_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed, table = planted_table(tmp_path, 60)
    expected = packed.rows(torch.tensor([5, 50]))
    rows, neighbor = tmp_path / "packed" / "nodes-00000.npy", table.folder / "neighbor.npy"
    assert not any(is_read_at_random(rows))
    assert not any(is_read_at_random(neighbor))
    del packed, table
    monkeypatch.setattr("jlgcn.scale.mapping.available_bytes", lambda: 100)
    packed, table = PackedTable(tmp_path / "packed"), NeighborTable(tmp_path / "table-0")
    assert sorted(is_read_at_random(rows)) == [False, True]  # in order, and from all over
    assert is_read_at_random(neighbor) == [True]
    assert torch.equal(packed.rows(torch.tensor([5, 50])), expected)
    in_order = NeighborTable(tmp_path / "table-0", in_order=True)
    assert sorted(is_read_at_random(neighbor)) == [False, True]
    assert torch.equal(in_order.neighbor, table.neighbor)


def test_tables_are_sent_to_other_processes_by_their_folders(tmp_path: Path) -> None:
    packed, table = planted_table(tmp_path, 60)
    for sent in (packed, table, NeighborTable(table.folder, in_order=True)):
        content = pickle.dumps(sent)
        assert len(content) < 1000  # and not the rows, which may be more than memory holds
        twin = pickle.loads(content)
        assert repr(twin) == repr(sent)
    assert twin.in_order
    nodes = torch.arange(60)
    loader = table_loader(packed, table, nodes, (3, 3), batch_size=30, num_workers=1)
    loader.multiprocessing_context = "spawn"  # as everywhere but on Linux
    classes = torch.cat([batch.y[:30] for batch in loader])
    assert torch.equal(classes, packed.y)


def test_a_table_takes_the_place_of_a_table_and_of_nothing_else(tmp_path: Path) -> None:
    packed, _ = planted_table(tmp_path / "rows", 50)
    learner = JLGCN(8, 16, 3, options="paper").learners[0]
    folder = tmp_path / "run" / "table"
    leftover, mine = (tmp_path / "run" / f".table.{name}.tmp" for name in ("0" * 16, "mine"))
    for path in (leftover, mine, tmp_path / "run" / "table.tmp", tmp_path / "run" / "table.shards"):
        path.mkdir(parents=True)
        (path / "mine").write_text("precious")
    for _ in range(2):
        NeighborTable.build(packed, learner, 3, folder)
    names = {".jlgcn.lock", ".table.mine.tmp", "table", "table.shards", "table.tmp"}
    assert {path.name for path in (tmp_path / "run").iterdir()} == names  # no leftover
    (folder / "notes.txt").write_text("precious")
    with pytest.raises(FileExistsError, match=r"would replace .* holds 'notes.txt', which is no"):
        NeighborTable.build(packed, learner, 3, folder)
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(FileExistsError, match="which is a link; delete it first"):
        NeighborTable.build(packed, learner, 3, tmp_path / "link")
    assert (folder / "notes.txt").exists()


def test_inference_writes_through_no_link_and_deletes_its_own_files_only(tmp_path: Path) -> None:
    packed, table = planted_table(tmp_path, 50)
    model = JLGCN(8, 16, 3, options="paper").eval()
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("precious")
    (out / "points-mine.npy").write_text("precious")
    (out / "columns-0.npy").symlink_to(out / "notes.txt")
    (table.folder / "degree.tmp.npy").symlink_to(out / "notes.txt")
    infer(model, packed, table, out, num_layers=model.num_learned)
    assert {path.name for path in out.iterdir()} == {"notes.txt", "points-mine.npy"}
    infer(model, packed, table, out)
    names = {"logits.npy", "notes.txt", "points-mine.npy"}
    assert {path.name for path in out.iterdir()} == names
    assert (out / "notes.txt").read_text() == "precious"


def test_rows_are_not_written_through_a_link(tmp_path: Path) -> None:
    new_array(tmp_path / "mine.npy", (3, 2))
    (tmp_path / "rows.npy").symlink_to(tmp_path / "mine.npy")
    with pytest.raises(OSError, match="symbolic links"):
        write_rows(tmp_path / "rows.npy", 1, np.ones((1, 2)))
    write_rows(tmp_path / "mine.npy", 1, np.ones((1, 2)))
    assert np.load(tmp_path / "mine.npy").tolist() == [[0, 0], [1, 1], [0, 0]]


def test_classes_of_some_rows_are_those_of_all(tmp_path: Path) -> None:
    write_planted(tmp_path / "rows", 50, num_features=4)
    pack(tmp_path / "rows", tmp_path / "packed", label="kind", rows=16)
    packed = PackedTable(tmp_path / "packed")
    index = torch.tensor([49, 0, 15, 16, 49])
    assert torch.equal(packed.classes(index), packed.y[index])
    pack(tmp_path / "rows", tmp_path / "unlabelled", drop=["kind"], rows=16)
    assert PackedTable(tmp_path / "unlabelled").classes(index).tolist() == [-1] * 5
