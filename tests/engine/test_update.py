"""Rows, edges and labels added to a model of shards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jlgcn._files import locked
from jlgcn.closed_form.fit import refit_heads
from jlgcn.engine import ShardedModel
from jlgcn.engine.tasks import run_task
from tests.engine.tables import OPTIONS, Items, draw, read, write

NUM_OLD = 600


def fit(items: Items, folder: Path, out: str) -> ShardedModel:
    write(items, folder / f"{out}-items")
    return ShardedModel.fit(
        str(folder / f"{out}-items" / "items"),
        label="kind",
        id_column="id",
        edges=str(folder / f"{out}-items" / "edges.parquet"),
        out=str(folder / out),
        num_workers=1,
        options=OPTIONS,
        shard_rows=250,
    )


def part(items: Items, rows: slice) -> Items:
    """Return some rows, with the edges among all rows that are not among the first."""
    is_old = (items.edges < NUM_OLD).all(0)
    edges = items.edges[:, is_old if rows.start is None else ~is_old]
    cut = {name: getattr(items, name)[rows] for name in ("x", "y", "few")}
    return replace(items, edges=edges, **cut)


def old_rows(items: Items) -> Items:
    found = part(items, slice(None, NUM_OLD))
    return replace(found, ids=items.ids[:NUM_OLD])


def write_new(items: Items, folder: Path) -> dict[str, Any]:
    """Write the other rows, and the edges that they have or that were not known."""
    new = part(items, slice(NUM_OLD, None))
    labels = [None if label < 0 else f"class {label}" for label in new.few]
    columns: dict[str, Any] = {"id": items.ids[NUM_OLD:], "kind": labels}
    columns |= {f"f{k}": new.x[:, k] for k in range(new.x.shape[1])}
    folder.mkdir()
    pq.write_table(pa.table(columns), folder / "rows.parquet")
    ends = [items.ids[side] for side in new.edges]
    pq.write_table(pa.table(ends, names=["from", "to"]), folder / "edges.parquet")
    return {"items": str(folder / "rows.parquet"), "edges": str(folder / "edges.parquet")}


def share(model: ShardedModel, items: Items) -> float:
    """Return the accuracy on rows without a label."""
    kind = read(f"{model.uri}/predictions").column("kind").to_pylist()
    expected = [f"class {label}" for label in items.y]
    hidden = items.few < 0
    return float((np.array(kind) == np.array(expected))[hidden].mean())


def test_an_update_is_about_as_accurate_as_a_new_fit(tmp_path: Path) -> None:
    items = draw()
    model = fit(old_rows(items), tmp_path, "old")
    updated = model.update(num_workers=1, **write_new(items, tmp_path / "new"))
    fresh = fit(items, tmp_path, "fresh")
    assert updated.num_rows == len(items.y)
    found = read(f"{updated.uri}/predictions")
    assert found.column("id").to_pylist() == items.ids.tolist()
    assert abs(share(updated, items) - share(fresh, items)) < 0.02
    assert updated.document["num_labels"] == 40
    # The model is a model: it predicts, and it is updated again.
    new = str(tmp_path / "new" / "rows.parquet")
    assert updated.predict(new, str(tmp_path / "out"), num_workers=1) == 300
    hidden = np.flatnonzero(items.few < 0)[:50]
    columns = {"id": items.ids[hidden], "kind": [f"class {label}" for label in items.y[hidden]]}
    pq.write_table(pa.table(columns), tmp_path / "labels.parquet")
    again = updated.update(labels=str(tmp_path / "labels.parquet"), num_workers=1)
    assert again.document["num_labels"] == 90
    assert share(again, items) >= share(updated, items)
    assert ShardedModel.load(model.uri).document == again.document


def test_an_update_is_made_once_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = draw()
    expected = fit(old_rows(items), tmp_path, "expected")
    new = write_new(items, tmp_path / "new")
    expected = expected.update(num_workers=1, **new)
    model = fit(old_rows(items), tmp_path, "model")
    count = 0

    def run(*arguments: Any) -> None:  # noqa: ANN401
        nonlocal count
        count += 1
        if count == 15:
            raise KeyboardInterrupt
        run_task(*arguments)

    monkeypatch.setattr("jlgcn.engine.local.run_task", run)
    with pytest.raises(KeyboardInterrupt):
        model.update(num_workers=1, **new)
    found = model.update(num_workers=1, **new)
    again = found.update(num_workers=1, **new)
    assert again.document == found.document
    assert read(f"{found.uri}/predictions").equals(read(f"{expected.uri}/predictions"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, "an update needs new rows, edges or labels; pass some"),
        ({"items": "many"}, "would have more than 3 shards; take shard_rows larger, or fit again"),
        ({"items": "old"}, "ids must be unique, but 300 are those of several rows: .*, …; drop"),
        ({"labels": "strange"}, "no label in .* is of a row of the model; use its ids"),
        ({"labels": "edges"}, "must have a column 'id', but it has"),
    ],
)
def test_errors_say_what_to_do(
    change: dict[str, str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = draw(300)
    model = fit(items, tmp_path, "model")
    strange = pa.table({"id": ["nobody"], "kind": ["class 0"]})
    pq.write_table(strange, tmp_path / "strange.parquet")
    many = pa.table({"id": range(500), **{f"f{k}": np.zeros(500) for k in range(6)}})
    pq.write_table(many, tmp_path / "many.parquet")
    paths = {
        "many": tmp_path / "many.parquet",
        "old": tmp_path / "model-items" / "items",
        "strange": tmp_path / "strange.parquet",
        "edges": tmp_path / "model-items" / "edges.parquet",
    }
    before = model.document
    monkeypatch.setattr("jlgcn.engine.update.MAX_SHARDS", 3)  # two are those of the fit
    with pytest.raises(ValueError, match=message):
        model.update(
            num_workers=1,
            shard_rows=300,
            **{k: str(paths[v]) for k, v in change.items()},  # type: ignore[arg-type]
        )
    assert ShardedModel.load(model.uri).document == before


def test_an_update_of_what_was_changed_meanwhile_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = draw(200)
    model = fit(items, tmp_path, "model")
    document = tmp_path / "model" / "shards.json"
    given = {}
    for row in (0, 1):
        given[row] = str(tmp_path / f"{row}.parquet")
        columns = {"id": items.ids[[row]], "kind": [f"class {items.y[row]}"]}
        pq.write_table(pa.table(columns), given[row])

    def refit_meanwhile(*arguments: Any) -> Any:  # noqa: ANN401
        document.write_text(document.read_text() + " ")
        return refit_heads(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr("jlgcn.engine.update.refit_heads", refit_meanwhile)
        with pytest.raises(ValueError, match=r"shards.json was changed meanwhile by another fit"):
            model.update(labels=given[0], num_workers=1)
    assert ShardedModel.load(model.uri).document == model.document

    updated = model.update(labels=given[0], num_workers=1)
    # The same one again changes nothing; another one must start from what is there.
    assert model.update(labels=given[0], num_workers=1).document == updated.document
    with pytest.raises(ValueError, match="was changed since it was loaded; load it again, or go"):
        model.update(labels=given[1], num_workers=1)
    again = updated.update(labels=given[1], num_workers=1)
    assert len(again.document["inputs"]) == len(model.document["inputs"]) + 2


def test_one_writes_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jlgcn.engine.store._LOCK_SECONDS", 0.1)
    items = draw(100)
    model = fit(items, tmp_path, "model")
    with locked(tmp_path / "model"):
        edges = str(tmp_path / "model-items" / "edges.parquet")
        with pytest.raises(OSError, match=r"another process has been writing to .*model for 0 s"):
            model.update(edges=edges, num_workers=1)
        with pytest.raises(OSError, match=r"another process has been writing to .*model for 0 s"):
            ShardedModel.fit(edges, label="to", out=model.uri, overwrite=True, num_workers=1)
    assert ShardedModel.load(model.uri).document == model.document
