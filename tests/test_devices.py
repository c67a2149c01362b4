from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from jlgcn._devices import is_check_due
from jlgcn._validation import as_input, check_projection
from tests.devices import explicit_devices, no_synchronization

HERE = __name__
META = torch.device("meta")


@pytest.mark.parametrize(
    "create",
    [
        lambda: torch.arange(3),
        lambda: torch.zeros(3),
        lambda: torch.tensor(1.0),
        lambda: torch.randperm(3),
        lambda: torch.eye(2, dtype=torch.float64),
    ],
)
def test_a_tensor_created_without_a_device_is_found(create: Callable[[], object]) -> None:
    with pytest.raises(AssertionError, match="without device="), explicit_devices(HERE):
        create()


def test_a_tensor_with_a_device_passes_and_so_does_the_code_of_others() -> None:
    with explicit_devices(HERE):
        torch.zeros(3, device="cpu").new_ones(2)
    with explicit_devices():
        torch.zeros(3)


@pytest.mark.parametrize(
    "read",
    [
        lambda x: bool(x.any()),
        lambda x: int(x.sum()),
        lambda x: float(x.sum()),
        lambda x: x.sum().item(),
        lambda x: x.nonzero(),
        lambda x: torch.unique(x),
        lambda x: torch.unique(x.expand(2, -1), dim=1),
        lambda x: x.cpu(),
    ],
)
def test_a_read_of_a_value_is_found(read: Callable[[torch.Tensor], object]) -> None:
    x = torch.ones(3)
    with pytest.raises(AssertionError, match="waits for the device"), no_synchronization(HERE):
        read(x)
    with no_synchronization():
        read(x)


def test_checks_run_at_every_call_on_a_cpu_and_at_powers_of_two_elsewhere() -> None:
    assert all(is_check_due(torch.device("cpu"), "this test") for _ in range(5))
    due = [call for call in range(1, 40) if is_check_due(META, "this test")]
    assert due == [1, 2, 4, 8, 16, 32]


def test_inputs_are_read_at_powers_of_two_on_an_accelerator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jlgcn._validation.is_check_due", lambda device, check: False)
    with no_synchronization():
        as_input(torch.ones(3, 2, dtype=torch.int64), torch.ones(1), 2)
        check_projection(torch.full((3, 2), torch.nan), torch.ones(3, 2))
