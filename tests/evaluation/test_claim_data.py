from __future__ import annotations

import ast
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from torch import Tensor

from evaluation.claim_data import SETTINGS, has_public_split, load_claim, load_sealed
from jlgcn.paper import load_planetoid
from jlgcn.paper.citation import Planetoid
from jlgcn.paper.node_data import NodeData
from tests.real_data import DATA, needs_data

TEN_SPLITS = ("actor", "squirrel_filtered")

SMALL = [
    (setting, dataset)
    for setting, found in SETTINGS.items()
    for dataset in found.datasets
    if dataset not in ("debian_packages", "pubmed", "flickr", "blogcatalog", "amazon_photo")
]
PUBLISHED = [
    (setting, dataset)
    for setting, found in SETTINGS.items()
    for dataset in found.datasets
    if has_public_split(dataset) or dataset in TEN_SPLITS
]


def published_test_nodes(dataset: str) -> Tensor:
    """Return the nodes of every published test set, by the files alone."""
    if dataset == "cora_metattack":
        with np.load(DATA / "attacks/cora_metattack.npz") as file:
            return torch.from_numpy(file["test"]).long()
    if dataset in TEN_SPLITS:
        with np.load(DATA / f"heterophilous/{dataset}.npz") as file:
            return torch.from_numpy(file["test_masks"].any(0)).nonzero().flatten()
    return load_planetoid(cast(Planetoid, dataset), DATA).test


@needs_data
@pytest.mark.parametrize(("setting", "dataset"), SMALL)
def test_every_claim_has_data_and_a_split_without_overlap(setting: str, dataset: str) -> None:
    for develops in (False, True) if dataset not in TEN_SPLITS else (False,):
        data = load_claim(setting, dataset, seed=1, root=DATA, develops=develops)
        parts = torch.cat([data.train, data.val, data.test])
        assert len(parts.unique()) == len(parts)
        assert min(len(data.train), len(data.val), len(data.test)) > 0
        assert (data.edge_index.shape[1] == 0) == (setting in ("nograph", "tables"))


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize(("setting", "dataset"), PUBLISHED)
def test_development_never_sees_a_published_test_label(setting: str, dataset: str) -> None:
    if dataset in TEN_SPLITS:
        with pytest.raises(ValueError, match=f"{dataset} comes with ten splits, all of which"):
            load_claim(setting, dataset, seed=0, root=DATA, develops=True)
        return
    public = published_test_nodes(dataset)
    for seed in range(1 if dataset == "pubmed" else 3):
        data = load_claim(setting, dataset, seed=seed, root=DATA, develops=True)
        assert (data.y[public] == -1).all()
        parts = torch.cat([data.train, data.val, data.test])
        assert not torch.isin(parts, public).any()
        assert (data.y[parts] >= 0).all()


@needs_data
def test_an_attacked_graph_is_developed_on_every_node_but_its_test_nodes() -> None:
    data = load_claim("attack25", "cora_metattack", seed=0, root=DATA, develops=True)
    others = set(range(data.num_nodes)) - set(published_test_nodes("cora_metattack").tolist())
    assert set(torch.cat([data.train, data.val, data.test]).tolist()) == others
    assert (len(data.train), len(data.val), len(data.test)) == (133, 150, 214)


@needs_data
@pytest.mark.parametrize(("setting", "dataset"), SMALL)
def test_test_labels_of_a_claim_are_hidden_and_its_classes_known(
    setting: str, dataset: str
) -> None:
    data, sealed = load_sealed(setting, dataset, seed=2, root=DATA)
    num_classes = {"cora": 7, "citeseer": 6, "cora_metattack": 7, "wine": 3, "cancer": 2}
    assert data.num_classes == num_classes.get(dataset, {"digits": 10}.get(dataset, 5))
    assert torch.equal(sealed.nodes, data.test)
    for hidden in (data, load_claim(setting, dataset, seed=2, root=DATA)):
        assert (hidden.y[hidden.test] == -1).all()
        assert (hidden.y[torch.cat([hidden.train, hidden.val])] >= 0).all()


def test_studies_are_made_on_data_for_development_alone() -> None:
    root = Path(__file__).parents[2]
    num_calls = 0
    for path in sorted((*root.glob("benchmarks/*.py"), *root.glob("evaluation/studies/*.py"))):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                names = {name.name for name in node.names}
                assert not names & {"load_sealed", "seal", "SealedTest"}, path
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "load_claim":
                num_calls += 1
                develops = [key.value for key in node.keywords if key.arg == "develops"]
                assert [ast.unparse(value) for value in develops] == ["True"], path
    assert num_calls >= 2


@needs_data
def test_settings_take_away_what_they_say() -> None:
    whole = load_planetoid("cora", DATA)
    edges = load_claim("edges25", "cora", seed=0, root=DATA).edge_index.shape[1]
    assert edges == pytest.approx(0.25 * whole.edge_index.shape[1], abs=2)
    assert len(load_claim("labels10", "cora", seed=0, root=DATA).train) == 14
    clean = load_claim("attack00", "cora_metattack", seed=0, root=DATA)
    assert (clean.num_nodes, clean.edge_index.shape[1]) == (2485, 2 * 5069)
    attacked = load_claim("attack25", "cora_metattack", seed=0, root=DATA)
    assert alike(attacked) < alike(clean) - 0.1  # the attacker joins different classes


def alike(data: NodeData) -> float:
    """Return how many edges among training and validation nodes join nodes of one class."""
    row, col = data.y[data.edge_index]
    is_known = (row >= 0) & (col >= 0)
    return float((row == col)[is_known].float().mean())


@needs_data
def test_claims_are_made_on_the_public_split() -> None:
    public = load_planetoid("citeseer", DATA)
    data = load_claim("given", "citeseer", seed=4, root=DATA)
    assert torch.equal(data.train, public.train)
    assert torch.equal(data.test, public.test)


def test_unknown_settings_and_data_are_refused() -> None:
    with pytest.raises(ValueError, match="there is no setting 'edges30'; settings are given, nogr"):
        load_claim("edges30", "cora", seed=0)
    with pytest.raises(ValueError, match="tables is for wine, cancer, digits, but the data set is"):
        load_claim("tables", "cora", seed=0)
