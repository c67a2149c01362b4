"""Exact graphs over several processes, as `torchrun` starts them.

Names are imported when they are first used: they need PyTorch's distributed package, which some
builds of PyTorch do not have.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import torch.distributed

if TYPE_CHECKING:
    from jlgcn.distributed.apply import distribute, share_batches
    from jlgcn.distributed.launch import torchrun_group
    from jlgcn.distributed.sharded import ShardedSparseGraph

__all__ = [
    "ShardedSparseGraph",
    "distribute",
    "share_batches",
    "torchrun_group",
]

_HOME = {
    "ShardedSparseGraph": "sharded",
    "distribute": "apply",
    "share_batches": "apply",
    "torchrun_group": "launch",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'jlgcn.distributed' has no attribute {name!r}")
    if not torch.distributed.is_available():
        raise ImportError(
            f"{name} needs torch.distributed, which this build of PyTorch does not have; install "
            "one that has it, or hold the graph in one process (jlgcn.KernelGraph)"
        )
    return getattr(importlib.import_module(f"jlgcn.distributed.{_HOME[name]}"), name)


# PyTorch imports this module with its compiler. If a process group exists by then, the module keeps
# it as a default argument for ever, destroy_process_group() no longer ends gloo's threads, and a
# thread that outlives the interpreter aborts the process.
if torch.distributed.is_available():
    import torch.distributed.nn.functional
