"""Free memory is what the narrowest control group leaves."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from jlgcn._memory import available_bytes, group_bytes, return_freed_memory


def test_some_memory_is_free() -> None:
    assert 0 < available_bytes() < 2**60


def write_group(folder: Path, **files: int | str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (folder / name.replace("_", ".", 1)).write_text(f"{value}\n")


def test_what_is_left_is_that_of_the_narrowest_control_group(tmp_path: Path) -> None:
    own = tmp_path / "own"
    # The second version: the job's own group, that of its user, and a root without a limit.
    root = tmp_path / "second"
    job = root / "user" / "job"
    write_group(job, memory_max="max", memory_current=90, memory_stat="inactive_file 0")
    write_group(job.parent, memory_max=1000, memory_current=700, memory_stat="inactive_file 300")
    own.write_text("0::/user/job\n")
    assert group_bytes(root, own) == [600]  # cache that nobody uses is as good as free
    write_group(job, memory_max=200, memory_current=250)
    assert group_bytes(root, own) == [0, 600]
    own.write_text("0::/a/path/of/the/host\n")  # as a container sees it
    write_group(root, memory_max=500, memory_current=100, memory_stat="inactive_file 0")
    assert group_bytes(root, own) == [400]
    # The first version: a controller of its own, other names.
    root = tmp_path / "first"
    write_group(root / "memory" / "job", memory_stat="total_inactive_file 5\ncache 9")
    write_group(root / "memory" / "job", memory_limit_in_bytes=80, memory_usage_in_bytes=30)
    own.write_text("5:cpu,cpuacct:/\n4:memory:/job\n0::/\n")
    assert group_bytes(root, own) == [55]
    (root / "memory" / "job" / "memory.stat").unlink()  # as in some sandboxes
    assert group_bytes(root, own) == [50]
    assert group_bytes(root, tmp_path / "no such file") == []


@pytest.mark.skipif(sys.platform != "linux", reason="the C library of Linux keeps freed blocks")
def test_freed_memory_below_a_block_in_use_is_returned() -> None:
    def anonymous_bytes() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(1024 * int(x.split()[1]) for x in lines if x.startswith("RssAnon"))

    blocks = [torch.ones(8_000) for _ in range(4_000)]  # 122 MiB of 32 KB each
    pin = blocks[-1]
    before = anonymous_bytes()
    del blocks
    return_freed_memory()
    assert before - anonymous_bytes() > 100 * 2**20
    assert pin.sum() == 8_000
