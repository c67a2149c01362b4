"""One's own graphs: every format of clouds, graphs, classes and split trains the same network."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Dataset, TensorDataset
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import RandomJitter

from jlgcn.nn import GraphLevelJLGCN
from jlgcn.training import FitResult, GraphTrainConfig, RunOptions, fit_graphs
from jlgcn.training.checkpoint import load_checkpoint
from tests.training.small import small_clouds

pytestmark = pytest.mark.filterwarnings("ignore:the learned graph is (complete|dead)")

CONFIG = GraphTrainConfig(epochs=2, batch_size=6, lr=0.01)
CLOUDS = small_clouds(30)
CLOUD_SPLIT: dict[str, Any] = {name: getattr(CLOUDS, name) for name in ("train", "val", "test")}


def molecules(count: int = 30) -> list[Data]:
    """Rings, stars and paths of different sizes; features alone do not tell them apart."""
    generator = torch.Generator().manual_seed(3)
    graphs = []
    for i in range(count):
        size = 5 + i % 4
        row = torch.arange(size)
        edges = {
            0: torch.stack([row, (row + 1) % size]),
            1: torch.stack([torch.zeros(size - 1, dtype=torch.int64), row[1:]]),
            2: torch.stack([row[:-1], row[1:]]),
        }[i % 3]
        x = 1 + 0.1 * torch.randn(size, 2, generator=generator)
        graphs.append(Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], 1), y=i % 3))
    return graphs


GRAPHS = molecules()
SPLIT: dict[str, Any] = {
    name: torch.arange(10 * part, 10 * part + 10)
    for part, name in enumerate(("train", "val", "test"))
}


class Set(InMemoryDataset):  # type: ignore[misc]  # PyG is not typed
    def __init__(self, graphs: list[Data], transform: Any = None) -> None:  # noqa: ANN401
        super().__init__(None, transform)
        self.data, self.slices = self.collate(graphs)


def network(in_channels: int = 2) -> GraphLevelJLGCN:
    torch.manual_seed(0)
    return GraphLevelJLGCN(in_channels, 3, (6, 8), (5,), rank=2, options="paper")


def fit(x: Any = None, y: Any = None, **keywords: Any) -> FitResult:  # noqa: ANN401
    model = keywords.pop("model", None) or network()
    settings: dict[str, Any] = {"config": CONFIG, "seed": 1} | keywords
    return fit_graphs(model, x, y, **settings)


def test_every_format_of_graphs_trains_the_same_network() -> None:
    expected = fit(GRAPHS, **SPLIT)
    assert 0 <= expected.test_accuracy <= 1
    y = torch.tensor([graph.y for graph in GRAPHS])
    mask = torch.zeros(30, dtype=torch.bool)
    mask[10:20] = True
    bare = [Data(x=graph.x, edge_index=graph.edge_index) for graph in GRAPHS]
    weighted = [
        Data(**graph.to_dict(), edge_weight=torch.ones(graph.num_edges)) for graph in GRAPHS
    ]
    for found in (
        fit(Set(GRAPHS), **SPLIT),
        fit(Batch.from_data_list(GRAPHS), **SPLIT),
        fit(bare, y, **SPLIT),
        fit(bare, y.numpy()[:, None], **SPLIT | {"val": mask, "train": None}),
        fit(weighted, **SPLIT),
        fit(train=GRAPHS[:10], val=tuple(GRAPHS[10:20]), test=Set(GRAPHS)[20:]),
    ):
        assert found.parameter_sha256 == expected.parameter_sha256
        assert found.test_accuracy == expected.test_accuracy
        assert found.measured["confusion"] == expected.measured["confusion"]


def test_every_format_of_clouds_trains_the_same_network() -> None:
    def fit_clouds(x: Any, y: Any) -> str:  # noqa: ANN401
        return fit(x, y, model=network(3), **CLOUD_SPLIT).parameter_sha256

    expected = fit_clouds(CLOUDS.points, CLOUDS.y)
    assert fit_clouds(CLOUDS.points.numpy(), CLOUDS.y.tolist()) == expected
    assert fit_clouds(CLOUDS.points.double(), CLOUDS.y[:, None].int()) == expected


def test_clouds_of_different_sizes_are_a_list() -> None:
    clouds = [cloud[: 20 + i] for i, cloud in enumerate(CLOUDS.points)]
    as_data = [Data(pos=cloud) for cloud in clouds]
    expected = fit(clouds, CLOUDS.y, model=network(3), **CLOUD_SPLIT).parameter_sha256
    assert expected == fit(as_data, CLOUDS.y, model=network(3), **CLOUD_SPLIT).parameter_sha256
    arrays = [cloud.numpy() for cloud in clouds]
    assert expected == fit(arrays, CLOUDS.y, model=network(3), **CLOUD_SPLIT).parameter_sha256


@pytest.mark.slow
def test_it_learns_from_edges() -> None:
    """Features alone are noise."""
    model = network()
    config = GraphTrainConfig(epochs=25, batch_size=8, lr=0.02, lr_step=100)
    split = {"train": range(30), "val": range(30, 60), "test": range(60, 90)}
    assert fit(molecules(90), model=model, config=config, **split).test_accuracy > 0.6
    assert not model.training


def test_loaders_train_and_draw_from_the_default_generator() -> None:
    def loaders() -> dict[str, Any]:
        return {
            "train": DataLoader(GRAPHS[:10], batch_size=5, shuffle=True),
            "val": DataLoader(GRAPHS[10:20], batch_size=7),
            "test": DataLoader(GRAPHS[20:], batch_size=10),
        }

    first = fit(**loaders())
    assert fit(**loaders()).parameter_sha256 == first.parameter_sha256
    assert fit(**loaders(), seed=2).parameter_sha256 != first.parameter_sha256
    assert len(first.history) == 2
    assert sum(map(sum, first.measured["confusion"])) == 10
    pairs = TorchLoader(TensorDataset(CLOUDS.points, CLOUDS.y), batch_size=10)
    found = fit(train=pairs, val=pairs, model=network(3))
    assert math.isnan(found.test_accuracy)
    assert set(found.measured) == {"model_bytes"}


def unlabelled(graphs: list[Data]) -> list[Data]:
    return [Data(x=graph.x, edge_index=graph.edge_index, y=-1) for graph in graphs]


def test_test_graphs_of_a_loader_without_a_label_are_not_counted() -> None:
    source = {"train": loader(GRAPHS[:10]), "val": loader(GRAPHS[10:20])}
    expected = fit(**source, test=loader(GRAPHS[20:26]))
    mixed = [*unlabelled(GRAPHS[26:]), *GRAPHS[20:26]]
    found = fit(**source, test=loader(mixed))
    assert found.test_accuracy == expected.test_accuracy
    assert found.measured == expected.measured
    assert found.parameter_sha256 == expected.parameter_sha256
    none = fit(**source, test=loader(unlabelled(GRAPHS[20:])))
    assert math.isnan(none.test_accuracy)
    assert set(none.measured) == {"model_bytes"}


@pytest.mark.parametrize("part", ["train", "val"])
@pytest.mark.parametrize("place", [1, 7])  # in the first batch, and in one after it
def test_training_and_validation_graphs_of_a_loader_need_labels(part: str, place: int) -> None:
    graphs = [*GRAPHS[:place], *unlabelled(GRAPHS[place : place + 1]), *GRAPHS[place + 1 : 10]]
    source = {"train": loader(GRAPHS[:10]), "val": loader(GRAPHS[10:20])} | {part: loader(graphs)}
    with pytest.raises(ValueError, match=f"0 or more at the graphs of {part}, but .* is -1; rem"):
        fit(**source)


def test_a_whole_batch_of_a_loader_is_the_batch_of_a_list() -> None:
    config = GraphTrainConfig(epochs=3, batch_size=10, lr=0.01)
    listed = fit(GRAPHS, config=config, model=without_dropout(), **SPLIT)
    loaders = {
        name: DataLoader([GRAPHS[i] for i in index], batch_size=10) for name, index in SPLIT.items()
    }
    loaded = fit(config=config, model=without_dropout(), **loaders)
    for one, other in zip(listed.history, loaded.history, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-5)


def without_dropout(in_channels: int = 2) -> GraphLevelJLGCN:
    model = network(in_channels)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def test_random_transforms_are_drawn_in_every_epoch() -> None:
    plain = fit(Set(GRAPHS), **SPLIT)
    moving = Set(MOVING, RandomJitter(0.2))
    assert fit(moving, **SPLIT).parameter_sha256 != plain.parameter_sha256
    assert fit(moving, **SPLIT).parameter_sha256 == fit(moving, **SPLIT).parameter_sha256


MOVING = [Data(pos=graph.x, edge_index=graph.edge_index, y=graph.y) for graph in GRAPHS]


@pytest.mark.parametrize(
    ("source", "num_calls"),
    [
        (lambda: {"x": GRAPHS, **SPLIT}, 11),
        (lambda: {"x": Set(MOVING, RandomJitter(0.1)), **SPLIT}, 11),
        (
            lambda: {
                "train": DataLoader(GRAPHS[:10], batch_size=6, shuffle=True),
                "val": DataLoader(GRAPHS[10:20], batch_size=5),
            },
            11,
        ),
    ],
    ids=["list", "data set", "loaders"],
)
def test_an_interrupted_run_on_graphs_resumes_to_the_same_bits(
    source: Callable[[], dict[str, Any]], num_calls: int, tmp_path: Path
) -> None:
    config = GraphTrainConfig(epochs=4, batch_size=6)
    whole = fit(**source(), config=config)
    options = RunOptions(checkpoints=tmp_path, checkpoint_seconds=0)
    model = network()
    stop_after(model, num_calls)  # in the third epoch of two steps and two batches each
    with pytest.raises(RuntimeError, match="stop"):
        fit(**source(), config=config, options=options, model=model)
    found = load_checkpoint(tmp_path)
    assert found is not None
    assert found[1]["epoch"] == 2
    resumed = fit(**source(), config=config, options=options)
    assert resumed.parameter_sha256 == whole.parameter_sha256


def stop_after(model: nn.Module, num_calls: int) -> None:
    calls = iter(range(num_calls))

    def count(*_: object) -> None:
        if next(calls, None) is None:
            raise RuntimeError("stop")

    model.register_forward_pre_hook(count)


def test_checkpoints_of_other_graphs_are_refused(tmp_path: Path) -> None:
    options = RunOptions(checkpoints=tmp_path)
    fit(GRAPHS, **SPLIT, options=options)
    changed = copy.deepcopy(GRAPHS)
    changed[3].x[0, 0] += 1
    with pytest.raises(ValueError, match="are of another run"):
        fit(changed, **SPLIT, options=options)
    with pytest.raises(ValueError, match="are of another run"):
        fit(GRAPHS, **SPLIT | {"train": torch.arange(9)}, options=options)


class Mean(nn.Module):
    """A network of somebody else, which returns logits alone."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(2, 3)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        total = x.new_zeros(int(batch.max()) + 1, 2).index_add(0, batch, x)
        logits: Tensor = self.lin(total)
        return logits


