"""A machine of a Ray cluster dies in the middle of a fit: two clusters of one core on loopback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from jlgcn.engine import ShardedModel
from tests.engine.tables import OPTIONS, draw, read, write

ray = pytest.importorskip("ray", reason='pip install "jlgcn[ray]"')

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def start(*arguments: str) -> subprocess.Popen[bytes]:
    common = ["--num-cpus=1", "--object-store-memory=100000000", "--memory=8000000000", "--block"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(["ray", "start", *arguments, *common], **quiet)  # type: ignore[call-overload,no-any-return]


def raylet_of(process: subprocess.Popen[bytes]) -> int:
    """Return the raylet that `ray start --block` started."""
    for _ in range(600):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for child in children:
            if Path(f"/proc/{child}/comm").read_text().strip() == "raylet":
                return int(child)
        time.sleep(0.2)
    raise TimeoutError("no raylet was started")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"127.0.0.1:{port}"
    here = "--node-ip-address=127.0.0.1"
    head = start("--head", f"--port={port}", "--include-dashboard=false", here)
    raylet_of(head)
    other = start(f"--address={address}", here)
    raylet_of(other)
    yield address, other
    ray.shutdown()
    for process in (other, head):
        process.terminate()
        process.wait(60)


def test_a_raylet_that_is_killed_changes_no_prediction(
    cluster: tuple[str, subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    address, other = cluster
    write(draw(300), tmp_path)

    def fit(out: str, **engine: str) -> None:
        ShardedModel.fit(
            str(tmp_path / "items"),
            label="kind",
            id_column="id",
            edges=str(tmp_path / "edges.parquet"),
            out=str(tmp_path / out),
            options=OPTIONS,
            shard_rows=64,
            num_workers=1,
            **engine,  # type: ignore[arg-type]
        )

    fit("local")
    killed = []

    def kill() -> None:  # once the first graph is being symmetrised
        parts = tmp_path / "ray" / "parts"
        while not any(parts.glob("symmetrize-*")):
            time.sleep(0.05)
        victim = raylet_of(other)
        os.kill(victim, signal.SIGKILL)
        killed.append(victim)

    killer = threading.Thread(target=kill)
    killer.start()
    fit("ray", engine="ray", address=address)
    killer.join()
    assert killed
    found, expected = (read(str(tmp_path / name / "predictions")) for name in ("ray", "local"))
    assert found.column("kind").to_pylist() == expected.column("kind").to_pylist()
    difference = found.column("probability").to_numpy() - expected.column("probability").to_numpy()
    assert np.abs(difference).max() < 1e-5
