from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pytest
import torch
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline

pytest.importorskip("pyarrow", reason="needs the extra table")
pytest.importorskip("skrub", reason="needs the extra table")

from jlgcn import JLGCNClassifier, compare
from jlgcn._saved import read_model, write_model
from jlgcn.estimator.document import SCHEMA
from jlgcn.estimator.encoding import as_texts, feature_names
from jlgcn.estimator.table_encoder import TableEncoder
from jlgcn.estimator.text_encoder import TextEncoder

TOPICS = {
    "sea": ["wave", "tide", "salt", "harbour", "gull"],
    "wood": ["oak", "fern", "moss", "trail", "owl"],
}


def customers(num_rows: int = 90) -> tuple[pd.DataFrame, list[str]]:
    """Three groups, which every column tells in part, with gaps."""
    chance = np.random.default_rng(0)
    group = chance.integers(0, 3, num_rows)
    age = group * 20 + chance.normal(30, 5, num_rows)
    table = pd.DataFrame(
        {
            "age": np.where(chance.random(num_rows) < 0.1, np.nan, age),
            "plan": [("free", "pro", "team")[g] if chance.random() < 0.8 else None for g in group],
            "joined": [f"{1 + k % 28}/{1 + 3 * g}/2021" for k, g in enumerate(group)],
            "note": [
                " ".join(chance.choice(list(TOPICS["sea" if g else "wood"]), 14)) for g in group
            ],
            "country": "PT",
        }
    )
    return table, [("a", "b", "c")[g] for g in group]


def hidden(y: list[str], number: int) -> list[str]:
    return [*y[:number], *[""] * (len(y) - number)]


@pytest.mark.parametrize("frame", [pd.DataFrame, lambda table: pl.from_pandas(table)])
def test_a_frame_of_mixed_columns_goes_into_fit(frame: Any, tmp_path: Path) -> None:  # noqa: ANN401
    table, y = customers()
    model = JLGCNClassifier().fit(frame(table), hidden(y, 30))
    assert model.feature_names_in_.tolist() == table.columns.tolist()
    assert model.n_features_in_ == 5
    assert model.encoder_.notes_["country"] == "dropped; constant: every row has 'PT'"
    assert model.scaler_.kind == "none"
    assert (model.transduction_ == y)[30:].mean() > 0.9
    names = feature_names(model)
    assert {"age", "age is missing", "plan=pro", "joined season sine", "note #1"} < set(names)
    assert sorted(name for name, _ in model.important_features()) == sorted(names)
    new = table.drop(columns="country").iloc[::-1].assign(unseen=1)
    probability = model.predict_proba(frame(new))
    model.save(tmp_path)
    loaded = JLGCNClassifier.load(tmp_path)
    assert np.array_equal(loaded.predict_proba(frame(new)), probability)
    assert np.array_equal(loaded.label_distributions_, model.label_distributions_)
    assert loaded.encoder_.notes_ == model.encoder_.notes_
    assert loaded.feature_names_in_.tolist() == table.columns.tolist()
    with pytest.raises(ValueError, match="X must be a data frame with named columns"):
        loaded.predict(np.zeros((2, 5)))
    with pytest.raises(ValueError, match="X has no column 'age', of which the model learned"):
        loaded.predict(frame(new.drop(columns="age")))


def test_a_model_of_numbers_forgets_what_a_frame_had() -> None:
    table, y = customers(40)
    model = JLGCNClassifier().fit(table, y)
    x = np.random.default_rng(0).normal(size=(40, 3))
    model.fit(x, y)
    assert model.encoder_ is None
    assert model.n_features_in_ == 3
    assert not hasattr(model, "feature_names_in_")
    assert model.predict(x).shape == (40,)


def test_frames_go_through_pipelines_folds_and_comparisons() -> None:
    table, y = customers()
    pipeline = make_pipeline(TableEncoder(), JLGCNClassifier(scaler="none")).fit(table, y)
    assert np.array_equal(
        pipeline.predict_proba(table), JLGCNClassifier().fit(table, y).predict_proba(table)
    )
    assert "plan=pro" in pipeline[:-1].get_feature_names_out()
    named = make_pipeline(
        TableEncoder().set_output(transform="pandas"), JLGCNClassifier(scaler="none")
    )
    named.fit(table, y)
    assert "plan=pro" in named[-1].feature_names_in_
    assert cross_val_score(JLGCNClassifier(), table, y, cv=KFold(3)).mean() > 0.8
    found = compare(table, y, n_splits=2, test_size=0.5)
    assert np.mean(found.accuracy["learned graph"]) > 0.8


def texts(num_rows: int = 120) -> tuple[list[str], list[str]]:
    chance = np.random.default_rng(0)
    kinds = [("sea", "wood")[k % 2] for k in range(num_rows)]
    return [f"The {' '.join(chance.choice(TOPICS[kind], 4))}" for kind in kinds], kinds


