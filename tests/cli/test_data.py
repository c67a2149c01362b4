from __future__ import annotations

import csv
from pathlib import Path

import networkx
import numpy as np
import pytest
from sklearn.datasets import load_wine
from typer.testing import CliRunner, Result

from jlgcn import JLGCNClassifier
from jlgcn.cli import app

runner = CliRunner()
GRAPES = ("barolo", "grignolino", "barbera")


def run(*arguments: object, code: int = 0) -> Result:
    result = runner.invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write(path: Path, rows: list[list[object]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wines as a table with thirty labels, ten wines that come later, edges, and a fitted model."""
    folder = tmp_path_factory.mktemp("wines")
    data = load_wine()
    order = np.random.default_rng(0).permutation(178)
    header = ["name", *data.feature_names, "grape"]
    rows: list[list[object]] = []
    for place, i in enumerate(order):
        label = GRAPES[data.target[i]] if place < 30 or place >= 168 else ""
        rows.append([f"wine-{i}", *data.data[i], label])
    write(folder / "wines.csv", [list(header), *rows[:168]])
    write(folder / "new.csv", [list(header), *rows[168:]])
    pairs: list[list[object]] = [
        [f"wine-{i}", f"wine-{j}"]
        for i in order[:168]
        for j in order[:168]
        if i < j < i + 3 and data.target[i] == data.target[j]
    ]
    write(folder / "edges.csv", [["a", "b"], *pairs, ["wine-0", "nobody"]])
    table = ("--id", "name", "--label", "grape", "--edges", folder / "edges.csv")
    run("fit", folder / "wines.csv", *table, "--out", folder / "model")
    return folder


def test_a_table_is_fitted_and_its_rows_predicted(folder: Path) -> None:
    lines = list(csv.reader(run("predict", folder / "model").output.splitlines()))
    assert lines[0] == ["name", "grape", "probability", "given"]
    truth = {f"wine-{i}": GRAPES[c] for i, c in enumerate(load_wine().target)}
    assert len(lines) == 169
    assert np.mean([truth[name] == grape for name, grape, *_ in lines[1:]]) > 0.93
    assert all(1 / 3 <= float(line[2]) <= 1 for line in lines[1:])
    assert [line[3] for line in lines[1:]] == 30 * ["true"] + 138 * ["false"]


def test_rows_of_fit_in_a_table_of_new_rows_are_pointed_out(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run("predict", folder / "model", folder / "new.csv")
    assert "the id of a row of fit" not in caplog.text
    run("predict", folder / "model", folder / "wines.csv")
    assert "168 of 168 rows in wines.csv have the id of a row of fit" in caplog.text
    assert "leave out TABLE for their predictions" in caplog.text


def test_unsure_predictions_are_left_empty_if_asked(folder: Path) -> None:
    new, out = folder / "new.csv", folder / "sure.csv"
    run("predict", folder / "model", new, "--out", out, "--reject", "0.05")
    for row in read(out):
        assert (row["grape"] == "") == (float(row["probability"]) < 0.95)
        assert row["best_guess"] in (row["grape"] or row["best_guess"], *GRAPES)
    assert {row["best_guess"] for row in read(out) if not row["grape"]} <= set(GRAPES)
    refused = run("predict", folder / "model", new, "--reject", "2", code=2)
    assert "reject must be at least 0 and below 1, but it is 2.0" in refused.output


def test_new_rows_are_predicted_with_and_without_edges(folder: Path) -> None:
    new = folder / "new.csv"
    known = write(folder / "across.csv", [["a", "b"], ["wine-1", "wine-0"], ["x", "wine-1"]])
    for more in ((), ("--edges", known)):
        out = folder / "classes.csv"
        result = run("predict", folder / "model", new, *more, "--out", out)
        assert "10 rows written" in result.output
        truth = {row["name"]: row["grape"] for row in read(new)}
        got = {row["name"]: row["grape"] for row in read(out)}
        assert sum(truth[name] == grape for name, grape in got.items()) >= 9


def test_weights_of_edges_to_new_rows_count(folder: Path) -> None:
    new, out = folder / "new.csv", folder / "weighted.csv"
    fitted = JLGCNClassifier.load(folder / "model")
    rows, old = read(new), [row["name"] for row in read(folder / "wines.csv")]
    known: list[list[object]] = [
        ["a", "b", "weight"],
        [rows[2]["name"], old[7], 9.0],
        [old[5], rows[3]["name"], 0.5],
    ]
    known.append([old[5], old[6], 3.0])  # not an edge of a new row
    edges = write(folder / "weighted_edges.csv", known)
    run("predict", folder / "model", new, "--edges", edges, "--out", out)
    x = [[float(row[name]) for name in fitted.table_.feature_names] for row in rows]  # type: ignore[union-attr]
    expected = fitted.predict_proba(x, (np.array([[2, 3], [7, 5]]), np.array([9.0, 0.5]))).max(-1)
    assert [float(row["probability"]) for row in read(out)] == pytest.approx(expected, abs=1e-4)


def test_edges_carry_the_tables_ids(folder: Path) -> None:
    import networkx

    path = folder / "graph.graphml"
    result = run("edges", folder / "model", "--top-k", 3, "--out", path)
    graph = networkx.read_graphml(path)
    model = JLGCNClassifier.load(folder / "model")
    edges = model.edges(top_k=3)
    assert f"{len(edges)} edges of 168 rows" in result.output
    assert graph.number_of_edges() == len(edges)
    ids = [row["name"] for row in read(folder / "wines.csv")]
    first = (ids[int(edges.source[0])], ids[int(edges.target[0])])
    assert graph.edges[first]["weight"] == pytest.approx(float(edges.weight[0]))


def test_an_edge_is_explained_by_the_tables_columns(folder: Path) -> None:
    ids = [row["name"] for row in read(folder / "wines.csv")]
    output = run("explain", folder / "model", ids[0], ids[1], "--top", 13).output
    assert output.startswith("weight ")
    assert "proline" in output
    shares = [float(line.split("(")[1].split("%")[0]) for line in output.splitlines()[1:]]
    assert sum(shares) == pytest.approx(100, abs=7)  # each is rounded
    result = run("explain", folder / "model", ids[0], "nobody", code=2)
    assert "has no row 'nobody'; rows are named by 'name', such as wine-" in result.output


def test_a_class_is_explained_by_rows_and_labels_are_asked_for(folder: Path) -> None:
    rows = read(folder / "wines.csv")
    name = rows[40]["name"]
    output = run("explain", folder / "model", name, "--top", 3).output
    grape = {
        line[0]: line[1] for line in csv.reader(run("predict", folder / "model").output.split())
    }
    assert output.startswith(grape[name])
    lines = output.splitlines()
    total = float(lines[0].split("score ")[1].split()[0])
    assert sum(float(line.split()[0]) for line in lines[1:5]) == pytest.approx(total, abs=0.1)
    assert "given edges" in lines[4]
    assert len(lines) == 9
    assert all(line.split()[0] in grape for line in lines[6:])
    result = run("explain", folder / "model", name, "--layer", 0, code=2)
    assert "needs a second row, J" in result.output
    suggested = run("suggest", folder / "model", "-n", 4).output.split()
    label = {row["name"]: row["grape"] for row in rows}
    assert [label[row] for row in suggested] == [""] * 4
    result = run("suggest", folder / "model", "-n", 139, code=2)
    assert "must be 1 to 138, the rows without a label" in result.output


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose ids, classes and features are formulas and steer a terminal."""
    folder = tmp_path_factory.mktemp("hostile")
    x = np.random.default_rng(0).normal(size=(20, 2))
    header: list[object] = ["=name\x1b[2J", "width\x1b[2J", "height", "@class\x1b[2J"]
    rows: list[list[object]] = [
        [name, *x[i] + 5 * (i % 2), "" if 4 <= i < 7 else ("+1\x1b[31m", "-1+1")[i % 2]]
        for i, name in enumerate([*HOSTILE, *range(7, 20)])
    ]
    table = write(folder / "table.csv", [header, *rows])
    run("fit", table, "--id", header[0], "--label", header[3], "--out", folder / "model")
    return folder


HOSTILE = ("=cmd|'/C calc'!A0", "'=1", "-2", "-2+3", "\x1b]0;gone\x07", "a\nb", "\u202eevil")


def test_predictions_hold_no_formulas_and_numbers_stay_numbers(hostile: Path) -> None:
    out = hostile / "classes.csv"
    run("predict", hostile / "model", "--out", out)
    with out.open(newline="") as file:
        (name, label, *_), *rows = csv.reader(file)
    assert (name, label) == ("'=name\x1b[2J", "'@class\x1b[2J")
    ids = ["'=cmd|'/C calc'!A0", "''=1", "-2", "'-2+3", *HOSTILE[4:]]
    assert [row[0] for row in rows] == [*ids, *map(str, range(7, 20))]
    assert {row[1] for row in rows} == {"'+1\x1b[31m", "'-1+1"}
    printed = list(csv.reader(run("predict", hostile / "model").output.splitlines()))
    assert [row[0] for row in printed[1:5]] == ids[:4]


def test_control_characters_of_names_do_not_reach_the_terminal(hostile: Path) -> None:
    model = hostile / "model"
    short = write(hostile / "short.csv", [["=name\x1b[2J", "height"], ["new", 1]])
    ragged = write(hostile / "ragged.csv", [["a", "b"], ["gone\x1b[2J"]])
    outputs = {
        "\\x1b]0;gone\\x07": run("predict", model).output,
        "a\\nb\n": run("suggest", model, "-n", 3).output,
        "width\\x1b[2J": run("explain", model, "7", "8").output,
        "+1\\x1b[31m: score": run("explain", model, "8", "--top", 20).output,
        "lacks the column 'width\\x1b[2J'": run("predict", model, short, code=2).output,
        "got 1: gone\\x1b[2J": run("predict", model, ragged, code=2).output,
    }
    for expected, output in outputs.items():
        assert expected in output
        assert not set(output) & {"\x1b", "\x07", "\u202e"}, output


def test_a_file_of_predictions_is_whole_or_not_there(hostile: Path, tmp_path: Path) -> None:
    output = run("predict", hostile / "model", "--out", tmp_path, code=2).output
    assert "is a folder and cannot be written; name a file" in output
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "classes.csv").symlink_to(tmp_path / "mine")
    run("predict", hostile / "model", "--out", tmp_path / "classes.csv")
    assert (tmp_path / "mine").read_text() == "precious"


@pytest.mark.slow
def test_whether_a_graph_helps_is_said_in_a_sentence(folder: Path) -> None:
    table = (folder / "wines.csv", "--id", "name", "--label", "grape", "--splits", 2)
    edges = ("--edges", folder / "edges.csv")
    output = run("compare", *table, *edges).output
    assert "both graphs" in output
    assert "logistic regression" in output
    assert output.splitlines()[-1].startswith(("Use ", "These labels cannot tell"))


def small(path: Path, labels: list[object]) -> Path:
    """Write forty rows of two clusters, with these labels in turn."""
    chance = np.random.default_rng(0)
    x = chance.normal(size=(40, 3)) + 4 * (np.arange(40) % 2)[:, None]
    rows = [[f"r{i}", *x[i], labels[i % len(labels)]] for i in range(40)]
    return write(path, [["name", "a", "b", "c", "kind"], *rows])


def fitted(table: Path, code: int = 0) -> Result:
    options = ("--id", "name", "--label", "kind", "--out", table.parent / "small-model")
    return run("fit", table, *options, code=code)


def test_labels_mean_in_a_file_what_they_mean_in_python(tmp_path: Path) -> None:
    for labels in (["0", "1", "-1", ""], ["0.0", "1.0", "-1.0", ""], ["x", "y", "-1", ""]):
        output = fitted(small(tmp_path / "table.csv", list(labels))).output
        assert "20 labels of 2 classes" in output, output
    for wrong, match in (
        (["-1", "1"], "-1 means unlabelled"),
        (["0.5", "2.5"], "Unknown label type: continuous"),
    ):
        assert match in " ".join(fitted(small(tmp_path / "t.csv", list(wrong)), 2).output.split())


@pytest.mark.parametrize("labels", [["x", ""], ["x", "-1", ""], ["2", "-1.0", ""]])
def test_labels_of_one_class_are_refused_and_nothing_is_written(
    tmp_path: Path, labels: list[object]
) -> None:
    output = fitted(small(tmp_path / "one.csv", labels), 2).output
    assert f"of one class, {labels[0]!r}, so there is nothing to learn" in output
    assert not (tmp_path / "small-model").exists()


def test_fit_says_where_predictions_of_its_rows_are(tmp_path: Path) -> None:
    output = fitted(small(tmp_path / "some.csv", ["x", "y", ""])).output
    model = tmp_path / "small-model"
    assert f'"jlgcn predict {model} --out classes.csv" (these rows)' in output
    assert '"jlgcn compare" tests this' in output
    output = fitted(small(tmp_path / "all.csv", ["x", "y"])).output
    assert "All 40 rows have a label: nothing is left to predict here" in output
    assert "these rows" not in output


def test_nan_in_a_parquet_file_is_no_label(tmp_path: Path) -> None:
    import pyarrow.csv
    import pyarrow.parquet

    path = small(tmp_path / "table.csv", ["0", "1", "nan", ""])
    columns = pyarrow.csv.read_csv(path).to_pydict()
    columns["kind"] = [0.0, 1.0, float("nan"), None] * 10
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "table.parquet")
    assert "20 labels of 2 classes" in fitted(tmp_path / "table.parquet").output


