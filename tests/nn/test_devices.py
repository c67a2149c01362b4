"""Networks on an accelerator: every tensor on the device of its inputs, and no forward waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from jlgcn import _validation
from jlgcn.nn import JLGCN, GraphLearner, GraphLevelJLGCN, features, graph_models
from jlgcn.nn.learner import Backend
from tests.devices import explicit_devices, no_synchronization

EDGES = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


class Calls(TorchFunctionMode):
    """Counts how often each function of PyTorch is called."""

    def __init__(self) -> None:
        super().__init__()
        self.counter: Counter[object] = Counter()

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        self.counter[func] += 1
        return func(*args, **(kwargs or {}))


@pytest.fixture
def _no_check_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_validation, "is_check_due", lambda *_: False)


@pytest.mark.parametrize("backend", ["exact", "knn", "dense"])
def test_layers_for_nodes_name_the_device_of_every_tensor(backend: Backend) -> None:
    x = torch.randn(20, 5)
    with explicit_devices():
        model = JLGCN(5, 4, 2, rank=3, backend=backend)
        output = model.calibrate(x, EDGES)(x, EDGES)
        loss = output.logits.sum() + model.regularizer(output, x, probes=2)
        loss.backward()
        model.learners[0].edges(x, EDGES)


def test_layers_for_graphs_name_the_device_of_every_tensor() -> None:
    x, batch = torch.randn(20, 3), torch.tensor([0] * 12 + [1] * 8)
    with explicit_devices():
        model = GraphLevelJLGCN(3, 2, (8,), (4,), rank=2)
        output = model.calibrate(x, EDGES, batch)(x, EDGES, batch)
        (output.logits.sum() + model.regularizer(output).sum()).backward()


def test_networks_can_be_made_on_any_device() -> None:
    with torch.device("meta"):
        models = [JLGCN(5, 4, 2), GraphLevelJLGCN(3, 2, (8,), (4,))]
    for model in models:
        assert {t.device.type for t in model.state_dict().values()} == {"meta"}


@pytest.mark.usefixtures("_no_check_is_due")
def test_learners_read_no_value_on_an_accelerator_between_checks() -> None:
    # Reading a value of the meta device is an error.
    learner = GraphLearner(5, rank=3, metric_init="random").to("meta")
    assert learner.project(torch.empty(20, 5, device="meta")).shape == (20, 3)


@pytest.mark.usefixtures("_no_check_is_due")
def test_features_on_an_accelerator_are_always_centred() -> None:
    x = torch.empty(20, 5, device="meta")
    learner = GraphLearner(5, rank=3, metric_init="random").to("meta")
    with Calls() as calls:
        learner.project(x)
    assert calls.counter[Tensor.mean] == 1


@pytest.mark.parametrize("num_learned", [0, 1])
def test_a_batch_of_graphs_reads_no_value_between_checks(
    num_learned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = GraphLevelJLGCN(3, 2, (8,), (4,), num_learned=num_learned), torch.randn(4, 20, 3)
    monkeypatch.setattr(features, "check_projection", lambda z, x: None)
    monkeypatch.setattr(features, "is_far_away", lambda z: True)
    monkeypatch.setattr(graph_models, "is_check_due", lambda *_: False)
    for conv in model.learners:
        conv.health.has_warned = True
    with no_synchronization():
        model(x)


def test_padding_costs_one_synchronization_a_forward() -> None:
    model = GraphLevelJLGCN(3, 2, (8, 8, 8), (4,), rank=2)
    valid = torch.ones(4, 20, dtype=torch.bool)
    valid[1, 15:] = False
    with Calls() as calls:
        model(torch.randn(4, 20, 3), valid=valid)
    assert calls.counter[Tensor.nonzero] == 1
