from __future__ import annotations

import csv
import logging
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner, Result

pytest.importorskip("pyarrow", reason="needs the extra table")
pytest.importorskip("skrub", reason="needs the extra table")

from evaluation.messy_table import LABEL, messy_table
from jlgcn import JLGCNClassifier
from jlgcn.cli import app
from jlgcn.estimator.encoding import column_names, sum_by_name

runner = CliRunner()
NOTES = {
    "gold": "called twice about the yacht insurance and wants the marble terrace insured as well",
    "silver": "asked by mail whether the family car and the flat could share one contract",
    "bronze": "student who pays late and asked for the cheapest bicycle cover there is",
}


def run(*arguments: object, code: int = 0) -> Result:
    result = runner.invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def customers(path: Path, num_rows: int, *, first: int = 0, num_labels: int = 10**9) -> list[str]:
    """Write a table as an analyst has it; return the true segments."""
    chance = np.random.default_rng(first)
    header = ["", "Kundennr.", "Alter", "Umsatz (€)", "Stadt", "seit", "aktiv", "Notiz", "Land"]
    rows: list[list[object]] = [[*header, "leer", "segment"]]
    truth = []
    for k in range(first, first + num_rows):
        segment = chance.choice(list(NOTES))
        level = list(NOTES).index(segment)
        words = NOTES[segment].split()
        note = " ".join(chance.choice(words, 13)) + ('; "eilt"\nbitte' if k % 9 == 0 else "")
        age = f"{chance.normal(60 - 12 * level, 6):.0f}" if chance.random() < 0.9 else "k. A."
        sales = f"{chance.lognormal(9 - level, 0.4):_.2f}".replace(".", ",").replace("_", ".")
        city = chance.choice(["Zürich", "Genf"] if level < 2 else ["Łódź", "Genf"])
        since = f"{1 + k % 28:02d}.{1 + (k + 4 * level) % 12:02d}.{2010 + 4 * level + k % 4}"
        rows.append(
            [
                *(
                    k + 1,
                    f"Ä-{k:05d}",
                    age if k % 7 else "",
                    sales,
                    city if k % 11 else "NA",
                    since,
                ),
                *(("ja", "nein")[int(chance.random() < 0.2 + 0.3 * level)], note, "CH", ""),
                segment if k - first < num_labels else "",
            ]
        )
        truth.append(str(segment))
    with path.open("w", newline="", encoding="utf-16") as file:
        csv.writer(file, delimiter=";").writerows(rows)
    return truth


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("customers")
    customers(folder / "customers.csv", 200, num_labels=45)
    customers(folder / "new.csv", 60, first=200, num_labels=0)
    return folder