def test_fit_says_what_features_were_taken_for(folder: Path, tmp_path: Path) -> None:
    assert "(scaled as table)" in fitted(small(tmp_path / "table.csv", ["x", "y"])).output
    assert "embeddings" in run("fit", "--help").output


def test_what_is_wrong_with_a_file_is_said_in_a_line(folder: Path) -> None:
    wines, model = folder / "wines.csv", folder / "model"
    fit = ("--label", "grape", "--out", folder / "other")
    result = run("fit", wines, "--id", "name", "--label", "colour", "--out", folder / "o", code=2)
    assert "no column 'colour'" in result.output
    strangers = write(folder / "strangers.csv", [["a", "b"], ["x", "y"]])
    result = run("fit", wines, *fit, "--edges", strangers, code=2)
    assert "no edge in strangers.csv names two rows" in result.output
    header: list[object] = list(read(wines)[0])
    gap = write(folder / "gap.csv", [header, ["x", *13 * [""], ""]])
    result = run("predict", model, gap, code=2)
    assert "there are gaps: 13 numbers, the first in column 'alcohol' of row 'x'" in result.output
    narrow = write(folder / "narrow.csv", [["name", "alcohol"], ["x", 13.0]])
    output = run("predict", model, narrow, code=2).output
    assert "narrow.csv lacks the columns 'malic_acid', 'ash'" in output
    assert "there is no folder" in run("predict", folder / "nothing", code=2).output
    assert "the model comes first" in run("predict", wines, model, code=2).output
    (folder / "empty").mkdir()
    assert "model.json is missing" in run("predict", folder / "empty", code=2).output
    bare = write(folder / "bare.csv", [["name", "alcohol", "grape"]])
    assert "bare.csv has a header but no rows" in run("fit", bare, *fit, code=2).output
    fitted = JLGCNClassifier.load(model)
    fitted.table_ = None
    fitted.save(folder / "of numbers")
    assert 'fit it with "jlgcn fit"' in run("predict", folder / "of numbers", code=2).output


