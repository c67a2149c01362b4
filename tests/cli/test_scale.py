from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jlgcn.cli.data import _model_of
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


def test_update_adds_rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jlgcn.cli.scale._LEAST_SECONDS", 0.0)
    new = draw(50, seed=1)
    columns: dict[str, Any] = {"id": [f"new {row}" for row in range(50)]}
    columns |= {f"f{k}": new.x[:, k] for k in range(new.x.shape[1])}
    pq.write_table(pa.table(columns), folder / "new.parquet")
    found = run("update", folder / "model", folder / "new.parquet", "--workers", 1)
    assert found.stdout.startswith("350 rows (50 new), 40 labels of 3 classes; ")
    lines = found.stderr.splitlines()
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d \w+: \d+ tasks?, \d+ s", line) for line in lines)
    assert " read_shard: 1 task, " in lines[0]
    assert not logging.getLogger("jlgcn.engine").handlers
    (folder / "wines").mkdir()
    refused = run("update", folder / "wines", folder / "new.parquet", code=2).output
    assert "was not fitted by an engine; fit it again with the new rows" in refused
    assert "nothere does not exist; pass" in run("update", "nothere", "new", code=2).output


def test_predictions_go_to_a_folder_of_their_own(folder: Path) -> None:
    arguments = ("predict", folder / "model", folder / "items", "--workers", 1, "--out")
    (folder / "a file").write_text("")
    refused = run(*arguments, folder / "a file", code=2).output
    assert "a file is a file, but a model by an engine predicts into a folder" in refused
    (folder / "mixed").mkdir()
    pq.write_table(pa.table({"a": [1]}), folder / "mixed" / "other.parquet")
    refused = run(*arguments, folder / "mixed", code=2).output
    assert "mixed holds other.parquet, which this model did not predict of these rows" in refused
    for _ in range(2):  # the second time, they are there
        assert "300 rows written" in run(*arguments, folder / "scores").output


@pytest.mark.parametrize("command", ["report", "edges", "explain", "audit", "suggest"])
def test_models_of_an_engine_have_predictions_alone(folder: Path, command: str) -> None:
    more = ("a", "b") if command == "explain" else ()
    refused = run(command, folder / "model", *more, code=2).output
    assert "was fitted by an engine, which has no report, edges or explanations" in refused
    assert f"predictions are in {folder}/model/predictions" in refused
    assert "was fitted by an engine" in run(command, "s3://bucket/model", *more, code=2).output


def test_items_and_models_of_an_engine_are_told_apart(folder: Path) -> None:
    items = folder / "items"
    refused = run("fit", items, "--label", "kind", "--out", folder / "other", code=2).output
    assert "items is a folder: add --engine local" in refused
    assert ". is a folder: add --engine local" in run("fit", ".", "--label", "k", code=2).output
    path = folder / "items" / "a.parquet"
    refused = run("fit", path, "--label", "kind", "--out", folder / "model", code=2).output
    assert "model holds a model by an engine; pass another --out" in refused
    by = ("--label", "kind", "--engine", "local", "--workers", 1)
    refused = run("fit", folder / "nothere", *by, code=2).output
    assert "nothere does not exist; pass a Parquet file" in refused
    refused = run("fit", items, "--id", "ids", *by, code=2).output
    assert (
        "no column 'ids' (asked for as id); did you mean 'id'? Its columns are 'id', 'k" in refused
    )


def test_a_model_in_an_object_store_needs_an_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("a,k\n" + "1,x\n2,y\n" * 20)
    refused = run("fit", "t.csv", "--label", "k", "--out", "s3://bucket/model", code=2).output
    assert "s3://bucket/model is not on disk: add --engine local" in refused
    assert [path.name for path in Path().iterdir()] == ["t.csv"]


@pytest.mark.parametrize("path", [".", "./", "..", "items/.."])
def test_the_model_of_a_folder_is_beside_it(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "items.v1"
    (here / "items").mkdir(parents=True)
    monkeypatch.chdir(here)
    found = str(here if path != ".." else tmp_path).partition(".v1")[0]
    assert _model_of(path) == f"{found}-model"


def test_plan_recommends_a_way_or_refuses(tmp_path: Path) -> None:
    constants = tmp_path / "plan.json"
    save_constants(constants, DEFAULTS)
    arguments = ("plan", "--rows", 1_000_000, "--cores", 2, "--constants", constants)
    output = run(*arguments, "--memory", 5).output
    assert "does not fit" in output
    lines = output.splitlines()
    (in_memory,) = (line.split() for line in lines if line.startswith("in memory"))
    assert in_memory[4:] == ["10", "min", "does", "not", "fit"]  # CPU time, no time, no machines
    assert "Assumed: 64 features, 10 classes, no edges" in output
    assert "2 workers of 1.7 GiB each; 2 cores, 5.0 GiB a machine" in output
    assert "jlgcn fit … --label COLUMN --out MODEL --engine local --workers 2" in output
    refused = run(*arguments, "--memory", 0.2, code=2).output
    assert "no way to fit has enough memory" in refused
    assert "take a machine with more (--memory), or a sample of the rows (--rows)" in refused
    assert "pass --rows, or --calibrate alone" in run("plan", code=2).output
