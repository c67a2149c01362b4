from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pytest

pytest.importorskip("pyarrow", reason="needs the extra table")
skrub = pytest.importorskip("skrub", reason="needs the extra table")

import pyarrow  # noqa: E402

from jlgcn.estimator.table_columns import (  # noqa: E402
    CategoryColumn,
    DateColumn,
    NumberColumn,
    TextColumn,
    to_number,
    to_seconds,
)
from jlgcn.estimator.table_encoder import TableEncoder  # noqa: E402
from jlgcn.io.frames import is_numeric_frame, read_columns  # noqa: E402


def mixed(num_rows: int = 60) -> dict[str, list[Any]]:
    chance = np.random.default_rng(0)
    return {
        "code": [f"ß{k:03d}" for k in range(num_rows)],
        "age": [None if k == 3 else float(k % 7) for k in range(num_rows)],
        "price": [f"${1000 + 37 * k:,}" for k in range(num_rows)],
        "kind": [("red", "blue", None)[k % 3] for k in range(num_rows)],
        "member": [k % 2 == 0 for k in range(num_rows)],
        "since": [date(2020, 1 + k % 12, 1 + k % 28) for k in range(num_rows)],
        "seen": [f"{1 + k % 28:02d}/{1 + k % 12:02d}/2021" for k in range(num_rows)],
        "note": [" ".join(chance.choice(WORDS, 14)) for _ in range(num_rows)],
        "name": [f"{WORDS[k % 7]} {WORDS[k % 11]} {WORDS[k % 5]}é" for k in range(num_rows)],
        "same": ["x"] * num_rows,
        "empty": [None] * num_rows,
    }


WORDS = ["ash", "birch", "cedar", "elm", "fir", "gum", "hazel", "ivy", "juniper", "kapok", "larch"]


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pyarrow.table])
def test_frames_of_all_kinds_are_encoded_alike(frame: Any) -> None:  # noqa: ANN401
    expected = TableEncoder().fit(pd.DataFrame(mixed()))
    encoder = TableEncoder().fit(frame(mixed()))
    kinds = {column.name: type(column) for column in encoder.columns_}
    assert kinds["age"] is kinds["price"] is NumberColumn
    assert kinds["kind"] is kinds["member"] is CategoryColumn
    assert kinds["since"] is kinds["seen"] is DateColumn
    assert kinds["note"] is kinds["name"] is TextColumn
    names = encoder.get_feature_names_out().tolist()
    assert names == expected.get_feature_names_out().tolist()
    assert {"age", "age is missing", "kind=red", "member=true", "seen season sine", "note #1"} < {
        *names
    }
    found = encoder.transform(frame(mixed()))
    assert found.dtype == np.float32
    assert found.shape == (60, len(names))
    assert np.array_equal(found, expected.transform(pd.DataFrame(mixed())))


def test_what_is_dropped_or_odd_is_noted() -> None:
    table = pd.DataFrame(mixed())
    table["mostly"] = ["unsure", *map(str, range(1, 60))]
    table["lists"] = [[1, 2]] * 60
    table["row"] = range(1, 61)
    assert TableEncoder().fit(table).notes_ == {
        "code": "dropped; ids: 60 of 60 rows differ",
        "age": "1 of 60 rows is missing: taken as the median, and marked",
        "kind": "20 of 60 rows are missing: taken as a category of their own",
        "same": "dropped; constant: every row has 'x'",
        "empty": "dropped; empty",
        "mostly": "1 entry is no numbers, such as 'unsure': taken as missing",
        "lists": "dropped; of list<item: int64>, which is neither numbers nor text nor dates",
        "row": "dropped; ids: 60 of 60 rows differ",
    }


def test_each_column_weighs_about_the_same() -> None:
    encoder = TableEncoder().fit(pd.DataFrame(mixed()))
    variance = dict(
        zip(
            encoder.get_feature_names_out(),
            encoder.transform(pd.DataFrame(mixed())).var(0),
            strict=True,
        )
    )
    for column in encoder.columns_:
        if column.feature_names:
            assert 0.2 < sum(variance[name] for name in column.feature_names) < 3, column.name


def test_text_and_numbers_are_what_skrub_makes_of_them() -> None:
    table = pd.DataFrame(mixed()).astype({"name": "str"})
    encoder = TableEncoder().fit(table)
    names = encoder.get_feature_names_out().tolist()
    found = encoder.transform(table)
    distinct = pd.Series(table["name"].unique(), name="name")
    text = skrub.StringEncoder(random_state=0).fit(distinct).transform(table["name"])
    first = names.index("name #1")
    assert np.allclose(found[:, first : first + 30], text, atol=1e-4)
    prices = 1000.0 + 37 * np.arange(60)[:, None]
    scaled = skrub.SquashingScaler().fit_transform(prices)[:, 0]
    assert np.allclose(found[:, names.index("price")], scaled, atol=1e-6)


def test_new_rows_are_read_by_name_and_may_surprise() -> None:
    encoder = TableEncoder().fit(pd.DataFrame(mixed()))
    names = encoder.get_feature_names_out().tolist()
    new: dict[str, list[Any]] = {
        "note": ["", "unheard words"],
        "since": ["2020-05-05", "some day"],
        "seen": ["28/02/2021", None],
        "member": ["TRUE", "x"],
        "kind": ["green", 3],
        "price": ["1,001.5", "12"],
        "name": [None, "ash"],
        "age": ["2", "two"],
        "surplus": [1, 2],
    }
    found = dict(zip(names, encoder.transform(pd.DataFrame(new)).T.tolist(), strict=True))
    assert found["kind=red"] == found["kind=blue"] == found["kind is missing"] == [0, 0]
    assert found["member=true"] == [1, 0]
    assert found["age is missing"] == [0, 1]
    assert found["name #1"][0] == 0 != found["name #1"][1]
    assert found["note #1"] == [0, 0]
    alone = encoder.transform(pd.DataFrame(new)[1:])
    assert np.allclose(alone[0], [values[1] for values in found.values()])
    with pytest.raises(ValueError, match="X has no column 'age', of which the model learned"):
        encoder.transform(pd.DataFrame(new).drop(columns="age"))
    with pytest.raises(ValueError, match="column 'since' must be of dates, as in fit, but it is"):
        encoder.transform(pd.DataFrame(new | {"since": [1, 2]}))
    with pytest.raises(ValueError, match="X must be a data frame with named columns"):
        encoder.transform(np.zeros((2, 3)))


