"""Several processes, as torchrun starts them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run_processes(number: int, *arguments: str) -> str:
    """Run ``python -m ARGUMENTS`` in so many processes that form a group; return what they print.

    Args:
        number: of processes.
        arguments: module and arguments.
    """
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={number}"]
    command += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "-m", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
