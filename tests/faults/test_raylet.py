"""Machines of a Ray cluster that die, run out of memory or hold less than the data.

Two raylets on loopback, of one core each, with object stores and folders of their own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jlgcn._memory import available_bytes
from jlgcn.closed_form import ClosedFormOptions
from jlgcn.closed_form.shards import Stage
from jlgcn.engine.fit import fit_shards
from jlgcn.engine.local import LocalExecutor
from jlgcn.engine.ray import RayExecutor
from jlgcn.engine.tasks import Executor, Task
from tests.engine.tables import OPTIONS, draw, write

ray = pytest.importorskip("ray", reason='pip install "jlgcn[ray]"')

# Ray itself leaves files and sockets open when it ends.
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

# The least that Ray allows.
STORE_BYTES = 75 * 2**20

# Memory of a machine by which Ray schedules tasks.
MEMORY = 8 * 10**9

# `ray start` asks for a token where a file of the home folder has one, and drivers send none then.
AUTHENTICATION = {"RAY_AUTH_MODE": "disabled"}

# A dead machine is missed within a second, where Ray's own settings take 15.
SETTINGS = {
    "health_check_period_ms": 200,
    "health_check_failure_threshold": 3,
}


class Machine:
    """What `ray start` started."""

    def __init__(self, *arguments: str, **settings: str) -> None:
        # Not pytest's folder, in which the names of Ray's sockets would be too long.
        self._folder = tempfile.mkdtemp(dir="/tmp")
        common = ["--num-cpus=1", f"--object-store-memory={STORE_BYTES}"]
        here = ["--node-ip-address=127.0.0.1", f"--temp-dir={self._folder}"]
        self._process = subprocess.Popen(
            ["ray", "start", *arguments, *common, *here, "--block"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | AUTHENTICATION | settings,
        )
        self.raylet = self._find_raylet()

    def _find_raylet(self) -> int:
        """Return the raylet among the children of `ray start --block`."""
        number = self._process.pid
        for _ in range(600):
            for child in Path(f"/proc/{number}/task/{number}/children").read_text().split():
                if Path(f"/proc/{child}/comm").read_text().strip() == "raylet":
                    return int(child)
            time.sleep(0.1)
        raise TimeoutError("no raylet was started")

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(60)
        shutil.rmtree(self._folder, ignore_errors=True)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("", 0))  # free at every address: Ray turns loopback into the machine's own
        port = free.getsockname()[1]
    head = ["--head", f"--port={port}", "--include-dashboard=false", f"--memory={MEMORY}"]
    machine = Machine(*head, f"--system-config={json.dumps(SETTINGS)}")
    found = f"127.0.0.1:{port}"
    try:
        ray.init(found, log_to_driver=False)  # once: a new driver has new workers
        yield found
    finally:
        ray.shutdown()
        machine.stop()


class DyingMachines:
    """Runs tasks on Ray, and kills a second machine while it runs a task of some stages.

    Args:
        address: address of the first machine.
        stages: names of the stages; each meets a new second machine.
        folder: folder for a file for each.
    """

    def __init__(self, address: str, stages: Sequence[str], folder: Path) -> None:
        self._address, self._folder = address, folder
        self._ray = RayExecutor()
        self.remaining = list(stages)

    def execute(self, uris: tuple[str, ...], tasks: Sequence[Task], num_bytes: int) -> None:
        """Run tasks; those of the stages wait for the end of the second machine."""
        stage = tasks[0].stage
        if stage.__name__ not in self.remaining:
            self._ray.execute(uris, tasks, num_bytes)
            return
        assert len(tasks) > 1  # else none would be on the second machine
        self.remaining.remove(stage.__name__)
        machine, node = join(self._address)
        marker = self._folder / f"{stage.__name__}-is-running"
        killer = threading.Thread(target=_kill, args=(machine, marker))
        killer.start()
        waiting = _waiting(stage, node, str(marker))
        self._ray.execute(uris, [Task(waiting, t.arguments, t.name) for t in tasks], num_bytes)
        killer.join()
        machine.stop()

    def close(self) -> None:
        """The cluster is for all tests."""


def join(address: str, memory: int = MEMORY, **settings: str) -> tuple[Machine, str]:
    """Start a second machine, and return it with its number."""
    first = _alive()
    machine = Machine(f"--address={address}", f"--memory={memory}", **settings)
    while not (second := _alive() - first):
        time.sleep(0.05)
    return machine, second.pop()


def _alive() -> set[str]:
    return {node["NodeID"] for node in ray.nodes() if node["Alive"]}


def _kill(machine: Machine, marker: Path) -> None:
    while not marker.exists():
        time.sleep(0.05)
    os.kill(machine.raylet, signal.SIGKILL)


def _waiting(stage: Stage, victim: str, marker: str) -> Stage:
    found = partial(_wait_to_be_killed, stage=stage, victim=victim, marker=marker)
    found.__name__ = stage.__name__  # type: ignore[attr-defined]
    return found


def _wait_to_be_killed(
    files: Any,  # noqa: ANN401
    *,
    stage: Stage,
    victim: str,
    marker: str,
    **arguments: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    if ray.get_runtime_context().get_node_id() == victim:
        Path(marker).touch()
        time.sleep(60)
    else:  # leaves tasks for the other machine
        deadline = time.monotonic() + 20
        while not Path(marker).exists() and time.monotonic() < deadline:
            time.sleep(0.05)
    return stage(files, **arguments)


def fit(
    executor: Executor,
    folder: Path,
    out: str,
    shard_rows: int = 100,
    options: ClosedFormOptions = OPTIONS,
) -> dict[str, str]:
    """Fit to what is in a folder, and return hashes of all files of the model."""
    edges = folder / "edges.parquet"
    try:
        fit_shards(
            str(folder / "items"),
            label="kind",
            out=str(folder / out),
            executor=executor,
            edges=str(edges) if edges.exists() else None,
            id_column="id",
            options=options,
            shard_rows=shard_rows,
        )
    finally:
        executor.close()
    return {
        str(path.relative_to(folder / out)): sha256(path.read_bytes()).hexdigest()
        for path in sorted((folder / out).rglob("*"))
        if path.is_file()
    }


def test_machines_that_are_killed_change_no_bit(address: str, tmp_path: Path) -> None:
    write(draw(300), tmp_path)
    expected = fit(LocalExecutor(1), tmp_path, "local")
    executor = DyingMachines(address, ["search", "symmetrize", "diffuse", "score"], tmp_path)
    found = fit(executor, tmp_path, "ray")
    assert not executor.remaining
    assert found == expected


@pytest.mark.usefixtures("address")
def test_data_need_not_fit_into_the_object_store(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    kind = np.arange(1_000) % 3
    x = generator.standard_normal((len(kind), 6_800), dtype=np.float32)
    x[:, :3] += 20 * np.eye(3, dtype=np.float32)[kind]
    few = [f"class {k}" if row < 30 else None for row, k in enumerate(kind.tolist())]
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), x.shape[1])
    table = pa.table({"id": [str(row) for row in range(len(x))], "kind": few, "vector": vectors})
    (tmp_path / "items").mkdir()
    pq.write_table(table, tmp_path / "items" / "a.parquet", row_group_size=250)
    options = replace(OPTIONS, n_layers=1, n_components=8)
    found = []
    for name, executor in (("local", LocalExecutor(1)), ("ray", RayExecutor())):
        found.append(fit(executor, tmp_path, name, 250, options))
    assert found[0] == found[1]
    files = [*tmp_path.glob("items/*"), *tmp_path.glob("ray/parts/*")]
    assert sum(path.stat().st_size for path in files) > STORE_BYTES


def take_memory(files: Any, num_bytes: int) -> Any:  # noqa: ANN401
    """A stage that takes memory, and keeps it."""
    taken = [bytearray(b"x") * 2**26 for _ in range(num_bytes // 2**26)]
    time.sleep(10)
    return len(taken)


def test_a_task_that_runs_out_of_memory_ends_with_a_message(address: str, tmp_path: Path) -> None:
    allowed = 2**29  # more than Ray's own processes take, while this machine has more
    settings = {
        "RAY_memory_monitor_refresh_ms": "50",
        "RAY_min_memory_free_bytes": str(available_bytes() - allowed),
        "RAY_memory_usage_threshold": "0.0",
    }
    machine, _ = join(address, 2 * MEMORY, **settings)
    task = Task.of(take_memory, {"num_bytes": 4 * allowed})
    try:
        with pytest.raises(OSError, match=r"take_memory failed 4 times \(OutOfMemoryError\)"):
            # More than the first machine has, so that it runs on the second.
            RayExecutor().execute((str(tmp_path / "parts"),), [task], MEMORY + 1)
    finally:
        machine.stop()