@pytest.mark.parametrize("as_kind", [list, np.array, pd.Series, pl.Series, tuple])
def test_texts_go_into_fit(as_kind: Any, tmp_path: Path) -> None:  # noqa: ANN401
    x, y = texts()
    model = JLGCNClassifier().fit(as_kind(x), hidden(y, 10))
    assert model.scaler_.kind == "words"
    assert model.n_features_in_ == 1
    assert "harbour" in feature_names(model)
    assert (model.transduction_ == y).mean() > 0.95
    assert model.predict(["An oak and an owl", ""]).shape == (2,)
    model.save(tmp_path)
    loaded = JLGCNClassifier.load(tmp_path)
    assert np.array_equal(loaded.predict_proba(x), model.predict_proba(as_kind(x)))
    with pytest.raises(ValueError, match="X must be texts, as in fit, but it is a ndarray"):
        loaded.predict(np.zeros((2, 5)))


def test_texts_without_spaces_are_cut_into_runs_of_letters() -> None:
    x = [f"东京塔很高{k}号" if k % 2 else f"大海很蓝{k}号" for k in range(120)]
    assert TextEncoder().fit(x).cut_ == "letters"
    assert TextEncoder().fit(["one two", "two one"]).cut_ == "words"
    with pytest.raises(ValueError, match="X has no word that two texts share"):
        TextEncoder().fit(["", " "])


def test_what_is_text() -> None:
    assert as_texts(["a", None, float("nan"), pd.NA]) == ["a", "", "", ""]
    assert as_texts([1.0, 2.0]) is as_texts(np.zeros(3)) is as_texts([["a"]]) is None
    assert as_texts(pd.DataFrame({"a": ["x"]})) is None
    with pytest.raises(ValueError, match="X must be texts, one a row, but row 1 is 2"):
        as_texts(["a", 2])


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    table, y = customers(40)
    JLGCNClassifier().fit(table, y).save(folder)
    return folder


def resave(saved: Path, folder: Path, change: Any) -> None:  # noqa: ANN401
    """Write a model again, with correct hashes, after a change to its encoder."""
    tensors, document = read_model(saved, SCHEMA)
    del document["schema"], document["sha256"]
    change(tensors, document["encoder"]["columns"], document["encoder"])
    write_model(folder, tensors, document, SCHEMA)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t, c, e: c[1]["words"].append("pro"), "words of column 1 must differ"),
        (lambda t, c, e: c[1]["words"].append("new"), "features are encoded as"),
        (lambda t, c, e: c[3]["terms"].append("new"), "encoder/3/idf has the shape"),
        (lambda t, c, e: c[3].update(terms=["gull"] * 10), "terms of column 3 must differ"),
        (lambda t, c, e: c.append(c[0]), "names of columns must differ"),
        (lambda t, c, e: c.pop(0), "tensors are missing: encoder/2/idf, encoder/2/projection"),
        (lambda t, c, e: t.pop("encoder/3/idf"), "tensors are missing: encoder/3/idf"),
        (lambda t, c, e: t.update({"encoder/9": t["diffused"].clone()}), "unknown tensors of the"),
        (lambda t, c, e: t["encoder/3/idf"].fill_(torch.nan), "encoder/3/idf"),
        (lambda t, c, e: t.update({"encoder/3/idf": t["encoder/3/idf"].double()}), "float32"),
    ],
)
def test_a_damaged_encoder_is_refused(
    saved: Path,
    tmp_path: Path,
    change: Any,  # noqa: ANN401
    message: str,
) -> None:
    resave(saved, tmp_path, change)
    with pytest.raises(ValueError, match=rf"is damaged: .*{message}"):
        JLGCNClassifier.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c[0].update(scale=0), "scale must be a number above 0"),
        (lambda c: c[0].update(scale=float("nan")), "scale must be a number above 0"),
        (lambda c: c[0].update(style="french"), "style must be one of point, comma"),
        (lambda c: c[2].update(date_formats=["%"]), "must be a format of dates"),
        (lambda c: c[2].update(periods=["year"]), "periods.0. must be one of season"),
        (lambda c: c[1].update(kind="pickle"), "kind must be one of dropped"),
        (lambda c: c[1].update(more=1), "lacks fields, or has unknown ones: 'more'"),
    ],
)
def test_a_hostile_encoder_is_refused_by_the_schema(
    saved: Path,
    tmp_path: Path,
    change: Any,  # noqa: ANN401
    message: str,
) -> None:
    with pytest.raises(ValueError, match=message):
        resave(saved, tmp_path, lambda tensors, columns, encoder: change(columns))


def test_the_document_of_an_encoder_is_plain_json(saved: Path) -> None:
    columns = json.loads((saved / "model.json").read_text())["encoder"]["columns"]
    kinds = [column["kind"] for column in columns]
    assert kinds == ["number", "category", "date", "text", "dropped"]
