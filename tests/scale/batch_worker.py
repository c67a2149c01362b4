"""One of several processes that train on batches."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from jlgcn.scale import PackedTable
from jlgcn.train.distributed import joined_processes

if __name__ == "__main__":
    from tests.scale.test_fit_batches import CONFIG, train

    torch.set_num_threads(1)
    with joined_processes():
        _, result = train(PackedTable(Path(sys.argv[1])), Path(sys.argv[2]), CONFIG)
    sys.stdout.write(f"hash {result.parameter_sha256} {result.test_accuracy}\n")