def test_infinite_numbers_and_useless_tables_are_refused() -> None:
    with pytest.raises(ValueError, match="column 'a' of row 1 is inf"):
        TableEncoder().fit(pd.DataFrame({"a": [1, np.inf], "b": "x"}))
    with pytest.raises(ValueError, match=r"X has no column to learn from: {'b': .dropped; const"):
        TableEncoder().fit(pd.DataFrame({"b": ["x", "x"]}))
    with pytest.raises(ValueError, match="X has two columns 'a'"):
        read_columns(pd.DataFrame([[1, 2]], columns=["a", "a"]))


@pytest.mark.parametrize(
    ("text", "style", "number"),
    [
        ("1,234.5", "point", 1234.5),
        ("1.234,5", "comma", 1234.5),
        ("3,14", "point", np.nan),
        ("3,14", "comma", 3.14),
        ("-$12", "point", -12),
        ("12 %", "point", 12),
        ("1e3", "point", 1000),
        ("1_000", "point", np.nan),
        ("inf", "point", np.nan),
        ("1e999", "point", np.nan),
        ("12 kg", "point", np.nan),
        (".5", "point", 0.5),
        ("", "point", np.nan),
    ],
)
def test_numbers_as_text(text: str, style: Any, number: float) -> None:  # noqa: ANN401
    assert to_number(text, style) == pytest.approx(number, nan_ok=True)


def test_dates_as_text() -> None:
    noon = datetime(2021, 2, 1, 12, tzinfo=UTC).timestamp()
    assert to_seconds("01.02.2021 12:00", ["%d.%m.%Y", "%d.%m.%Y %H:%M"]) == noon
    assert to_seconds("2021-02-01T13:00:00+01:00", ["%d.%m.%Y"]) == noon
    assert np.isnan(to_seconds("yesterday", ["%d.%m.%Y"]))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["007", "008", "120"] * 20, CategoryColumn),
        (["3,5", "1,25", "2"] * 20, NumberColumn),
        ([f"{1 + k % 12}/{1 + k % 28}/2020" for k in range(60)], DateColumn),
        ([f"2020-01-{1 + k % 28:02d} {k % 24:02d}:00" for k in range(60)], DateColumn),
        (
            ["unknown" if k % 20 == 5 else f"2020-01-{1 + k % 28:02d}" for k in range(60)],
            DateColumn,
        ),
        ([f"N{k // 4}A{k % 2}" for k in range(200)], TextColumn),
    ],
)
def test_the_kind_of_a_column_of_text(values: list[str], kind: type) -> None:
    (column,) = TableEncoder().fit(pd.DataFrame({"a": values})).columns_
    assert type(column) is kind


def test_frames_of_numbers_are_told_from_others() -> None:
    numbers: dict[str, list[Any]] = {"a": [1, 2], "b": [0.5, 1.5], "c": [True, False]}
    text = numbers | {"d": ["x", "y"]}
    gaps = numbers | {"d": [1, None]}
    for frame in (pd.DataFrame, pl.DataFrame, pyarrow.table):
        assert is_numeric_frame(frame(numbers))
        assert not is_numeric_frame(frame(text))
        assert not is_numeric_frame(frame(gaps))
    assert not is_numeric_frame(pd.DataFrame({"a": pd.array([1, None], dtype="Int64")}))
    assert is_numeric_frame(pd.DataFrame({"a": pd.array([1, 2], dtype="Int64")}))


def test_it_is_a_transformer_of_pipelines() -> None:
    encoder = TableEncoder().set_output(transform="pandas")
    found = encoder.fit_transform(pd.DataFrame(mixed(), index=range(100, 160)))
    assert found.columns.tolist() == encoder.get_feature_names_out().tolist()
    assert found.index[0] == 100


def test_dates_of_one_column_may_have_several_formats() -> None:
    written = [f"{day:02d}.03.2021" for day in range(1, 29)]
    written += [f"{month} {day}, 2021" for month in ("Apr", "Jun") for day in range(10, 20)]
    encoder = TableEncoder().fit(pd.DataFrame({"when": written}))
    assert encoder.notes_ == {"when": "dates in 2 formats"}
    found = encoder.transform(pd.DataFrame({"when": ["11.06.2021", "Jun 11, 2021", "2021-06-11"]}))
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_booleans_and_0_and_1_are_the_same_at_predict() -> None:
    frame = pd.DataFrame(mixed())
    as_numbers = frame.assign(member=frame["member"].astype(int))
    for fitted, other in ((frame, as_numbers), (as_numbers, frame)):
        encoder = TableEncoder().fit(fitted)
        assert (encoder.transform(other) == encoder.transform(fitted)).all()


@pytest.mark.parametrize("name", ["since", "seen"])
def test_a_date_may_be_missing_in_all_new_rows(name: str) -> None:
    frame = pd.DataFrame(mixed())
    encoder = TableEncoder().fit(frame)
    for missing in (np.nan, None):
        found = encoder.transform(frame.iloc[:1].assign(**{name: missing}))
        assert np.isfinite(found).all()
