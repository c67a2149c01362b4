from __future__ import annotations

import copy
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn

from evaluation.sealed_test import seal
from jlgcn.graphs import Graph
from jlgcn.nn import JLGCN, DecoupledJLGCN, JLGCNOptions
from jlgcn.ops import SparseFeatures
from jlgcn.paper.baselines import GCN
from jlgcn.paper.node_data import NodeData
from jlgcn.training import DecoupledConfig, FitResult, RunOptions, TrainConfig
from jlgcn.training.checkpoint import load_checkpoint, save_checkpoint
from jlgcn.training.loop import Best, Run, Snapshot
from tests.processes import run_processes
from tests.training.node_worker import history
from tests.training.small import fit_data, small_data, train_small

ROOT = Path(__file__).parents[2]


@pytest.fixture
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Oracle(nn.Module):
    """Knows labels of chosen nodes, in some epochs; its accuracy is known in every epoch."""

    def __init__(self, plan: list[list[int]]) -> None:
        super().__init__()
        self.plan = plan
        self.weight = nn.Parameter(torch.zeros(2))
        self.register_buffer("epoch", torch.tensor(-1))
        self.epoch: Tensor

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        if self.training:
            self.epoch += 1
        y = small_data().y
        logits = 5.0 * nn.functional.one_hot(1 - y, 2) + self.weight
        known = torch.tensor(self.plan[int(self.epoch)], dtype=torch.int64)
        return logits.index_copy(0, known, 5.0 * nn.functional.one_hot(y[known], 2) + self.weight)


def run_oracle(plan: list[list[int]], **keywords: Any) -> FitResult:  # noqa: ANN401
    data = small_data()
    config = TrainConfig(epochs=len(plan), glr_weight=0, lr=1e-9)
    return fit_data(Oracle(plan), data, config=config, seed=0, **keywords)


def test_validation_selects_and_test_does_not() -> None:
    # Epoch 1 is best on validation (nodes 10 to 39), epoch 2 on test (40 to 119).
    plan = [[10], [10, 11, 12, 40], [10, *range(40, 120)]]
    result = run_oracle(plan, trace_test=True)
    assert result.best_epoch == 1
    assert result.val_accuracy == pytest.approx(3 / 30)
    assert result.test_accuracy == pytest.approx(1 / 80)
    assert result.best_test_accuracy == 1


def test_classes_weigh_in_training_and_validation_and_not_in_tests() -> None:
    plan = [[0, 10, 40, 41]]  # one training node of class 0 of five, one validation node of 15
    result = run_oracle(plan, class_weight=[3.0, 1.0])
    wrong, right = math.log(1 + math.exp(5)), math.log(1 + math.exp(-5))
    expected = (3 * right + 4 * 3 * wrong + 5 * wrong) / (5 * 3 + 5)
    assert result.history[0]["loss"] == pytest.approx(expected, rel=1e-5)
    assert result.val_accuracy == pytest.approx(3 / (15 * 3 + 15))
    assert result.test_accuracy == pytest.approx(2 / 80)
    for wrong_weight in ([1.0], [1.0, 0.0], [1.0, math.nan]):
        with pytest.raises(ValueError, match="class_weight must have a finite weight above 0"):
            run_oracle(plan, class_weight=wrong_weight)


def test_test_nodes_are_not_traced_unless_asked() -> None:
    result = run_oracle([[10], [11]])
    assert result.best_test_accuracy is None
    assert all("test_accuracy" not in row for row in result.history)


@pytest.mark.slow
def test_tracing_test_nodes_changes_nothing_else() -> None:
    plain, traced = train_small(3, 15)[1], train_small(3, 15, trace_test=True)[1]
    assert plain.parameter_sha256 == traced.parameter_sha256
    assert plain.test_accuracy == traced.test_accuracy


