"""One's own data: every format of features, labels, graph and split trains the same network."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import nn

from jlgcn import as_graph
from jlgcn.graphs import attach
from jlgcn.nn import JLGCN
from jlgcn.paper.baselines import GCN
from jlgcn.training import RunOptions, TrainConfig, fit_nodes
from tests.training.small import small_data

pytestmark = pytest.mark.filterwarnings("ignore:the learned graph is complete")

DATA = small_data(60)
CONFIG = TrainConfig(epochs=2, lr=0.02)
SPLIT: dict[str, Any] = {name: getattr(DATA, name) for name in ("train", "val", "test")}


def mask(nodes: torch.Tensor) -> torch.Tensor:
    return torch.zeros(60, dtype=torch.bool).index_fill(0, nodes, True)


def fitted(*args: Any, **keywords: Any) -> str:  # noqa: ANN401
    """Return the hash of the parameters, from the same start every time."""
    torch.manual_seed(0)
    result = fit_nodes(JLGCN(6, 8, 2, rank=3), *args, config=CONFIG, seed=0, **keywords)
    return result.parameter_sha256


def test_every_format_of_the_data_trains_the_same_network() -> None:
    expected = fitted(DATA.x, DATA.y, DATA.graph(), **SPLIT)
    masks = {name: mask(nodes) for name, nodes in SPLIT.items()}
    arrays = {name: nodes.numpy() for name, nodes in SPLIT.items()}
    lists = {name: nodes.tolist() for name, nodes in SPLIT.items()}
    x, y, edges = DATA.x.double().numpy(), DATA.y.to(torch.int32).numpy(), DATA.edge_index.numpy()
    x.setflags(write=False)
    assert fitted(DATA.x, DATA.y, DATA.edge_index, **masks) == expected
    assert fitted(x, y, edges, **arrays) == expected
    flipped, adjacency = (
        np.flip(np.flip(x).copy()),
        scipy.sparse.csr_matrix(DATA.graph().to_dense()),
    )
    assert fitted(flipped, y.tolist(), adjacency, **lists) == expected
    assert fitted(DATA.x.to_sparse(), DATA.y, DATA.graph(), **SPLIT) == expected


def test_a_sparse_matrix_trains_as_its_features() -> None:
    torch.manual_seed(0)
    start = GCN(6, 2, dropout=0.0)
    found = [
        fit_nodes(copy.deepcopy(start), x, DATA.y, **SPLIT, config=CONFIG).history
        for x in (DATA.x, scipy.sparse.csr_matrix(DATA.x.double()))
    ]
    assert found[1][-1] == pytest.approx(found[0][-1])


@pytest.mark.parametrize("is_weighted", [False, True])
def test_data_of_pytorch_geometric_bring_everything(is_weighted: bool) -> None:
    expected = fitted(DATA.x, DATA.y, DATA.graph(), **SPLIT)
    masks = {f"{name}_mask": mask(nodes) for name, nodes in SPLIT.items()}
    given = {"x": DATA.x, "y": DATA.y, "edge_index": DATA.edge_index}
    if is_weighted:
        given["edge_weight"] = torch.ones(DATA.edge_index.shape[1])
    assert fitted(SimpleNamespace(**given, **masks)) == expected
    geometric = pytest.importorskip("torch_geometric.data")
    data = geometric.Data(**given, **masks)
    assert fitted(data) == expected
    assert data.is_undirected()
    # What is given as well replaces an attribute.
    others = {"train": torch.arange(8), "val": [8, 9], "test": [50]}
    assert fitted(data, **others) == fitted(DATA.x, DATA.y, DATA.graph(), **others) != expected
    without = geometric.Data(x=DATA.x, edge_index=DATA.edge_index)
    assert fitted(without, DATA.y, **SPLIT) == expected


def test_training_nodes_are_all_labelled_ones_outside_the_split_unless_named() -> None:
    y = DATA.y.clone()
    y[30:40] = -1
    named = torch.cat([torch.arange(10), torch.arange(15, 30), torch.arange(40, 50)])
    split: dict[str, Any] = {"val": torch.arange(10, 15), "test": torch.arange(50, 60)}
    assert fitted(DATA.x, y, **split) == fitted(DATA.x, y, train=named, **split)


def test_a_network_is_trained_in_place_and_new_nodes_are_classified(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = JLGCN(6, 8, 2, rank=3)
    config = TrainConfig(epochs=20, lr=0.02)
    result = fit_nodes(model, DATA.x, DATA.y, DATA.edge_index, **SPLIT, config=config)
    assert result.test_accuracy > 0.8
    assert not model.training
    found = model(DATA.x, DATA.edge_index).logits.argmax(-1)[DATA.test] == DATA.y[DATA.test]
    assert float(found.double().mean()) == pytest.approx(result.test_accuracy)
    model.save(tmp_path)
    later = small_data(120)  # its nodes from 60 on are new
    graph = attach(as_graph(DATA.edge_index, 60), 60)
    for network in (model, JLGCN.load(tmp_path)):
        logits = network(torch.cat([DATA.x, later.x[60:]]), graph).logits[60:]
        assert float((logits.argmax(-1) == later.y[60:]).double().mean()) > 0.8


def test_without_test_nodes_there_is_no_test_accuracy() -> None:
    split = SPLIT | {"test": None}
    result = fit_nodes(JLGCN(6, 8, 2), DATA.x, DATA.y, **split, config=CONFIG)
    assert math.isnan(result.test_accuracy)


def test_no_seed_continues_the_random_generators() -> None:
    start = JLGCN(6, 8, 2)

    def trained(seed: int | None) -> str:
        model = copy.deepcopy(start)
        result = fit_nodes(model, DATA.x, DATA.y, **SPLIT, config=CONFIG, seed=seed)
        return result.parameter_sha256

    torch.manual_seed(5)
    first, second = trained(None), trained(None)
    assert first == trained(5)
    assert first != second


def test_checkpoints_belong_to_data_initial_parameters_and_random_state(tmp_path: Path) -> None:
    def train(seed: int = 0, weights: int = 0, **changes: Any) -> str:  # noqa: ANN401
        torch.manual_seed(weights)
        model = JLGCN(6, 8, 2, rank=3)
        given = {"x": DATA.x, "y": DATA.y, "graph": DATA.edge_index} | SPLIT
        options = RunOptions(checkpoints=tmp_path)
        result = fit_nodes(model, **given | changes, config=CONFIG, seed=seed, options=options)
        return result.parameter_sha256

    first = train()
    assert train() == first  # which resumes
    few = DATA.edge_index[:, (DATA.edge_index > 5).all(0)]
    y = DATA.y.index_fill(0, torch.tensor([45]), 0)
    for changes in (
        *({"x": DATA.x + 1}, {"y": y}, {"graph": few}, {"graph": None}),
        *({"train": DATA.train[1:]}, {"test": None}, {"seed": 1}, {"weights": 1}),
    ):
        with pytest.raises(ValueError, match=r"are of another run.*create the network as"):
            train(**changes)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"y": None}, "y is needed, but it is None; pass a tensor"),
        ({"y": ["a"] * 60}, "y must be of numbers, but it is a list of <U1"),
        ({"x": np.array([[object()]] * 60)}, "x must be of numbers, but it is a ndarray of object"),
        ({"y": DATA.y[1:]}, "y must have a class for each of 60 nodes"),
        ({"y": DATA.y.double()}, "y must be of integers"),
        ({"y": 5 * DATA.y}, "y has classes from 0 to 5, but the network has 2 outputs; make it"),
        ({"val": None}, "val must name nodes, but it is empty"),
        ({"test": [60]}, "test must name nodes from 0 to 59, but entry 0 is 60"),
        ({"test": [-1]}, "test must name nodes from 0 to 59, but entry 0 is -1"),
        ({"train": [0.5]}, "train must be a vector of node indices, or a mask of 60 nodes, but it"),
        ({"train": mask(DATA.train)[1:]}, r"of shape \(59,\); give it an entry for each node"),
        ({"train": mask(DATA.train).long()}, r"of a mask of zeros and ones call .bool\(\)"),
        ({"train": mask(DATA.train).repeat(2, 1).T}, "of several masks pass one column"),
        ({"y": DATA.y.index_fill(0, DATA.test[1:], -1)}, r"at the nodes of test, but y\[41\] is"),
        ({"x": DATA.x / 0}, "x must be finite"),
        ({"graph": as_graph(None, 59)}, "the graph has 59 nodes but 60 are needed"),
    ],
)
def test_mistaken_data_are_refused(changes: dict[str, Any], match: str) -> None:
    given = {"x": DATA.x, "y": DATA.y, "graph": DATA.edge_index} | SPLIT | changes
    with pytest.raises((ValueError, TypeError), match=match):
        fit_nodes(JLGCN(6, 8, 2), **given, config=CONFIG)


def test_nodes_of_two_parts_are_warned_of() -> None:
    parts = SPLIT | {"val": DATA.train[:3]}
    with pytest.warns(UserWarning, match="^3 nodes are in both train and val") as caught:
        fit_nodes(JLGCN(6, 8, 2), DATA.x, DATA.y, **parts, config=CONFIG)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("model", [lambda: JLGCN(6, 8, 2), JLGCN, nn.ReLU(), None])
def test_what_is_not_a_network_is_refused(model: Any) -> None:  # noqa: ANN401
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module with parameters"):
        fit_nodes(model, DATA.x, DATA.y, **SPLIT)
