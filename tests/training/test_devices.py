"""Training on an accelerator: data, network, random generators and checkpoints follow it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn

from jlgcn.nn import JLGCN, PRESETS, GraphLevelJLGCN, JLGCNOptions
from jlgcn.paper.baselines import GCN
from jlgcn.training import GraphTrainConfig, RunOptions, TrainConfig
from jlgcn.training.loop import Run, random_state
from tests.devices import explicit_devices
from tests.training.small import fit_clouds, fit_data, small_clouds, small_data

MODELS: dict[str, Callable[[], nn.Module]] = {
    "authors": lambda: JLGCN(6, 8, 2, rank=3, options=PRESETS["authors"]),
    "median": lambda: JLGCN(6, 8, 2, rank=3, options=JLGCNOptions(metric_init="median")),
    "gcn": lambda: GCN(6, 2),
}


def small_network() -> GraphLevelJLGCN:
    options = JLGCNOptions(metric_init="median")
    return GraphLevelJLGCN(3, 3, (8,), (4,), rank=2, options=options)


@pytest.mark.parametrize("model", MODELS)
def test_training_on_nodes_names_the_device_of_every_tensor(model: str, tmp_path: Path) -> None:
    data = small_data()
    for _ in range(2):  # the second run resumes
        with explicit_devices():
            torch.manual_seed(0)
            fit_data(
                MODELS[model](),
                data,
                config=TrainConfig(epochs=1, glr_probes=2),
                options=RunOptions(checkpoints=tmp_path),
            )


def test_training_on_clouds_names_the_device_of_every_tensor(tmp_path: Path) -> None:
    with explicit_devices():
        fit_clouds(
            small_network,
            small_clouds(),
            config=GraphTrainConfig(epochs=1, num_points=20, regularizer_weight=0.1, augments=True),
            seed=0,
            points_missing=(0.5,),
            options=RunOptions(checkpoints=tmp_path),
        )


def test_data_move_with_all_their_tensors() -> None:
    for data in (small_data(), small_clouds()):
        moved = data.to("meta")
        tensors = [value for value in vars(moved).values() if isinstance(value, torch.Tensor)]
        assert len(tensors) >= 5
        assert {tensor.device.type for tensor in tensors} == {"meta"}


def test_a_part_of_the_data_is_on_their_device() -> None:
    data = small_data()
    with explicit_devices():
        part = data.subset(torch.tensor([3, 1, 2]))
    assert part.edge_index.device == data.x.device


def test_the_network_is_moved_to_the_device_of_the_run() -> None:
    device = torch.device("cpu", 0)
    with mock.patch.object(nn.Module, "to", autospec=True, side_effect=nn.Module.to) as move:
        fit_data(MODELS["gcn"](), small_data(), config=TrainConfig(epochs=1), device=device)
        fit_clouds(
            small_network,
            small_clouds(),
            config=GraphTrainConfig(epochs=1, num_points=20),
            seed=0,
            device=device,
        )
    assert [call.args[1] for call in move.mock_calls] == [device] * 2


def _run() -> Run:
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    return Run(model, torch.optim.Adam(model.parameters()))


def _save(run: Run, folder: Path) -> None:
    run.resume(folder, {})
    run.snapshot().save(folder)


def test_checkpoints_hold_the_random_state_of_the_device(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    device = torch.device("cuda", 1)
    state = torch.arange(16, dtype=torch.uint8)
    restored: list[Any] = []
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda of: state if of == device else None)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda *args: restored.append(args))
    monkeypatch.setattr(Run, "device", device)
    assert torch.equal(random_state(device)["random/cuda"], state)
    _save(_run(), tmp_path)
    _run().resume(tmp_path, {})
    [(found, where)] = restored
    assert torch.equal(found, state)
    assert where == device


def test_a_checkpoint_of_another_kind_of_device_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _save(_run(), tmp_path)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda of: torch.zeros(16, dtype=torch.uint8))
    monkeypatch.setattr(Run, "device", torch.device("cuda"))
    with pytest.raises(ValueError, match="are of another run"):
        _run().resume(tmp_path, {})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_training_on_a_gpu_is_deterministic(tmp_path: Path) -> None:
    def train(folder: Path) -> str:
        options = RunOptions(checkpoints=folder, deterministic=True)
        config = TrainConfig(epochs=3)
        torch.manual_seed(0)
        return fit_data(
            MODELS["median"](), small_data(), config=config, device="cuda", options=options
        ).parameter_sha256

    first = train(tmp_path / "a")
    assert train(tmp_path / "a") == first  # which resumes
    assert train(tmp_path / "b") == first
