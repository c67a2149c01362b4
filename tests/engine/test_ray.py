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


@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        (
            Exception("The node timed out\nduring startup"),
            OSError,
            r"start \(The node timed out\);",
        ),
        (
            RuntimeError("no port"),
            OSError,
            r"Ray did not start \(no port\); if the machine is busy",
        ),
        (ConnectionError("no cluster at a:1"), ConnectionError, "^no cluster at a:1$"),
        (ValueError("no such address"), ValueError, "^no such address$"),
    ],
)
def test_a_ray_that_does_not_start_says_why(
    error: Exception, expected: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init(**arguments: object) -> None:
        raise error

    ended: list[bool] = []
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "shutdown", lambda: ended.append(True))
    with pytest.raises(expected, match=message):
        RayExecutor()
    assert bool(ended) == (expected is OSError)


def test_errors_of_ray_itself_are_plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(found: object) -> None:
        raise ray.exceptions.ObjectLostError("00" * 28, None, "")

    class Run:
        def options(self, **options: object) -> Run:
            return self

        def remote(self, *arguments: object) -> str:
            return "found"

    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    resources = {"Alive": True, "Resources": {"memory": 2**40, "CPU": 1}}
    monkeypatch.setattr(ray, "nodes", lambda: [resources])
    monkeypatch.setattr(ray, "wait", lambda running: (running[:1], running[1:]))
    monkeypatch.setattr(ray, "get", lost)
    executor = RayExecutor()
    executor._run = Run()
    with pytest.raises(OSError, match=r"^Ray failed in fail \(ObjectLostError: .*\); run"):
        executor.execute((str(tmp_path),), [Task.of(fail, {"kind": "value"})], 1)
