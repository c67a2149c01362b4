"""Threads for the size of a problem."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

# Below so many numbers in the features, threads wait for each other longer than they compute; on a
# busy machine three times as long.
_MIN_NUMBERS = 2**20


@contextmanager
def threads_for(num_numbers: int) -> Iterator[None]:
    """Run small problems on one of PyTorch's threads, and others on as many as before.

    Args:
        num_numbers: rows times columns.
    """
    before = torch.get_num_threads()
    if num_numbers >= _MIN_NUMBERS or before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