def test_hidden_test_labels_change_nothing_but_their_accuracy() -> None:
    data, config = small_data(), TrainConfig(epochs=2)
    hidden, _ = seal(data)
    start = GCN(6, 2, 4)
    found = [fit_data(copy.deepcopy(start), each, config=config, seed=3) for each in (data, hidden)]
    assert found[0].test_accuracy > 0
    assert math.isnan(found[1].test_accuracy)
    assert found[1].parameter_sha256 == found[0].parameter_sha256
    assert found[1].history == found[0].history
    with pytest.raises(ValueError, match=r"0 or more at the nodes of test, but y\[40\] is -1"):
        fit_data(start, hidden, config=config, trace_test=True)


def test_equal_accuracy_is_decided_by_loss_then_by_time() -> None:
    best = Best(3, 0.8, 0.5)
    assert best.is_beaten_by(0.81, 9.0)
    assert best.is_beaten_by(0.8, 0.4)
    assert not best.is_beaten_by(0.8, 0.5)
    assert not best.is_beaten_by(0.79, 0.1)


@pytest.mark.slow
def test_it_learns() -> None:
    model, result = train_small(0, 60)
    assert result.test_accuracy > 0.9
    assert result.history[-1]["loss"] < result.history[0]["loss"]
    assert not model.training
    assert result.seconds > 0
    assert result.peak_bytes > 10**7


@pytest.mark.slow
def test_the_same_seed_twice_is_the_same_to_the_bit() -> None:
    assert train_small(1, 10)[1].parameter_sha256 == train_small(1, 10)[1].parameter_sha256
    assert train_small(1, 10)[1].parameter_sha256 != train_small(2, 10)[1].parameter_sha256


def test_the_rate_decays_in_steps() -> None:
    config = TrainConfig(lr=0.1, lr_step=100, lr_decay=0.5)
    assert [config.rate(e) for e in (0, 99, 100, 250)] == [0.1, 0.1, 0.05, 0.025]


def test_a_loss_that_is_not_finite_says_what_to_do() -> None:
    class Infinite(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.full((2,), float("inf")))

        def forward(self, x: Tensor, graph: Graph) -> Tensor:
            return x[:, :2] * self.weight

    data, config = small_data(), TrainConfig(epochs=1, glr_weight=0)
    with pytest.raises(FloatingPointError, match="in epoch 0; use a smaller lr or glr_weight"):
        fit_data(Infinite(), data, config=config)


def bag_of_words() -> NodeData:
    data = small_data()
    words = data.x.repeat(1, 5) * (torch.rand(120, 30, generator=torch.manual_seed(0)) < 0.2)
    return replace(data, x=words)


@pytest.mark.parametrize("backend", ["exact", "knn"])
def test_sparse_features_train_like_dense_ones(backend: Any) -> None:  # noqa: ANN401
    data, config = bag_of_words(), TrainConfig(epochs=3, lr=0.02, glr_probes=4)
    histories = []
    for x in (data.x, SparseFeatures.from_dense(data.x), csr_array(data.x.numpy())):
        torch.manual_seed(0)
        options = JLGCNOptions(metric_init="median")
        model = JLGCN(30, 4, 2, rank=3, backend=backend, num_neighbors=4, options=options)
        found = fit_data(model, data, x=x, config=config, seed=1)
        histories.append([row["loss"] for row in found.history])
    assert histories[1] == histories[2] == pytest.approx(histories[0], rel=1e-4)


def test_sparse_features_train_baselines() -> None:
    data = small_data()
    x, config = SparseFeatures.from_dense(data.x), TrainConfig(epochs=1, glr_weight=0)
    assert fit_data(GCN(x.shape[1], 2), data, x=x, config=config).best_epoch == 0


def train_knn(epochs: int, checkpoints: Path | None = None) -> tuple[JLGCN, FitResult]:
    torch.manual_seed(0)
    options = JLGCNOptions(metric_init="median")
    model = JLGCN(6, 8, 2, rank=3, backend="knn", num_neighbors=4, options=options)
    result = fit_data(
        model,
        small_data(),
        config=TrainConfig(epochs=epochs, lr=0.05, glr_probes=4),
        options=RunOptions(checkpoints=checkpoints, checkpoint_seconds=0),
    )
    return model, result


