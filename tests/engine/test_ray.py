"""The closed form as tasks of a Ray cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jlgcn.engine import ShardedModel
from jlgcn.engine.ray import RayExecutor
from jlgcn.engine.tasks import Task
from tests.engine.tables import OPTIONS, draw, read, write

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


def test_ray_has_the_scores_of_local_and_says_what_fails(tmp_path: Path) -> None:
    write(draw(300), tmp_path)
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        found = []
        for engine in ("ray", "local"):
            ShardedModel.fit(
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
            found.append(read(str(tmp_path / engine / "predictions")))
        one, other = (table.column("probability").to_numpy() for table in found)
        assert np.abs(one - other).max() < 1e-5
        assert found[0].column("kind").to_pylist() == found[1].column("kind").to_pylist()
        executor = RayExecutor()
        uris = (str(tmp_path / "parts"),)
        for kind, error in (("value", ValueError), ("file", OSError)):  # the latter four times
            with pytest.raises(error, match=f"no {kind}"):
                executor.execute(uris, [Task.of(fail, {"kind": kind})], 2**20)
        with pytest.raises(ValueError, match="but the largest machine of the cluster has"):
            executor.execute(uris, [Task.of(fail, {"kind": "value"})], 2**50)
    finally:
        ray.shutdown()
