"""The closed form over shards, on disk."""

from __future__ import annotations

import io
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from jlgcn import JLGCNClassifier
from jlgcn.closed_form import ClosedFormOptions
from jlgcn.closed_form.shards import Output
from jlgcn.engine import ShardedModel
from jlgcn.engine.local import LocalExecutor
from jlgcn.engine.store import Store
from jlgcn.engine.tasks import Task, run_task
from tests.engine.tables import OPTIONS, Items, draw, read, write


def fit(
    folder: Path,
    *,
    out: str = "model",
    options: ClosedFormOptions = OPTIONS,
    edges: bool = True,
    overwrite: bool = False,
) -> ShardedModel:
    return ShardedModel.fit(
        str(folder / "items"),
        label="kind",
        id_column="id",
        edges=str(folder / "edges.parquet") if edges else None,
        out=str(folder / out),
        overwrite=overwrite,
        num_workers=1,
        options=options,
        shard_rows=250,  # across files and row groups
    )


@pytest.fixture(scope="module")
def items() -> Items:
    return draw()


@pytest.fixture(scope="module")
def folder(items: Items, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("local")
    write(items, found)
    fit(found)
    return found


@pytest.fixture(scope="module")
def in_memory(items: Items) -> JLGCNClassifier:
    with pytest.warns(UserWarning, match="one direction"):
        return JLGCNClassifier(**vars(OPTIONS)).fit(items.x, items.few, items.edges)


def test_shards_have_the_predictions_of_memory(
    items: Items, folder: Path, in_memory: JLGCNClassifier
) -> None:
    found = read(str(folder / "model" / "predictions"))
    assert found.column("id").to_pylist() == items.ids.tolist()
    probability = in_memory.label_distributions_
    # The sums of a shard are in float64, those of memory in float32.
    assert np.abs(found.column("probability").to_numpy() - probability.max(1)).max() < 1e-4
    names = [f"class {best}" for best in probability.argmax(1)]
    assert found.column("kind").to_pylist() == names
    document = ShardedModel.load(str(folder / "model")).document
    assert document["evidence"] == in_memory.evidence_
    order = Store(str(folder / "model" / "parts")).tensors(document["order"])["order"]
    assert not order.diff().eq(1).all()  # rows were renumbered


def test_new_rows_have_the_predictions_of_memory(
    folder: Path, in_memory: JLGCNClassifier, tmp_path: Path
) -> None:
    new = draw(300, seed=1)
    columns = {"other": new.ids, "id": new.ids}  # a column that the model does not know
    columns |= {f"f{k}": new.x[:, k] for k in range(new.x.shape[1])}
    pq.write_table(pa.table(columns), tmp_path / "new.parquet")
    model = ShardedModel.load(str(folder / "model"))
    out = tmp_path / "out"
    count = model.predict(str(tmp_path / "new.parquet"), str(out), num_workers=1, shard_rows=128)
    assert count == 300
    assert len(list(out.glob("*.parquet"))) == 3
    found, expected = read(str(out)), in_memory.predict_proba(new.x)
    assert found.column("id").to_pylist() == new.ids.tolist()
    assert np.abs(found.column("probability").to_numpy() - expected.max(1)).max() < 1e-4


def test_selection_is_that_of_memory(tmp_path: Path) -> None:
    items = draw(400)
    write(items, tmp_path)
    options = ClosedFormOptions(n_layers=2, n_candidates=20, n_components=4)
    model = fit(tmp_path, options=options)
    with pytest.warns(UserWarning, match="one direction"):
        expected = JLGCNClassifier(**vars(options)).fit(items.x, items.few, items.edges)
    chosen = {name: model.document["options"][name] for name in expected.best_params_}
    assert chosen == expected.best_params_


def test_words_have_the_predictions_of_memory(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    y = random.integers(0, 2, 300)
    rate = np.where(np.arange(120) % 2 == y[:, None], 0.3, 0.1)
    x = random.poisson(rate).astype(np.float32)
    x[7] = 0  # nobody's neighbour
    few = np.where(np.arange(300) < 30, y, -1)
    labels = [None if label < 0 else str(label) for label in few]
    lists = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 120)
    (tmp_path / "items").mkdir()
    pq.write_table(pa.table({"kind": labels, "words": lists}), tmp_path / "items" / "a.parquet")
    model = ShardedModel.fit(
        str(tmp_path / "items"),
        label="kind",
        out=str(tmp_path / "model"),
        num_workers=1,
        options=OPTIONS,
        shard_rows=110,
    )
    assert model.document["scaler"]["kind"] == "words"
    expected = JLGCNClassifier(**vars(OPTIONS)).fit(x, few).label_distributions_.max(1)
    found = read(str(tmp_path / "model" / "predictions"))
    assert found.column("row").to_pylist() == [str(row) for row in range(300)]
    assert np.abs(found.column("probability").to_numpy() - expected).max() < 1e-3


def test_a_fit_that_was_interrupted_goes_on(
    items: Items,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "jlgcn.engine")
    write(items, tmp_path)
    ran: list[str] = []

    def run(*arguments: object, stop: bool) -> None:
        if stop and len(ran) == 20:
            raise KeyboardInterrupt
        ran.append(str(arguments[3]))
        run_task(*arguments)  # type: ignore[arg-type]
        directed = [*(tmp_path / "model" / "parts").glob("rank-*.data")]
        assert len(directed) <= -(-len(items.x) // 250)  # those of one graph, then they go

    monkeypatch.setattr("jlgcn.engine.local.run_task", lambda *a: run(*a, stop=True))
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path)
    assert "goes on" not in caplog.text
    monkeypatch.setattr("jlgcn.engine.local.run_task", lambda *a: run(*a, stop=False))
    fit(tmp_path)
    assert len(ran) == len(set(ran)) > 40  # no task ran twice
    assert re.search(r"goes on: \d\d tasks are done already", caplog.text)


def test_many_tasks_have_a_progress_bar_in_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def nothing(files: object, number: int) -> Output:
        return Output()

    shown = io.StringIO()
    monkeypatch.setattr(shown, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr", shown)
    tasks = [Task.of(nothing, {"number": number}) for number in range(3)]
    LocalExecutor(1).execute((str(tmp_path),), tasks, 1)
    assert not shown.getvalue()
    caplog.set_level("INFO", "jlgcn.engine")
    LocalExecutor(1).execute((str(tmp_path),), tasks, 1)
    assert "nothing:   0%" in shown.getvalue()


def test_few_of_equal_rows_are_in_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    from jlgcn.closed_form import shards

    monkeypatch.setattr(shards, "MAX_EQUAL", 2)
    points = torch.tensor([[1.0], [2.0], [1.0], [1.0], [2.0], [3.0]])
    assert shards._few_equal(points).tolist() == [True, True, True, False, True, True]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": "sort"}, "has no column 'sort' .asked for as label.; its columns are 'id'"),
        ({"items": "nowhere"}, "does not exist; pass a Parquet file, or a folder of some"),
        ({"id_column": "kind", "drop": ["id", "text"]}, "every row needs an id, but column 'kind'"),
        ({"drop": []}, "features must be numbers, but column 'text' .* is of string"),
        ({"options": ClosedFormOptions(control="random metric")}, "is for fits in memory"),
    ],
)
def test_errors_say_what_to_do(change: dict[str, object], message: str, tmp_path: Path) -> None:
    (tmp_path / "items").mkdir()
    table = {"id": ["a", "b"], "kind": ["x", None], "f": [1.0, 2.0], "text": ["?", "!"]}
    pq.write_table(pa.table(table), tmp_path / "items" / "a.parquet")
    arguments = {"items": "items", "label": "kind", "id_column": "id", "drop": ["text"]} | change
    arguments["items"] = str(tmp_path / str(arguments["items"]))
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        ShardedModel.fit(out=str(tmp_path / "m"), num_workers=1, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("edges", [True, False])
def test_ids_of_several_rows_are_refused(edges: bool, tmp_path: Path) -> None:
    items = draw(100)
    items.ids[3:8] = items.ids[80]
    items.ids[9], items.ids[12] = items.ids[90], items.ids[95]
    write(items, tmp_path)
    found = "3 are those of several rows: 'item 560', 'item 630', 'item 665'; drop"
    with pytest.raises(ValueError, match=found):
        fit(tmp_path, edges=edges)


def test_a_finished_fit_is_not_repeated_and_a_model_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    items = draw(100)
    write(items, tmp_path)
    model = fit(tmp_path)
    ran: list[str] = []
    monkeypatch.setattr("jlgcn.engine.local.run_task", lambda *arguments: ran.append(arguments[3]))
    for folder in ("parts", "predictions"):  # of a process that was killed
        (tmp_path / "model" / folder / f".a.data.{16 * '0'}.tmp").write_text("")
    assert fit(tmp_path).document == model.document
    assert not [*(tmp_path / "model").glob("*/.*")]
    assert not ran
    assert "model is there already, of the same inputs" in caplog.text
    monkeypatch.undo()
    with pytest.raises(FileExistsError, match="holds a model of other data or options; pass ano"):
        fit(tmp_path, edges=False)
    assert ShardedModel.load(model.uri).document == model.document
    replaced = fit(tmp_path, edges=False, overwrite=True)
    assert ShardedModel.load(model.uri).document == replaced.document != model.document
    (tmp_path / "wines").mkdir()
    (tmp_path / "wines" / "model.json").write_text("{}")
    with pytest.raises(FileExistsError, match="holds a model that was fitted in memory"):
        fit(tmp_path, out="wines", overwrite=True)


def test_edges_of_no_row_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    items = draw(100)
    write(items, tmp_path)
    count = items.edges.shape[1]
    ends = [
        [*items.ids[side], *(2 * count * [name])]
        for side, name in zip(items.edges, "ab", strict=True)
    ]
    pq.write_table(pa.table(ends, names=["from", "to"]), tmp_path / "edges.parquet")
    fit(tmp_path)
    said = f"{count:,} of {3 * count:,} edges join two rows; {2 * count:,} name an id that no row"
    (record,) = (each for each in caplog.records if each.getMessage().startswith(said))
    assert record.levelname == "WARNING"
    pq.write_table(pa.table([["a"], ["b"]], names=["from", "to"]), tmp_path / "edges.parquet")
    with pytest.raises(ValueError, match="names two rows of the table; use the ids of --id"):
        fit(tmp_path, out="other")


def test_labels_with_fractions_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "items").mkdir()
    path = tmp_path / "items" / "a.parquet"
    gaps: list[None] = 97 * [None]
    table = {"kind": [0.5, 1.0, 2.0, *gaps], "id": range(100), "f": np.arange(100.0)}
    pq.write_table(pa.table(table), path)
    with pytest.raises(ValueError, match="'kind' has 3 different numbers in 3 labels; is it a qua"):
        fit(tmp_path, edges=False)
    pq.write_table(pa.table(table | {"kind": ["0.5", "1.0", "2.0", *gaps]}), path)  # text may be
    assert fit(tmp_path, edges=False).document["classes"] == ["0.5", "1.0", "2.0"]
    assert "3 labels in 'kind' are of 3 classes: is this the column of classes?" in caplog.text