@pytest.mark.parametrize("first", [1, 2, 5, 8])
def test_kept_neighbours_resume_to_the_bit(first: int, tmp_path: Path) -> None:
    whole = train_knn(12)[1]
    train_knn(first, tmp_path)
    change_epochs(tmp_path, 12)
    resumed = train_knn(12, tmp_path)[1]
    assert resumed.history == whole.history
    assert resumed.parameter_sha256 == whole.parameter_sha256
    assert train_knn(12)[1].history == whole.history


def change_epochs(folder: Path, epochs: int) -> None:
    """Let a checkpoint be one of a longer run, as if this one had been interrupted."""
    found = load_checkpoint(folder)
    assert found is not None
    tensors, state = found
    state["identity"]["config"]["epochs"] = epochs
    shutil.rmtree(folder)
    save_checkpoint(folder, state["epoch"], tensors, state)


def test_kept_neighbours_of_a_checkpoint_are_validated(tmp_path: Path) -> None:
    train_knn(2, tmp_path)
    found = load_checkpoint(tmp_path)
    assert found is not None
    tensors, state = found
    shutil.rmtree(tmp_path)
    bad = tensors | {"neighbors/0/found": torch.full((120, 4), 120)}
    save_checkpoint(tmp_path, 2, bad, state)
    with pytest.raises(ValueError, match=r"not one of this network.*must be nodes"):
        train_knn(2, tmp_path)


def test_the_returned_network_searches_for_itself(tmp_path: Path) -> None:
    model, result = train_knn(6)
    assert model.neighbors.num_searches == 0
    data = small_data()
    predicted = model(data.x, data.graph()).logits.argmax(-1)
    accuracy = (predicted == data.y)[data.test].double().mean()
    assert float(accuracy) == result.test_accuracy


def test_a_checkpoint_that_was_changed_and_signed_again_is_refused(tmp_path: Path) -> None:
    train_small(0, 3, tmp_path)
    found = load_checkpoint(tmp_path)
    assert found is not None
    tensors, state = found
    name = next(name for name in tensors if name.startswith("adam/0/exp_avg"))

    def refuses(match: str, **changes: Any) -> None:  # noqa: ANN401
        of_state = {key: value for key, value in changes.items() if key in state}
        of_tensors = {key: value for key, value in changes.items() if key not in state}
        shutil.rmtree(tmp_path)
        save_checkpoint(tmp_path, 3, tensors | of_tensors, state | of_state)
        with pytest.raises(ValueError, match=f"is not one of this network.*{match}.*start again"):
            train_small(0, 3, tmp_path)

    refuses("epoch must be a whole number from 0", epoch="2")
    refuses("best lacks fields", best={})
    refuses("seconds must be a number", seconds=float("nan"))
    refuses(r"history\[0\] must be text", history=[3])
    refuses("history is torch.float64 of shape", epoch=1)
    refuses("unknown tensors: more", more=torch.zeros(1))
    refuses(f"{name} is torch.float32 of shape", **{name: torch.zeros(1)})
    refuses(f"{name} must be finite", **{name: tensors[name] / 0})
    refuses("adam/0/step is negative", **{"adam/0/step": torch.tensor(-1.0)})
    refuses("history must have the columns epoch", history=["1", *state["history"][1:]])
    refuses("history must have the columns epoch", history=["epoch", "epoch", "epoch", "loss"])
    swapped = tensors["history"].flip(0)
    numbers = {name: tensor for name, tensor in tensors.items() if name != "history"}
    shutil.rmtree(tmp_path)
    save_checkpoint(tmp_path, 3, numbers | {"history": swapped}, state)
    with pytest.raises(ValueError, match="the epochs of history are not 0, 1, 2"):
        train_small(0, 3, tmp_path)
    refuses("mt19937", random=torch.zeros_like(tensors["random"]))


def test_checkpoints_of_another_run_are_refused(tmp_path: Path) -> None:
    train_small(0, 3, tmp_path)
    with pytest.raises(ValueError, match=r"are of another run.*choose another folder"):
        train_small(1, 3, tmp_path)


