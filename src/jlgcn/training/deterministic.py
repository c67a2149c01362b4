"""Bitwise reproducibility: settings of PyTorch, and what identifies a reproducible run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def deterministic_algorithms(wanted: bool) -> Iterator[None]:
    """Use deterministic algorithms of PyTorch only, or raise where it has none.

    Example:
        >>> with deterministic_algorithms(True):
        ...     torch.are_deterministic_algorithms_enabled()
        True
        >>> torch.are_deterministic_algorithms_enabled()
        False
    """
    before = torch.are_deterministic_algorithms_enabled()
    if wanted:
        # cuBLAS reads it at start-up; without it, deterministic matrix products on a GPU raise.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def bits_identity(deterministic: bool) -> dict[str, Any]:
    """Return what else the bits of a deterministic run depend on: PyTorch and its threads.

    Example:
        >>> sorted(bits_identity(True)["bits"])
        ['threads', 'torch']
    """
    if not deterministic:
        return {}
    return {"bits": {"threads": torch.get_num_threads(), "torch": torch.__version__}}
