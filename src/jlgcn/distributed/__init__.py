"""Training with exact graphs over several processes, started by `torchrun`."""

from __future__ import annotations

import torch.distributed

__all__ = [
    "ShardedSparseGraph",
    "distribute",
    "share_batches",
    "torchrun_group",
]

# Some builds of PyTorch have no distributed package; training in one process does not need it.
if torch.distributed.is_available():
    # Import this module before a process group exists: its functions keep the current group as a
    # default argument, so that destroy_process_group() would not end gloo's threads, and a thread
    # that outlives the interpreter aborts the process. PyTorch's compiler imports it later.
    import torch.distributed.nn.functional

    from jlgcn.distributed.apply import distribute, share_batches
    from jlgcn.distributed.launch import torchrun_group
    from jlgcn.distributed.sharded import ShardedSparseGraph
else:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'jlgcn.distributed' has no attribute {name!r}")
        raise ImportError(
            f"{name} needs torch.distributed, which this build of PyTorch does not have; install "
            "one that has it, or hold the graph in one process (jlgcn.KernelGraph)"
        )