OTHER_NETWORKS: list[tuple[Callable[[float], nn.Module], float, float]] = [
    (lambda dropout: JLGCN(6, 8, 2, rank=3, dropout=dropout), 0.9, 0.0),
    (lambda slope: JLGCN(6, 8, 2, rank=3, negative_slope=slope), 0.2, 0.1),
    (lambda restart: DecoupledJLGCN(6, 8, 2, restart=restart), 0.1, 0.2),
    (lambda dropout: GCN(6, 2, 4, dropout), 0.5, 0.0),  # of which its repr says nothing
]


@pytest.mark.parametrize(("make", "setting", "other"), OTHER_NETWORKS)
def test_checkpoints_of_a_network_of_other_settings_are_refused(
    make: Callable[[float], nn.Module], setting: float, other: float, tmp_path: Path
) -> None:
    def train(setting: float) -> str:
        torch.manual_seed(0)
        model = make(setting)
        kind = DecoupledConfig if isinstance(model, DecoupledJLGCN) else TrainConfig
        options = RunOptions(checkpoints=tmp_path)
        return fit_data(
            model, small_data(), config=kind(epochs=1), seed=0, options=options
        ).parameter_sha256

    first = train(setting)
    assert train(setting) == first
    with pytest.raises(ValueError, match=r"are of another run.*other network"):
        train(other)


@pytest.mark.slow
@pytest.mark.usefixtures("_one_thread")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_leave_a_checkpoint(tmp_path: Path, number: signal.Signals, code: int) -> None:
    command = [sys.executable, "-m", "tests.training.small", "0", "100000", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        while not (tmp_path / "LATEST").exists():
            time.sleep(0.01)
        start = time.perf_counter()
        process.send_signal(number)
        returned = process.wait()
        assert time.perf_counter() - start < 10
    assert returned == code
    assert load_checkpoint(tmp_path) is not None
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.parametrize("during", ["snapshot", "save"])
@pytest.mark.parametrize("last", [False, True])
def test_a_signal_between_two_epochs_leaves_a_checkpoint(
    during: str, last: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kind: Any = Run if during == "snapshot" else Snapshot
    original = getattr(kind, during)
    sent: list[int] = []

    def interrupted(self: Any, *args: Any) -> Any:  # noqa: ANN401
        epoch = self.epoch
        if epoch == (3 if last else 1) and not sent:
            sent.append(epoch)
            signal.raise_signal(signal.SIGTERM)
        return original(self, *args)

    monkeypatch.setattr(kind, during, interrupted)
    options = RunOptions(
        checkpoints=tmp_path, checkpoint_seconds=0 if during == "save" else math.inf
    )

    def train() -> FitResult:
        torch.manual_seed(0)
        config = TrainConfig(epochs=3, glr_weight=0)
        return fit_data(GCN(6, 2, 4), small_data(), config=config, seed=0, options=options)

    with pytest.raises(SystemExit, match="143"):
        train()
    found = load_checkpoint(tmp_path)
    assert found is not None
    assert found[1]["epoch"] >= sent[0]
    assert len(train().history) == 3


@pytest.mark.nightly
def test_two_seeds_side_by_side_are_the_same_as_one_after_the_other(tmp_path: Path) -> None:
    def start(seed: int, folder: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.training.small", str(seed), "30", str(folder)]
        return subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=dict(os.environ)
        )

    together = [start(seed, tmp_path / f"together-{seed}") for seed in (0, 1)]
    side_by_side = [process.communicate()[0] for process in together]
    in_turn = [start(seed, tmp_path / f"turn-{seed}").communicate()[0] for seed in (0, 1)]
    assert side_by_side == in_turn
    assert side_by_side[0] != side_by_side[1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the learned graph is (complete|dead)")
def test_two_processes_train_as_one() -> None:
    printed = run_processes(2, "tests.training.node_worker")
    (line,) = (line for line in printed.splitlines() if line.startswith("["))
    assert json.loads(line) == pytest.approx(history("paper") + history("authors"), rel=1e-9)
