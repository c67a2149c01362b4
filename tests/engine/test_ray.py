"""The closed form as tasks of a Ray cluster."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from jlgcn.engine import ShardedModel
from jlgcn.engine.ray import RayExecutor
from jlgcn.engine.tasks import Task
from tests.engine.tables import OPTIONS, draw, write

ray = pytest.importorskip("ray", reason='pip install "jlgcn[ray]"')

# Ray itself leaves files and sockets open when it ends.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def fail(files: Any, kind: str) -> Any:  # noqa: ANN401
    """A stage that fails."""
    raise {"value": ValueError, "file": OSError}[kind](f"no {kind}")


def die(files: Any) -> Any:  # noqa: ANN401
    """A stage that the system ends, as it does for want of memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def hashes(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.usefixtures("cluster")
def test_ray_and_local_write_the_same_bits(tmp_path: Path) -> None:
    write(draw(300), tmp_path)
    found = []
    for engine in ("ray", "local"):
        model = ShardedModel.fit(
            str(tmp_path / "items"),
            label="kind",
            id_column="id",
            edges=str(tmp_path / "edges.parquet"),
            out=str(tmp_path / engine),
            options=OPTIONS,
            shard_rows=128,
            engine=engine,
            num_workers=1,
        )
        model.predict(
            str(tmp_path / "items"),
            str(tmp_path / engine / "out"),
            engine=engine,
        )
        found.append(hashes(tmp_path / engine))
    assert found[0] == found[1]


@pytest.mark.usefixtures("cluster")
def test_a_task_that_fails_says_why(tmp_path: Path) -> None:
    executor = RayExecutor()
    uris = (str(tmp_path / "parts"),)
    for kind, error in (("value", ValueError), ("file", OSError)):  # the latter four times
        with pytest.raises(error, match=f"no {kind}"):
            executor.execute(uris, [Task.of(fail, {"kind": kind})], 2**20)
    with pytest.raises(OSError, match=r"failed 4 times \(WorkerCrashedError\); if memory"):
        executor.execute(uris, [Task.of(die, {})], 2**20)
    with pytest.raises(ValueError, match="but the largest machine of the cluster has"):
        executor.execute(uris, [Task.of(fail, {"kind": "value"})], 2**50)
