"""A disk that is full, and a folder that may not be written to."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from jlgcn._files import LOCK
from jlgcn.graphs import EdgeList
from jlgcn.io.export import write_edges
from jlgcn.training.checkpoint import load_checkpoint, save_checkpoint
from tests.faults.forks import forked, wait
from tests.training.small import train_small

pytestmark = pytest.mark.nightly

NOBODY = 65534


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small disk needs the right to mount one ({mounted.stderr.strip()})")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_raises_at_once_and_leaves_the_old_checkpoint(small_disk: Path) -> None:
    save_checkpoint(small_disk, 1, {"w": torch.ones(20_000)}, {"epoch": 1})
    with pytest.raises(OSError, match="No space left on device"):
        save_checkpoint(small_disk, 2, {"w": torch.ones(100_000)}, {"epoch": 2})
    found = load_checkpoint(small_disk)
    assert found is not None
    assert found[1]["epoch"] == 1
    # The failed one left nothing, which would take the room of others.
    assert sorted(os.listdir(small_disk)) == [LOCK, "LATEST", "step-00000001"]
    save_checkpoint(small_disk, 3, {"w": torch.ones(20_000)}, {"epoch": 3})
    found = load_checkpoint(small_disk)
    assert found is not None
    assert found[1]["epoch"] == 3


def test_training_ends_in_the_epoch_in_which_the_disk_is_full(small_disk: Path) -> None:
    train_small(0, 2, small_disk / "runs")
    (small_disk / "ballast").write_bytes(b"0" * 2**16)
    with pytest.raises(OSError, match="No space left on device"):
        (small_disk / "more").write_bytes(b"0" * 2**20)
    with pytest.raises(OSError, match="No space left on device"):
        train_small(1, 2, small_disk / "others")
    found = load_checkpoint(small_disk / "runs")
    assert found is not None
    assert found[1]["epoch"] == 2


@pytest.mark.parametrize("suffix", ["graphml", "csv", "parquet"])
def test_a_full_disk_leaves_the_old_edges_and_no_half_of_new_ones(
    small_disk: Path, suffix: str
) -> None:
    few, many = (
        EdgeList(torch.arange(n), torch.arange(1, n + 1), torch.rand(n), n + 1)
        for n in (10, 50_000)
    )
    path = write_edges(few, small_disk / f"edges.{suffix}")
    old = path.read_bytes()
    with pytest.raises(OSError, match="No space left on device"):
        write_edges(many, path)
    assert path.read_bytes() == old
    assert os.listdir(small_disk) == [path.name]


def save_as_nobody(folder: Path, answer: Path) -> None:
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    try:
        save_checkpoint(folder, 2, {"w": torch.ones(3)}, {"epoch": 2})
    except OSError as error:
        answer.write_text(type(error).__name__)


def test_a_folder_that_is_read_only_raises_and_keeps_the_old_checkpoint() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user, and root may write everywhere")
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        root.chmod(0o755)
        answers = root / "answers"
        answers.mkdir(mode=0o777)
        answers.chmod(0o777)
        folder = root / "checkpoints"
        save_checkpoint(folder, 1, {"w": torch.ones(3)}, {"epoch": 1})
        folder.chmod(0o555)
        with forked(save_as_nobody, folder, answers / "error") as process:
            assert wait(process, 60) == 0
        assert (answers / "error").read_text() == "PermissionError"
        found = load_checkpoint(folder)
        assert found is not None
        assert found[1]["epoch"] == 1
