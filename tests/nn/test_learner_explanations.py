from __future__ import annotations

import pytest
import torch

from jlgcn import KernelGraph
from jlgcn.closed_form import NodeExplanation
from jlgcn.graphs import EdgeExplanation
from jlgcn.nn import GraphLearner


@pytest.fixture
def learner() -> GraphLearner:
    return GraphLearner(6, 3, metric_init="random")


def test_contributions_sum_to_the_squared_distance_of_the_weight(learner: GraphLearner) -> None:
    x = torch.randn(20, 6)
    graph = learner(x)
    assert isinstance(graph, KernelGraph)
    weights = graph.detach().to_dense()
    for i in range(20):
        for j in range(20):
            why = learner.explain_edge(x[i], x[j])
            assert float(why.directions.sum()) == pytest.approx(why.squared_distance, rel=1e-12)
            assert float(why.features.sum()) == pytest.approx(why.squared_distance, rel=1e-9)
            assert why.weight == pytest.approx(float(weights[i, j]), rel=1e-5)
            assert bool((why.directions >= 0).all())


def test_features_in_which_nodes_agree_add_nothing(learner: GraphLearner) -> None:
    first, second = torch.randn(6), torch.randn(6)
    second[2] = first[2]
    assert float(learner.explain_edge(first, second).features[2]) == 0


def test_an_offsetting_feature_is_negative() -> None:
    learner = GraphLearner(2, 1, metric_init="random")
    with torch.no_grad():
        learner.metric.weight.copy_(torch.tensor([[1.0, -1.0]]))
    why = learner.explain_edge(torch.tensor([2.0, 1.0]), torch.zeros(2))
    assert why.features.tolist() == [2.0, -1.0]
    assert "squared distance 1 over 2 features" in repr(why)


def test_importance_is_the_mean_over_all_pairs(learner: GraphLearner) -> None:
    x = torch.randn(9, 6)
    pairs = [learner.explain_edge(a, b).features for a in x for b in x]
    assert torch.allclose(learner.feature_importance(x), torch.stack(pairs).mean(0), atol=1e-6)


def test_rows_of_another_width_are_refused(learner: GraphLearner) -> None:
    with pytest.raises(ValueError, match="second must be the 6 features of one node"):
        learner.explain_edge(torch.ones(6), torch.ones(5))


def test_an_explanation_cannot_be_changed(learner: GraphLearner) -> None:
    why = learner.explain_edge(torch.ones(6), torch.zeros(6))
    assert isinstance(why, EdgeExplanation)
    with pytest.raises(AttributeError, match="weight"):
        why.weight = 1.0  # type: ignore[misc]


def test_a_nodes_explanation_names_its_class_and_what_speaks_for_it() -> None:
    none = torch.zeros(1, 2)
    why = NodeExplanation(
        scores=torch.tensor([-1.5, 1.5]),
        bias=torch.tensor([0.0, 0.0]),
        own=torch.tensor([-0.5, 0.5]),
        neighbors=torch.tensor([7]),
        learned=torch.tensor([[-1.0, 1.0]]),
        given=none,
    )
    assert repr(why).startswith("NodeExplanation(class 1 with +1.5: bias ")
