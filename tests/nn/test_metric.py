from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import jlgcn.nn.euclidean
import jlgcn.nn.learner
from jlgcn.graphs.candidates import Candidates
from jlgcn.nn import JLGCN, GraphLearner, JLGCNOptions
from jlgcn.nn.euclidean import near_distance
from jlgcn.nn.learner import Backend
from jlgcn.ops import SparseFeatures, nearest_neighbors
from tests.brute import largest_difference, points


def euclidean(rank: int = 3, backend: Backend = "exact", num_neighbors: int = 4) -> GraphLearner:
    learner = GraphLearner(
        5, rank, metric_init="euclidean", backend=backend, num_neighbors=num_neighbors
    )
    return learner.double()


def strong(backend: Backend = "exact", num_neighbors: int = 4) -> GraphLearner:
    """Return a calibrated learner whose low-rank part is as large as the Euclidean one."""
    learner = euclidean(backend=backend, num_neighbors=num_neighbors).calibrate(points(30, 5))
    learner.metric.weight.data = points(3, 5)
    return learner


def brute(x: Tensor, learner: GraphLearner) -> Tensor:
    delta = x.unsqueeze(0) - x.unsqueeze(1)
    assert learner.unit is not None
    low_rank = (delta @ learner.metric.weight.detach().mT).square().sum(-1)
    return (-(delta.square().sum(-1) / learner.unit + low_rank)).exp()


def test_the_unit_is_that_of_the_closed_form() -> None:
    x = points(60, 5)
    learner = euclidean().calibrate(x)
    assert learner.unit is not None
    assert float(learner.unit) == pytest.approx(Candidates.find(x, 40, None).unit, rel=1e-12)


def test_the_unit_of_many_rows_is_estimated_from_some(monkeypatch: pytest.MonkeyPatch) -> None:
    x = points(400, 5)
    exact = near_distance(x)
    monkeypatch.setattr(jlgcn.nn.euclidean, "_NUM_SAMPLED_ROWS", 200)
    assert near_distance(x) == pytest.approx(exact, rel=0.1)
    assert near_distance(SparseFeatures.from_dense(x)) == pytest.approx(near_distance(x))


def test_the_unit_of_equal_rows_is_one() -> None:
    assert near_distance(torch.ones(10, 5)) == 1
    assert near_distance(torch.ones(1, 5)) == 1


@pytest.mark.parametrize("backend", ["exact", "dense", "knn"])
def test_every_backend_adds_both_distances(backend: Backend) -> None:
    x = points(30, 5)
    learner = strong(backend, num_neighbors=29)
    assert largest_difference(learner(x).to_dense(), brute(x, learner)) < 1e-12


def test_training_starts_at_the_fixed_graph() -> None:
    x = points(30, 5)
    learner = euclidean().calibrate(x)
    start = learner(x).to_dense()
    learner.metric.weight.data.zero_()
    assert 0 < largest_difference(start, learner(x).to_dense()) < 1e-3


def test_the_gradient_is_not_zero_at_the_start() -> None:
    x = points(30, 5)
    learner = euclidean().calibrate(x)
    learner.edges(x)[1].sum().backward()
    assert learner.metric.weight.grad is not None
    assert bool((learner.metric.weight.grad != 0).all())


def test_the_near_distance_after_calibration_is_the_given_one() -> None:
    x = points(30, 5)
    learner = GraphLearner(5, 2, metric_init="euclidean", median_distance=3.0).double()
    assert near_distance(learner.calibrate(x).project(x)) == pytest.approx(3.0, rel=1e-3)


def test_features_far_from_the_origin_are_centred() -> None:
    x = points(30, 5).float()
    learner = strong().float()
    expected = brute(x.double(), learner.double())
    assert largest_difference(learner.float()(x + 1000).to_dense().double(), expected) < 1e-2


@pytest.mark.parametrize("backend", ["exact", "knn"])
def test_sparse_features_give_the_graph_of_dense_ones(backend: Backend) -> None:
    x = points(30, 5) * (points(30, 5) > 0)
    learner = strong(backend)
    found = learner(SparseFeatures.from_dense(x)).to_dense()
    assert largest_difference(found, learner(x).to_dense()) < 1e-12


def test_sparse_features_that_do_not_fit_as_dense_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jlgcn._memory.available_bytes", lambda _: 0)
    monkeypatch.setattr("jlgcn._memory._HARMLESS_BYTES", 0)
    with pytest.raises(ValueError, match=r'of sparse features needs .* metric_init="median"'):
        strong().project(SparseFeatures.from_dense(points(30, 5)))


def test_a_metric_without_calibration_is_refused() -> None:
    with pytest.raises(
        RuntimeError, match=r'metric_init="euclidean" scales .* call calibrate\(x\)'
    ):
        euclidean()(points(30, 5))


def test_reset_parameters_asks_for_another_calibration() -> None:
    learner = strong()
    learner.reset_parameters()
    assert learner.unit is not None
    assert float(learner.unit) == 1
    assert not learner.is_calibrated
    assert not bool(learner.is_scaled)


def test_only_the_euclidean_metric_has_a_unit_among_its_tensors() -> None:
    assert "unit" in euclidean().state_dict()
    assert "unit" not in GraphLearner(5).state_dict()


def test_the_unit_is_saved_and_loaded(tmp_path: Path) -> None:
    x = points(30, 5).float()
    model = JLGCN(5, 4, 3, rank=3, options=JLGCNOptions(metric_init="euclidean"))
    model.calibrate(x).eval().save(tmp_path)
    assert torch.equal(JLGCN.load(tmp_path)(x).logits, model(x).logits)


