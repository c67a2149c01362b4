from __future__ import annotations

import pytest

from jlgcn.nn import GraphLevelJLGCN
from jlgcn.paper.cloud_baselines import KnnGCN
from jlgcn.paper.cloud_experiment import WIDTHS, make_model
from jlgcn.paper.model_sizes import size_table
from jlgcn.paper.recipes import get_recipe

EXPLAINED = ("knn-gcn, no concatenation", "jlgcn, wide metric", "pointnet", "dgcnn")


@pytest.mark.parametrize("name", EXPLAINED)
def test_the_published_sizes_count_adams_moments(name: str) -> None:
    """GCN without concatenation and metrics as wide as W explain 10 and 13 MB."""
    (line,) = (line for line in size_table() if line[0] == name)
    assert float(line[-1]) == pytest.approx(float(line[1]), rel=0.05)


def test_a_size_is_that_of_the_network() -> None:
    variant = get_recipe("clouds/modelnet40").variant("jlgcn, wide metric")
    model = make_model(variant.experiment, 40)
    count = sum(p.numel() for p in model.parameters())
    (line,) = (line for line in size_table() if line[0] == variant.name)
    assert line[2] == f"{count:,}"
    assert line[3] == f"{4 * count / 1e6:.1f}"


def test_a_wide_metric_is_as_wide_as_the_weights() -> None:
    variant = get_recipe("clouds/shapes69-1024").variant("jlgcn, wide metric")
    model = make_model(variant.experiment, 3)
    assert isinstance(model, GraphLevelJLGCN)
    assert tuple(learner.rank for learner in model.learners) == WIDTHS


def test_gcn_without_concatenation_has_half_of_the_weights() -> None:
    recipe = get_recipe("clouds/modelnet40")
    counts = []
    for name in ("knn-gcn, no concatenation", "knn-gcn"):
        model = make_model(recipe.variant(name).experiment, 40)
        assert isinstance(model, KnnGCN)
        counts.append(sum(p.numel() for p in model.network.convs.parameters() if p.dim() > 1))
    assert 2 * counts[0] == counts[1]


def test_the_other_variants_do_not_run_by_default() -> None:
    for name, count in (("shapes69", 4), ("modelnet10", 4), ("modelnet10-1024", 2)):
        chosen = get_recipe(f"clouds/{name}").chosen()
        assert [variant.name for variant in chosen] == ["jlgcn", "knn-gcn", "pointnet", "dgcnn"][
            :count
        ]
