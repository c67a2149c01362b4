from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jlgcn.engine import ShardedModel
from jlgcn.engine.plan import DEFAULTS, save_constants
from tests.cli.test_data import run
from tests.engine.tables import OPTIONS, draw, write


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Items, and a model that was fitted to them by an engine."""
    folder = tmp_path_factory.mktemp("scale")
    write(draw(300), folder)
    ShardedModel.fit(
        str(folder / "items"),
        label="kind",
        id_column="id",
        out=str(folder / "model"),
        options=OPTIONS,
        num_workers=1,
    )
    return folder


def test_update_adds_rows(folder: Path) -> None:
    new = draw(50, seed=1)
    columns: dict[str, Any] = {"id": [f"new {row}" for row in range(50)]}
    columns |= {f"f{k}": new.x[:, k] for k in range(new.x.shape[1])}
    pq.write_table(pa.table(columns), folder / "new.parquet")
    output = run("update", folder / "model", folder / "new.parquet", "--workers", 1).output
    assert output.startswith("350 rows (50 new), 40 labels of 3 classes; ")
    (folder / "wines").mkdir()
    refused = run("update", folder / "wines", folder / "new.parquet", code=2).output
    assert "was not fitted by an engine; fit it again with the new rows" in refused


def test_plan_recommends_a_way_or_refuses(tmp_path: Path) -> None:
    constants = tmp_path / "plan.json"
    save_constants(constants, DEFAULTS)
    arguments = ("plan", "--rows", 1_000_000, "--cores", 2, "--constants", constants)
    output = run(*arguments, "--memory", 5).output
    assert "does not fit" in output
    assert "jlgcn fit … --label COLUMN --out MODEL --engine local" in output
    refused = run(*arguments, "--memory", 0.2, code=2).output
    assert "no way to fit has enough memory" in refused
    assert "pass --rows, or --calibrate alone" in run("plan", code=2).output
