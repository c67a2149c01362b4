from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import jlgcn
from jlgcn.ops import kernel_matmul
from jlgcn.ops.flash import flash_works, self_check
from tests.brute import gaussian, largest_difference, points

CPU = torch.device("cpu")


@pytest.fixture
def _forgotten_self_check() -> Iterator[None]:
    flash_works.cache_clear()
    yield
    flash_works.cache_clear()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_self_check_passes_here(dtype: torch.dtype) -> None:
    assert self_check(CPU, dtype) < 100 * torch.finfo(dtype).eps
    assert flash_works(CPU, dtype)


def test_the_self_check_leaves_the_random_state_alone() -> None:
    before = torch.get_rng_state()
    self_check(CPU, torch.float32)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.usefixtures("_forgotten_self_check")
@pytest.mark.parametrize("part", ["_attention", "_attention_backward"])
def test_a_kernel_that_computes_something_else_is_not_used(
    monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    original = getattr(jlgcn.ops.flash, part)

    def wrong(*args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first, *others = original(*args)
        return first * 1.01, *others

    monkeypatch.setattr(f"jlgcn.ops.flash.{part}", wrong)
    z = points(8, 2, grad=True)
    with pytest.warns(RuntimeWarning, match=r"differ from blocks.*slower block algorithm.*doctor"):
        product, _ = kernel_matmul(z, z, torch.eye(8, dtype=z.dtype))
    assert largest_difference(product, gaussian(z, z)) < 1e-12
    product.sum().backward()  # and no second warning, which would be an error here


@pytest.mark.usefixtures("_forgotten_self_check")
def test_a_kernel_that_is_gone_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: torch.Tensor) -> None:
        raise AttributeError("'_OpNamespace' 'aten' object has no attribute 'flash'")

    monkeypatch.setattr("jlgcn.ops.flash._attention", gone)
    z = points(8, 2)
    with pytest.warns(RuntimeWarning, match="the operators failed.*has no attribute"):
        product, _ = kernel_matmul(z, z, torch.eye(8, dtype=z.dtype))
    assert largest_difference(product, gaussian(z, z)) < 1e-12


def test_other_devices_have_no_flash() -> None:
    assert not flash_works(torch.device("meta"), torch.float32)


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_threads_do_not_change_gradients(num_threads: int) -> None:
    z, v = points(1, 41, 3, grad=True), points(1, 41, 2, grad=True)
    expected = torch.autograd.grad((gaussian(z, z) @ v).square().sum(), (z, v))
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        product, _ = kernel_matmul(z, z, v, method="flash")
        got = torch.autograd.grad(product.square().sum(), (z, v))
    finally:
        torch.set_num_threads(before)
    assert max(map(largest_difference, got, expected)) < 1e-12


def test_private_operators_live_in_one_file() -> None:
    package = Path(jlgcn.__file__).parent
    private = re.compile(r"aten\._|torch\._C")
    users = [path.name for path in package.rglob("*.py") if private.search(path.read_text())]
    assert users == ["flash.py"]


@pytest.mark.gpu
def test_the_self_check_passes_on_cuda() -> None:
    assert self_check(torch.device("cuda"), torch.float32) < 1e-4