def test_any_network_of_pytorch_geometric_is_trained() -> None:
    model = Mean()
    before = model.lin.weight.detach().clone()
    assert fit(GRAPHS, model=model, **SPLIT).history
    assert not torch.equal(model.lin.weight, before)


def test_the_regularizer_of_each_graph_is_divided_by_its_own_pairs() -> None:
    clouds = [cloud[: 12 + i] for i, cloud in enumerate(CLOUDS.points[:10])]
    sizes = torch.tensor([len(cloud) for cloud in clouds])
    model = without_dropout(3).train()
    batch = torch.arange(10).repeat_interleave(sizes)
    with torch.no_grad():
        penalty = model.regularizer(model(torch.cat(clouds), None, batch)) / sizes**2
    losses = []
    for weight in (0.0, 1.0):
        config = GraphTrainConfig(epochs=1, batch_size=10, regularizer_weight=weight)
        parts = {"train": range(10), "val": range(10)}
        found = fit(clouds, CLOUDS.y[:10], model=without_dropout(3), config=config, **parts)
        losses.append(found.history[0]["loss"])
    assert losses[1] - losses[0] == pytest.approx(float(penalty.mean()), rel=1e-3)


def test_weights_of_edges_count() -> None:
    halved = [
        Data(**graph.to_dict(), edge_weight=torch.full((graph.num_edges,), 0.5)) for graph in GRAPHS
    ]
    assert fit(halved, **SPLIT).parameter_sha256 != fit(GRAPHS, **SPLIT).parameter_sha256
    mixed = [halved[0], *GRAPHS[1:]]
    assert fit(mixed, **SPLIT).parameter_sha256 != fit(GRAPHS, **SPLIT).parameter_sha256