@pytest.fixture(scope="module")
def network(folder: Path) -> Path:
    """Fit a network to the wines."""
    table = ("--id", "name", "--label", "grape", "--edges", folder / "edges.csv")
    settings = ("--solver", "gradient", "--epochs", 30, "--hidden", 8, "--preset", "paper")
    output = run("fit", folder / "wines.csv", *table, *settings, "--out", folder / "net").output
    assert "network with dense graphs, epoch" in output
    assert "of 30 selected by 6 labels" in output
    return folder / "net"


def test_a_network_is_fitted_and_saved_with_its_settings(network: Path) -> None:
    model = JLGCNClassifier.load(network)
    assert model.solver == "gradient"
    assert (model.max_iter, model.hidden_channels, model.preset) == (30, 8, "paper")
    assert not model.verbose
    assert not model.model_.network.options.bias


def test_every_command_reads_a_network(folder: Path, network: Path, tmp_path: Path) -> None:
    assert (
        "10 rows written"
        in run("predict", network, folder / "new.csv", "--out", tmp_path / "new.csv").output
    )
    truth = {row["name"]: row["grape"] for row in read(folder / "new.csv")}
    got = {row["name"]: row["grape"] for row in read(tmp_path / "new.csv")}
    assert sum(truth[name] == grape for name, grape in got.items()) >= 8
    assert "edges of 168 rows" in run("edges", network, "--out", tmp_path / "g.csv").output
    assert len(run("suggest", network, "-n", 3).output.split()) == 3
    ids = [row["name"] for row in read(folder / "wines.csv")]
    assert "proline" in run("explain", network, ids[0], ids[1], "--top", 13).output
    hidden = run("explain", network, ids[0], ids[1], "--layer", 1, "--top", 2).output
    assert "hidden" in hidden
    run("report", network, "--folds", 0, "--out", tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size > 10_000


def test_a_networks_prediction_is_refused_an_explanation_in_a_line(
    folder: Path, network: Path
) -> None:
    name = read(folder / "wines.csv")[0]["name"]
    output = run("explain", network, name, code=2).output
    assert output.startswith("jlgcn: the class scores of a network are not a sum")
    assert "jlgcn explain MODEL I J" in output
    assert "Traceback" not in output


def test_settings_of_a_network_that_do_not_exist_are_refused_in_a_line(folder: Path) -> None:
    table = ("--id", "name", "--label", "grape", "--out", folder / "none")
    for option, match in (
        (("--solver", "sgd"), "solver must be one of closed_form, gradient"),
        (("--preset", "mine"), "preset must be one of"),
        (("--backend", "sparse"), "backend must be one of"),
    ):
        more = () if option[0] == "--solver" else ("--solver", "gradient")
        output = run("fit", folder / "wines.csv", *table, *more, *option, code=2).output
        assert match in output


def test_known_edges_are_audited_and_written(folder: Path) -> None:
    files = {kind: folder / f"{kind}.csv" for kind in ("suspicious", "missing")}
    cleaned = folder / "cleaned.graphml"
    options = [word for kind, path in files.items() for word in (f"--{kind}", path)]
    shown = run("audit", folder / "model", *options, "--cleaned", cleaned, "--top", 2)
    lines = shown.output.splitlines()
    known = read(files["suspicious"])
    assert f"{len(known)} known edges, of which about " in lines[0]
    assert lines[1] == "suspicious edges:"
    assert f"{known[0]['source']} - {known[0]['target']}" in lines[2]
    assert "common neighbour" in lines[2]
    assert list(known[0]) == ["source", "target", "score"]
    given = {frozenset((row["a"], row["b"])) for row in read(folder / "edges.csv")}
    ends = [{frozenset((row["source"], row["target"])) for row in read(files[k])} for k in files]
    assert ends[0] < given
    assert given.isdisjoint(ends[1])
    graph = networkx.read_graphml(cleaned)
    assert graph.number_of_edges() == len(known)
    assert all(weight == 1 for *_, weight in graph.edges(data="weight"))