def test_a_messy_csv_is_one_command_to_a_model_and_one_to_predictions(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        shown = run("fit", folder / "customers.csv", "--label", "segment").output
    assert "200 rows with ids in 'Kundennr.', " in shown
    assert "dropped, as ids of rows are in 'Kundennr.': ''" in caplog.text
    assert "45 labels of 3 classes" in shown
    model = JLGCNClassifier.load(folder / "customers-model")
    assert model.encoder_.notes_["Land"] == "dropped; constant: every row has 'CH'"
    assert model.encoder_.notes_["leer"] == "dropped; empty"
    assert "entries are no numbers, such as 'k. A.': taken as missing" in caplog.text
    assert "'Land': dropped; constant: every row has 'CH'" in caplog.text
    kinds = {column.name: type(column).__name__ for column in model.encoder_.columns_}
    assert kinds["Alter"] == kinds["Umsatz (€)"] == "NumberColumn"
    assert kinds["seit"] == "DateColumn"
    assert kinds["aktiv"] == kinds["Stadt"] == "CategoryColumn"
    assert kinds["Notiz"] == "TextColumn"
    truth = customers(folder / "again.csv", 60, first=200)
    run("predict", folder / "customers-model", folder / "new.csv", "--out", folder / "out.csv")
    with (folder / "out.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert np.mean([row["segment"] == true for row, true in zip(rows, truth, strict=True)]) > 0.85


def test_every_command_reads_a_model_of_a_raw_table(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = folder / "customers-model"
    if not model.exists():
        run("fit", folder / "customers.csv", "--label", "segment")
    first, second = run("predict", model).output.splitlines()[1:3]
    ids = [line.split(",")[0] for line in (first, second)]
    shown = run("explain", model, *ids, "--top", 99).output
    columns = [re.split(" +[+-]", line)[0].strip() for line in shown.splitlines()[1:]]
    assert sorted(columns) == ["Alter", "Notiz", "Stadt", "Umsatz (€)", "aktiv", "seit"]
    run("edges", model, "--out", folder / "edges.csv")
    asked = run("suggest", model, "-n", 2).output.splitlines()
    name, text = asked[0].split("\t")
    assert name.startswith("Ä-")
    assert text.startswith("Notiz: ")
    fitted = JLGCNClassifier.load(model)
    importance = fitted.model_.feature_importance(fitted.model_.num_column_layers - 1)
    parts, columns = sum_by_name(importance, column_names(fitted))
    part = dict(zip(columns, parts.tolist(), strict=True))
    shown_columns = [cell.partition(":")[0] for cell in text.split(" · ")[1:-1]]
    assert shown_columns == sorted(shown_columns, key=lambda name: -part[name])
    terminal = SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True))
    with monkeypatch.context() as patch:
        patch.setattr("jlgcn.cli.data.sys", terminal)
        patch.setenv("COLUMNS", "60")
        cut = run("suggest", model, "-n", 2).output.splitlines()
    assert [len(line) for line in cut] == [60, 60]
    assert "CH" not in text
    run("report", model, "--folds", 0, "--out", folder / "page.html")
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert "Umsatz (€)" in page
    assert "<th>row contents</th>" in page
    assert text.split(" · ")[0] in page
    assert '<th>leer</th><td class="words">dropped; empty</td>' in page


def test_new_rows_without_ids_are_numbered_and_without_a_column_refused(
    folder: Path, tmp_path: Path
) -> None:
    model = folder / "customers-model"
    if not model.exists():
        run("fit", folder / "customers.csv", "--label", "segment")
    with (folder / "new.csv").open(newline="", encoding="utf-16") as file:
        rows = list(csv.DictReader(file, delimiter=";"))[:5]
    for left_out, code in (({"", "Kundennr.", "Land", "leer", "segment"}, 0), ({"seit"}, 2)):
        with (tmp_path / "few.csv").open("w", newline="", encoding="utf-8") as file:
            names = [name for name in rows[0] if name not in left_out]
            writer = csv.DictWriter(file, names, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)
        shown = run("predict", model, tmp_path / "few.csv", code=code).output
    assert "few.csv lacks the column 'seit', which the model uses; add it" in shown


def test_a_column_of_text_is_learned_from_alone(folder: Path, tmp_path: Path) -> None:
    model = tmp_path / "text"
    table = (folder / "customers.csv", "--label", "segment", "--text", "Notiz")
    shown = run("fit", *table, "--out", model).output
    assert "features of 'Notiz' (scaled as words)" in shown
    lines = list(csv.reader(run("predict", model, folder / "new.csv").output.splitlines()))
    truth = customers(folder / "again.csv", 60, first=200)
    assert np.mean([line[1] == true for line, true in zip(lines[1:], truth, strict=True)]) > 0.9
    asked = run("suggest", model, "-n", 1).output.strip().split("\t")
    assert set(asked[1].split()[:9]) <= set(" ".join(NOTES.values()).split())
    shown = run("fit", *table[:-1], "Notitz", code=2).output
    assert "has no column 'Notitz' (asked for as text); did you mean 'Notiz'?" in shown


def test_gaps_in_a_table_of_numbers_are_filled(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    lines = ["nr,a,kind"]
    for k in range(60):
        number, label = "" if k % 9 == 0 else k % 2 + k / 99, "xy"[k % 2] if k < 20 else ""
        lines.append(f"{k},{number},{label}")
    path.write_text("\n".join(lines), encoding="utf-8")
    shown = run("fit", path, "--label", "kind").output
    assert "60 rows with ids in 'nr', 2 features of 1 column" in shown


def test_labels_that_are_hardly_classes_are_asked_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,kind\n" + "".join(f"{k},\n" for k in range(9)))
    assert (
        "column 'kind' of t.csv is empty; write"
        in run("fit", path, "--label", "kind", code=2).output
    )
    path.write_text("a,kind\n" + "".join(f"{k % 5},k{k}\n" for k in range(9)))
    run("fit", path, "--label", "kind")
    assert "9 labels in 'kind' are of 9 classes: is this the column of classes?" in caplog.text


def test_the_made_up_table_of_a_city_is_read_and_learned(tmp_path: Path) -> None:
    truth = messy_table(tmp_path / "city.csv", 300, num_labels=100)
    run("fit", tmp_path / "city.csv", "--label", LABEL)
    model = JLGCNClassifier.load(tmp_path / "city-model")
    kinds = {column.name: type(column).__name__[:4] for column in model.encoder_.columns_}
    assert kinds == {
        **dict.fromkeys(("Bezirk", "urgent"), "Cate"),
        **dict.fromkeys(("street", "object", "reporter", "comment"), "Text"),
        "reported": "Date",
        "cost (€)": "Numb",
        "country": "Drop",
        "checked by": "Drop",
    }
    assert (model.transduction_ == truth)[100:].mean() > 0.7
    assert sum(file.stat().st_size for file in (tmp_path / "city-model").iterdir()) < 20e6


def test_without_a_place_for_the_model_one_must_be_named(tmp_path: Path) -> None:
    shown = run("fit", "s3://bucket/items", "--label", "kind", "--engine", "local", code=2).output
    assert "pass --out" in shown
