"""What all tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _same_random_numbers_for_every_test() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _denormals_stay_numbers() -> Iterator[None]:
    """Undo what runs of experiments set for their whole process."""
    yield
    torch.set_flush_denormal(False)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a graph class's contract for the batch dimensions that the class has."""
    if metafunc.cls is not None and "batch" in metafunc.fixturenames:
        metafunc.parametrize("batch", metafunc.cls.batches, ids=str)


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("nightly"):
            item.add_marker(pytest.mark.slow)  # which a choice of "not slow" leaves out, too
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