def test_a_document_that_was_changed_is_refused(folder: Path, tmp_path: Path) -> None:
    text = (folder / "model" / "shards.json").read_text()
    (tmp_path / "shards.json").write_text(text.replace('"n_neighbors": 8', '"n_neighbors": 9'))
    with pytest.raises(ValueError, match="does not have its own hash"):
        ShardedModel.load(str(tmp_path))


def sleep(files: object, folder: str, number: int) -> Output:
    """A stage that says which process it is, and takes longer than any test."""
    Path(folder, f"{number}-{os.getpid()}").write_text("")
    time.sleep(600)
    return Output()


def drive(folder: str) -> None:
    tasks = [Task.of(sleep, {"folder": folder, "number": number}) for number in range(2)]
    LocalExecutor(2).execute((f"{folder}/parts",), tasks, 1)


def is_running(process: int) -> bool:
    status = Path(f"/proc/{process}/status")
    try:
        return "State:\tZ" not in status.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")
def test_processes_of_a_pool_end_with_their_driver(tmp_path: Path) -> None:
    driver = multiprocessing.get_context("spawn").Process(target=drive, args=(str(tmp_path),))
    driver.start()

    def pids() -> list[int]:
        return [int(path.name.split("-")[1]) for path in tmp_path.glob("*-*")]

    try:
        started = time.monotonic()
        while len(pids()) < 2:
            assert driver.is_alive()
            assert time.monotonic() < started + 120
            time.sleep(0.1)
        driver.kill()  # the driver alone, as the system does for want of memory
        driver.join()
        killed = time.monotonic()
        while any(map(is_running, pids())) and time.monotonic() < killed + 10:
            time.sleep(0.1)
        assert not [pid for pid in pids() if is_running(pid)]
    finally:
        driver.kill()
        for pid in filter(is_running, pids()):
            os.kill(pid, signal.SIGKILL)


def test_a_script_without_a_guard_is_told_of_it(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "from jlgcn.closed_form.shards import project\n"
        "from jlgcn.engine.local import LocalExecutor\n"
        "from jlgcn.engine.tasks import Task\n"
        "LocalExecutor(2).execute(('parts',), [Task.of(project, {'shard': 0})], 1)\n"
    )
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    (line,) = (each for each in done.stderr.splitlines() if each.startswith("OSError"))
    assert "a process that ran project was killed" in line
    assert 'or the script has no `if __name__ == "__main__":` around the call' in line
