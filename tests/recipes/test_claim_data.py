from __future__ import annotations

import pytest
import torch

from jlgcn.data import load_planetoid
from jlgcn.recipes.claim_data import SETTINGS, load_claim
from tests.data.real import DATA, needs_data

SMALL = [
    (setting, dataset)
    for setting, found in SETTINGS.items()
    for dataset in found.datasets
    if dataset not in ("debian_packages", "pubmed", "flickr", "blogcatalog", "amazon_photo")
]


@needs_data
@pytest.mark.parametrize(("setting", "dataset"), SMALL)
def test_every_claim_has_data_and_a_split_without_overlap(setting: str, dataset: str) -> None:
    for develops in (False, True):
        data = load_claim(setting, dataset, seed=1, root=DATA, develops=develops)
        parts = torch.cat([data.train, data.val, data.test])
        assert len(parts.unique()) == len(parts)
        assert min(len(data.train), len(data.val), len(data.test)) > 0
        assert (data.edge_index.shape[1] == 0) == (setting in ("nograph", "tables"))


@needs_data
@pytest.mark.parametrize("setting", ["given", "nograph", "labels25", "edges50"])
def test_development_never_sees_a_public_test_node(setting: str) -> None:
    public = load_planetoid("cora", DATA).test
    for seed in range(5):
        data = load_claim(setting, "cora", seed=seed, root=DATA, develops=True)
        parts = torch.cat([data.train, data.val, data.test])
        assert not torch.isin(parts, public).any()


@needs_data
def test_settings_take_away_what_they_say() -> None:
    whole = load_planetoid("cora", DATA)
    edges = load_claim("edges25", "cora", seed=0, root=DATA).edge_index.shape[1]
    assert edges == pytest.approx(0.25 * whole.edge_index.shape[1], abs=2)
    assert len(load_claim("labels10", "cora", seed=0, root=DATA).train) == 14
    clean = load_claim("attack00", "cora_metattack", seed=0, root=DATA)
    assert (clean.num_nodes, clean.edge_index.shape[1]) == (2485, 2 * 5069)
    attacked = load_claim("attack25", "cora_metattack", seed=0, root=DATA)
    row, col = attacked.edge_index
    alike = (attacked.y[row] == attacked.y[col]).float().mean()
    clean_alike = (clean.y[clean.edge_index[0]] == clean.y[clean.edge_index[1]]).float().mean()
    assert float(alike) < float(clean_alike) - 0.1  # the attacker joins different classes


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