class Stream(torch.utils.data.IterableDataset[Any]):
    def __iter__(self) -> Any:  # noqa: ANN401
        return iter(GRAPHS)


def loader(graphs: Any = None) -> Any:  # noqa: ANN401
    return DataLoader(GRAPHS if graphs is None else graphs, batch_size=5)


def replaced(**attributes: Any) -> list[Data]:  # noqa: ANN401
    other = Data(**(GRAPHS[4].to_dict() | attributes))
    return [*GRAPHS[:4], other, *GRAPHS[5:]]


NAN = torch.full((6, 2), math.nan)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"x": GRAPHS[0]}, "x must be clouds .* but it is a Data; pass a list, or use fit_nodes"),
        ({"x": torch.zeros(5, 3), "y": [0] * 5}, r"shape \(clouds, points, features\), but it is"),
        ({"x": []}, "x has no graphs; pass"),
        ({"x": GRAPHS, "y": [0, 1]}, "y must have a class for each of 30 graphs"),
        ({"x": GRAPHS, "y": [0.0] * 30}, "y must be of integers"),
        ({"x": GRAPHS, "val": None}, "val must name graphs, but it is empty"),
        ({"x": GRAPHS, "val": [30]}, "val must name nodes from 0 to 29"),
        ({"x": GRAPHS, "val": [0.5]}, "val must be a vector of graph indices"),
        ({"x": replaced(y=None)}, "graph 4 has no class; set its y"),
        ({"x": replaced(y=-1)}, r"y must be 0 or more at the graphs of train, but y\[4\] is -1"),
        ({"x": replaced(x=NAN)}, r"x of graph 4 must be finite"),
        ({"x": replaced(x=torch.ones(6, 5))}, r"x of graph 4 must have the shape \(nodes, 2\)"),
        ({"x": replaced(x=None)}, "neither x nor pos; set x"),
        ({"x": replaced(edge_index=torch.tensor([[0], [99]]))}, "edge_index must lie between 0"),
        ({"x": replaced(y=3)}, "the network has 3 outputs; make it with out_channels=4"),
        ({"x": GRAPHS, "points_missing": (0.5,)}, "points_missing needs clouds of one size"),
        ({"x": GRAPHS, "config": GraphTrainConfig(num_points=4)}, "num_points needs clouds of one"),
        ({"x": GRAPHS, "config": GraphTrainConfig(augments=True)}, "augments needs clouds of one"),
        ({"x": GRAPHS, "config": GraphTrainConfig(batch_size=1)}, "a batch needs 2 graphs"),
        ({"x": GRAPHS, "train": loader()}, "x must be None if train and val are loaders"),
        ({"train": loader(), "val": None}, "val is needed, but it is None"),
        ({"train": loader(), "val": loader(), "test": GRAPHS}, "test must be a loader as train"),
        ({"train": loader(), "val": loader(), "y": [1]}, "y must be None without x"),
        (
            {"train": DataLoader(GRAPHS[:4], batch_size=1), "val": loader(), "test": None},
            "a batch needs 2 graphs.*the largest has 1",
        ),
        (
            {"train": TorchLoader(TensorDataset(torch.zeros(4, 3))), "val": loader(), "test": None},
            "must return batches of torch_geometric.loader.DataLoader, or pairs",
        ),
    ],
)
def test_what_cannot_be_trained_on_is_refused_with_a_remedy(
    keywords: dict[str, Any], message: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        fit(**SPLIT | keywords)


def test_coordinates_alone_are_augmented() -> None:
    config = GraphTrainConfig(augments=True)
    with pytest.raises(ValueError, match=r"three coordinates, but x has 2 features; set augments"):
        fit(torch.zeros(30, 4, 2), [0] * 30, config=config, **SPLIT)


def test_graphs_that_cannot_be_counted_have_no_checkpoints(tmp_path: Path) -> None:
    source: dict[str, Any] = {"train": loader(Stream()), "val": loader()}
    assert fit(**source).history
    with pytest.raises(TypeError, match="use a map-style data set, or no checkpoints"):
        fit(**source, options=RunOptions(checkpoints=tmp_path))


def test_a_class_without_training_graphs_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="no graph of train has class 2; .* Label some graphs"):
        fit(GRAPHS, **SPLIT | {"train": [0, 1, 3, 4]})


def test_graphs_need_no_pytorch_geometric() -> None:
    plain = [SimpleNamespace(x=g.x, edge_index=g.edge_index, y=g.y) for g in GRAPHS]
    expected = fit(GRAPHS, **SPLIT).parameter_sha256
    assert fit(plain, **SPLIT).parameter_sha256 == expected


class Images(Dataset[Any]):
    """A data set of somebody else."""

    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> Data:
        return GRAPHS[index]


def test_any_data_set_of_graphs_is_read_when_asked() -> None:
    expected = fit(GRAPHS, **SPLIT).parameter_sha256
    assert fit(Images(), **SPLIT).parameter_sha256 == expected
    assert np.isfinite(fit(Images(), **SPLIT).val_accuracy)
