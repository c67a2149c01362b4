"""The same bits again: what PyTorch must be told, and what must not differ."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def deterministic_algorithms(wanted: bool) -> Iterator[None]:
    """Within, PyTorch uses algorithms without chance, or raises where it has none.

    Example:
        >>> with deterministic_algorithms(True):
        ...     torch.are_deterministic_algorithms_enabled()
        True
        >>> torch.are_deterministic_algorithms_enabled()
        False
    """
    before = torch.are_deterministic_algorithms_enabled()
    if wanted:
        # Read by cuBLAS when it starts; without it PyTorch refuses products on a GPU.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def bits_identity(deterministic: bool) -> dict[str, Any]:
    """Return what the last bit depends on beside configuration, seed and data, if it matters.

    Example:
        >>> sorted(bits_identity(True)["bits"])
        ['threads', 'torch']
    """
    if not deterministic:
        return {}
    return {"bits": {"threads": torch.get_num_threads(), "torch": torch.__version__}}