def test_a_saved_unit_must_be_positive(tmp_path: Path) -> None:
    model = JLGCN(5, 4, 3, rank=3, options=JLGCNOptions(metric_init="euclidean"))
    assert model.learners[0].unit is not None
    model.learners[0].unit.zero_()
    with pytest.raises(ValueError, match="unit must be above 0"):
        model.save(tmp_path)


def test_an_explanation_is_exact_and_begins_with_the_euclidean_part() -> None:
    x, learner = points(30, 5), strong()
    found = learner.explain_edge(x[0], x[1])
    assert found.weight == pytest.approx(float(brute(x, learner)[0, 1]), rel=1e-10)
    assert learner.unit is not None
    own = float((x[0] - x[1]).square().sum() / learner.unit)
    assert float(found.directions[0]) == pytest.approx(own)
    assert float(found.features.sum()) == pytest.approx(found.squared_distance)


def test_importance_sums_to_the_mean_squared_distance() -> None:
    x, learner = points(30, 5), strong()
    mean = -brute(x, learner).log().mean()
    assert float(learner.feature_importance(x).sum()) == pytest.approx(float(mean))


def test_regression_finds_the_feature_that_separates_classes() -> None:
    x = points(200, 5)
    probability = torch.stack([(x[:, 1] > 0), (x[:, 1] <= 0)], -1).double()
    learner = euclidean().calibrate(x).regress_metric(x, probability, variance=2.0)
    strength = learner.metric.weight.detach().square().sum(0)
    assert int(strength.argmax()) == 1
    assert float(strength[1] / strength.sum()) > 0.9


def test_regression_sets_the_variance_and_leaves_other_columns_zero() -> None:
    x, probability = points(200, 5), points(200, 2).softmax(-1)
    learner = euclidean(rank=3).calibrate(x).regress_metric(x, probability, variance=2.0)
    z = learner.project(x)[:, 5:].detach()
    assert float(z.var(0, correction=0).sum()) == pytest.approx(2.0)
    assert not bool(learner.metric.weight[2].any())


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "another metric": (
        lambda: GraphLearner(5, metric_init="random").regress_metric(points(9, 5), points(9, 2)),
        'needs metric_init="euclidean"',
    ),
    "no calibration": (
        lambda: euclidean().regress_metric(points(9, 5), points(9, 2)),
        "not calibrated",
    ),
    "too many classes": (
        lambda: strong().regress_metric(points(9, 5), points(9, 4)),
        "at most 3 columns, .*; set rank to the number of classes",
    ),
    "other rows": (lambda: strong().regress_metric(points(9, 5), points(8, 2)), "must have 9 rows"),
    "a negative variance": (
        lambda: strong().regress_metric(points(9, 5), points(9, 2), variance=-1.0),
        "variance must be at least 0",
    ),
}


@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED)
def test_regression_refuses_what_it_cannot_use(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collect the sizes of all searches among all rows by `edges`."""
    found: list[int] = []

    def search(z: Tensor, k: int, **keywords: object) -> Tensor:
        if not keywords:
            found.append(len(z))
        return nearest_neighbors(z, k, **keywords)  # type: ignore[arg-type]

    monkeypatch.setattr("jlgcn.nn.neighbors.nearest_neighbors", search)
    monkeypatch.setattr("jlgcn.nn.learner.nearest_neighbors", search)
    return found


def test_kept_edges_search_once(searches: list[int]) -> None:
    learner, x = strong(), points(30, 5)
    for _ in range(5):
        learner.edges(x, keep=True)
    assert len(searches) == 1


def test_kept_edges_are_searched_again_for_other_features(searches: list[int]) -> None:
    learner, x = strong(), points(30, 5)
    for features in (x, 2 * x):
        kept, fresh = learner.edges(features, keep=True), learner.edges(features)
        assert torch.equal(kept[0], fresh[0])
        assert largest_difference(kept[1], fresh[1]) < 1e-12
    assert len(searches) == 4


def test_kept_edges_are_searched_again_once_the_metric_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jlgcn.nn.learner, "_MIN_RECALL", 1.0)
    learner, x = strong(), points(30, 5)
    learner.edges(x, keep=True)
    learner.metric.weight.data = points(3, 5)
    for _ in range(2):  # a check is due at the second call
        found = learner.edges(x, keep=True)
    assert torch.equal(found[0], learner.edges(x)[0])


@pytest.mark.parametrize("given", [None, torch.tensor([[0, 9], [20, 3]])], ids=["none", "edges"])
def test_kept_edges_have_the_gradient_of_fresh_ones(given: Tensor | None) -> None:
    x, learner = points(30, 5), strong()
    gradients = []
    for keep in (False, True):
        learner.zero_grad()
        learner.edges(x, given, keep=keep)[1].square().sum().backward()
        assert learner.metric.weight.grad is not None
        gradients.append(learner.metric.weight.grad.clone())
    assert largest_difference(*gradients) < 1e-12


def test_kept_edges_are_differentiable_in_features() -> None:
    rows, learner = points(30, 5), strong()
    gradients = []
    for keep in (False, True):
        x = rows.clone().requires_grad_()
        learner.edges(x, keep=keep)[1].sum().backward()
        assert x.grad is not None
        gradients.append(x.grad)
    assert largest_difference(*gradients) < 1e-12


def test_edges_of_a_batch_are_not_kept() -> None:
    with pytest.raises(ValueError, match="keep=True needs a single graph"):
        strong().edges(points(4, 5), batch=torch.tensor([0, 0, 1, 1]), keep=True)
