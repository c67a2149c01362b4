"""The page of a model: its numbers are the estimator's, and nothing on it runs but our script."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from jinja2 import UndefinedError
from sklearn.datasets import load_digits, load_wine
from sklearn.metrics import accuracy_score, f1_score
from torch.nn import functional
from typer.testing import CliRunner, Result

import jlgcn
from jlgcn import JLGCNClassifier, compare
from jlgcn._stats import mean_and_interval
from jlgcn.cli import app
from jlgcn.errors import OneClassWarning
from jlgcn.estimator.document import TableNames
from jlgcn.estimator.solvers import FittedModel, fit_model
from jlgcn.paper import load_planetoid
from jlgcn.report import write_model_page
from jlgcn.report.doubts import doubts
from jlgcn.report.graph_view import choose_rows, class_colors, graph_view, learned_and_given
from jlgcn.report.held_out import HeldOut, best_rival, held_out
from jlgcn.report.model_page import _confusion
from jlgcn.report.render import render
from tests.real_data import DATA, needs_data

runner = CliRunner()
HOSTILE = "</script><script>alert(1)</script>"
VOID = {"meta", "input"}


class Page(HTMLParser):
    """A page, read strictly: every element that opens closes, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    @property
    def view(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.scripts[0])
        return found


def wine(num_labels: int = 40) -> tuple[np.ndarray, np.ndarray, list[str]]:
    data = load_wine()
    few = np.full(178, -1)
    known = np.random.default_rng(0).choice(178, num_labels, replace=False)
    few[known] = data.target[known]
    return data.data, few, list(data.feature_names)


@pytest.fixture(scope="module")
def model() -> JLGCNClassifier:
    x, few, _ = wine()
    row = np.arange(0, 170, 2)
    return JLGCNClassifier(n_layers=2).fit(x, few, np.array([[*row, *row + 3], [*row + 3, *row]]))


@pytest.fixture(scope="module")
def page(model: JLGCNClassifier, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "new" / "wine.html"
    ids = [f"wine-{i}" for i in range(178)]
    write_model_page(model, path, name="wines", ids=ids, feature_names=wine()[2])
    return path.read_text(encoding="utf-8")


def test_the_page_is_whole_and_refers_to_nothing_outside(page: str) -> None:
    read = Page(page)
    for tag, attributes in read.elements:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base"), tag
        assert not {"src", "href", "srcset", "action"} & set(attributes), tag
        assert not [name for name in attributes if name.startswith("on")], tag
    assert "http:" not in page
    assert "https:" not in page
    assert "url(" not in page
    assert "@import" not in page


def test_the_page_may_run_its_own_script_only(page: str) -> None:
    read = Page(page)
    _, own = read.scripts
    policy = next(a["content"] for _, a in read.elements if "http-equiv" in a)
    digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
    assert policy is not None
    assert set(policy.split("; ")) == {
        *("default-src 'none'", "base-uri 'none'", "form-action 'none'"),
        *("style-src 'unsafe-inline'", f"script-src 'sha256-{digest}'"),
    }
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", own)


def test_the_head_says_what_was_learned(page: str, model: JLGCNClassifier) -> None:
    text = Page(page).text
    assert "Predicts the class of 178 rows from 40 labels of 3 classes." in text
    assert f"by jlgcn {jlgcn.__version__}." in text
    for fact in ("rows 178", "features 13", "classes 3", "labels 40", "given edges 85"):
        assert fact in text
    assert f"n_neighbors {model.best_params_['n_neighbors']} selected by cross-validation" in text
    assert " ".join(f"{entry['loss']:.3f}" for entry in model.history_) in text


@pytest.mark.slow
def test_scores_are_those_of_fits_that_never_saw_the_labels(model: JLGCNClassifier) -> None:
    x, few, _ = wine()
    scores = held_out(model, folds=5)
    assert scores is not None
    assert scores.num_folds == 5
    known = np.flatnonzero(few != -1)
    given = model.model_.candidates.given
    # The same again, through the estimator: hide a part, fit, look.
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    order = order[torch.from_numpy(few[known])[order].argsort(stable=True)]
    for fold in range(5):
        hidden = order[fold::5].numpy()
        shown = few.copy()
        shown[known[hidden]] = -1
        again = JLGCNClassifier(n_layers=2).fit(x, shown, given)
        expected = again.label_distributions_[known[hidden]]
        assert np.allclose(scores.probability[hidden], expected, atol=1e-9)


@pytest.mark.slow
def test_the_pages_scores_are_right(page: str, model: JLGCNClassifier) -> None:
    scores = held_out(model)
    assert scores is not None
    guess = scores.probability.argmax(-1)
    text = Page(page).text
    assert f"accuracy {100 * accuracy_score(scores.label, guess):.1f} %" in text
    assert f"macro-F1 {100 * f1_score(scores.label, guess, average='macro'):.1f} %" in text
    assert f"calibration error {100 * scores.calibration_error:.1f} %" in text
    low, high = proportion_interval(int((scores.label == guess).sum()), 40)
    assert f"95 %: {100 * low:.1f} to {100 * high:.1f}" in text
    assert "The 95 % interval of the accuracy is a Wilson score interval, which" in text


def proportion_interval(right: int, number: int) -> tuple[float, float]:
    """Solve (share - p)² = z² p (1 - p) / number, which is how Wilson defines his interval."""
    z2, share = 1.959964**2 / number, right / number
    low, high = np.sort(np.roots([1 + z2, -2 * share - z2, share**2]))
    return float(low), float(high)


@pytest.mark.parametrize(("right", "number"), [(15, 15), (14, 15), (0, 3), (500, 900)])
def test_the_interval_of_the_accuracy_is_wilsons(right: int, number: int) -> None:
    label = (np.arange(number) >= right).astype(np.int64)
    scores = HeldOut(label, np.tile([0.9, 0.1], (number, 1)), 5, np.arange(number))
    assert scores.accuracy_interval == pytest.approx(proportion_interval(right, number), abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("folds", "said"), [(5, "8"), (3, "13 or 14")])
def test_the_page_says_how_many_labels_were_hidden_from_each_fit(
    model: JLGCNClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folds: int, said: str
) -> None:
    hidden = []

    def fit(parameters: Any, x: Any, y: Any, graph: Any, train: Any, **options: Any) -> FittedModel:  # noqa: ANN401
        hidden.append(40 - len(train))
        return fit_model(parameters, x, y, graph, train, **options)

    # By its name in sys.modules: the package has a function of the same name.
    monkeypatch.setattr(sys.modules["jlgcn.report.held_out"], "fit_model", fit)
    write_model_page(model, tmp_path / "page.html", folds=folds)
    assert len(hidden) == folds
    assert " or ".join(str(number) for number in sorted(set(hidden))) == said
    text = Page((tmp_path / "page.html").read_text()).text
    assert f"Stratified {folds}-fold cross-validation: in each fold {said} of the 40" in text


def test_the_page_says_that_the_fit_itself_held_labels_out(
    model: JLGCNClassifier, tmp_path: Path
) -> None:
    write_model_page(model, tmp_path / "page.html", folds=0)
    text = Page((tmp_path / "page.html").read_text()).text
    assert "Cross-validation within the fit: each of 40 labels was predicted by" in text
    assert "Stratified" not in text


def test_labels_held_out_within_the_fit_have_the_evidence_of_the_model(
    model: JLGCNClassifier,
) -> None:
    scores = held_out(model, folds=0)
    assert scores is not None
    loss = functional.nll_loss(
        torch.from_numpy(scores.probability).log(), torch.from_numpy(scores.label)
    )
    alone, gain, _ = model.model_.evidence.without_graph
    assert float(loss) == pytest.approx(alone - gain, rel=1e-6)


def test_the_calibration_error_of_known_answers() -> None:
    # Nine of ten right where 0.9 is said; none of two where 0.6 is said.
    label = np.array([0] * 9 + [1] + [1, 1])
    sure = np.array([0.9] * 10 + [0.6] * 2)
    scores = HeldOut(label, np.stack([sure, 1 - sure], 1), 5, np.arange(12))
    assert np.allclose(scores.bins(), [(2, 0.6, 0.0), (10, 0.9, 0.9)])
    assert scores.calibration_error == pytest.approx(2 / 12 * 0.6)
    assert scores.accuracy == 0.75


@pytest.mark.slow
def test_a_class_with_one_label_and_a_model_with_one_label_have_their_page(tmp_path: Path) -> None:
    x, few, _ = wine()
    few[np.flatnonzero(few == 2)[1:]] = -1
    path = tmp_path / "page.html"
    scores = write_model_page(JLGCNClassifier(n_layers=1).fit(x, few), path)
    assert scores is not None
    assert scores.predicted[scores.label == 2].tolist() != [2]
    assert "1 of the classes has a single label" in Page(path.read_text()).text
    few[np.flatnonzero(few != -1)[1:]] = -1
    with pytest.warns(OneClassWarning):
        model = JLGCNClassifier(n_layers=1).fit(x, few)
    assert write_model_page(model, path) is None
    assert "There are too few labels to hold any out" in Page(path.read_text()).text


@pytest.mark.slow
def test_the_best_rival_has_seen_none_of_the_labels_it_predicts(model: JLGCNClassifier) -> None:
    scores = held_out(model, folds=5)
    assert scores is not None
    assert scores.rows.tolist() == np.flatnonzero(wine()[1] != -1).tolist()
    name, accuracy = best_rival(model, scores)
    assert accuracy > 0.9
    # The same folds with labels that say nothing: no method may be good, unless it saw them.
    lost = copy.copy(model)
    lost.model_ = replace(model.model_, labels=model.model_.labels[torch.randperm(40)])
    labels = lost.model_.labels.numpy()
    _, accuracy = best_rival(lost, replace(scores, label=labels))
    assert accuracy < 0.7, name


def test_what_to_check_is_listed_by_name(tmp_path: Path) -> None:
    x, few, names = wine(60)
    row = np.arange(0, 170, 2)
    edges = np.array([[*row, *row + 3], [*row + 3, *row]])
    wrong = int(np.flatnonzero(few == 0)[0])
    few[wrong] = 2
    model = JLGCNClassifier(n_layers=2).fit(x, few, edges)
    ids = [f"wine-{i}" for i in range(178)]
    scores = write_model_page(model, tmp_path / "page.html", ids=ids, feature_names=names, folds=0)
    lists = {each.name: each for each in doubts(model, scores, model.audit(), ids, names)}
    assert [*lists] == [
        *("doubtful labels", "suspicious edges", "missing edges", "rows to label next")
    ]
    assert lists["doubtful labels"].rows[0][:2] == (f"wine-{wrong}", "2")
    table = model.audit(ids).suspicious
    found = lists["suspicious edges"].rows
    assert [row[:2] for row in found] == list(zip(table.source, table.target, strict=True))[:20]
    assert any(name in found[0][3] for name in names)
    assert [row[0] for row in lists["rows to label next"].rows] == [
        ids[i] for i in model.suggest_labels(20)
    ]
    text = Page((tmp_path / "page.html").read_text()).text
    for each in lists.values():
        assert " ".join(each.rows[0]) in text
    write_model_page(model, tmp_path / "page.html", folds=0, audits=False)
    text = Page((tmp_path / "page.html").read_text()).text
    assert "Suspicious and missing edges are not listed on this page: jlgcn audit MODEL" in text


def test_the_confusion_matrix_counts_every_label_once(model: JLGCNClassifier) -> None:
    label = np.arange(30) % 3
    predicted = np.where(np.arange(30) < 6, (label + 1) % 3, label)
    scores = HeldOut(label, np.eye(3)[predicted], 5, np.arange(30))
    found = _confusion(model, scores, np.bincount(label))
    assert found["names"] == ["0", "1", "2"]
    assert [[cell for cell, _, _ in cells] for _, cells in found["rows"]] == [
        ["8", "2", "0"],
        ["0", "8", "2"],
        ["2", "0", "8"],
    ]


def test_features_are_those_of_the_estimator(page: str, model: JLGCNClassifier) -> None:
    text, names = Page(page).text, wine()[2]
    found = model.important_features()
    whole = sum(value for _, value in found)
    for name, value in found:
        assert f"{names[int(name[1:])]} {100 * value / whole:.1f} %" in text
    assert "These columns decide which rows count as alike." in text


def test_edges_are_explained_as_the_estimator_does(page: str, model: JLGCNClassifier) -> None:
    view, names = Page(page).view, wine()[2]
    edge = view["edge"]
    learned = model.learned_graph().to_dense()
    for place in range(0, len(edge["first"]), 29):
        i, j = edge["first"][place], edge["second"][place]
        found = model.explain_edge(i, j)
        assert edge["distance"][place] == pytest.approx(found.squared_distance, rel=1e-3)
        assert edge["learned"][place] == pytest.approx(float(learned[i, j]), rel=1e-2)
        top = found.features.abs().argsort(descending=True)[:6].tolist()
        shown = [(view["features"][k], value) for k, value in edge["top"][place]]
        assert [name for name, _ in shown] == [names[k] for k in top]
        for (_, value), k in zip(shown, top, strict=True):
            assert value == pytest.approx(float(found.features[k]), rel=1e-2)


def test_given_edges_are_kept_apart_from_learned_ones(model: JLGCNClassifier) -> None:
    learned, given = learned_and_given(model)
    fitted = model.model_
    total = fitted.graph.to_dense().numpy() - np.eye(178)
    both = (learned * fitted.learned_scale + given).toarray()
    assert np.abs(total - both).max() < 1e-6
    assert fitted.candidates.given is not None
    known = fitted.candidates.given.to_dense().numpy() > 0
    assert (given.toarray()[~known] == 0).all()


def test_rows_are_drawn_with_their_classes_and_probabilities(
    page: str, model: JLGCNClassifier
) -> None:
    row = Page(page).view["row"]
    assert row["id"] == [f"wine-{i}" for i in range(178)]
    assert model.classes_[row["class"]].tolist() == model.transduction_.tolist()
    assert np.allclose(row["probability"], model.label_distributions_.max(-1), rtol=1e-2)
    assert row["label"] == wine()[1].tolist()
    assert max(np.abs(row["x"]).max(), np.abs(row["y"]).max()) <= 1.05


@pytest.mark.slow
def test_a_map_of_digits_keeps_classes_together() -> None:
    x, y = load_digits(return_X_y=True)
    x, y = x[:600], y[:600]
    few = np.where(np.arange(600) < 100, y, -1)
    model = JLGCNClassifier(scaler="none", n_layers=2).fit(x, few)
    view = graph_view(model, [str(i) for i in range(600)], [str(k) for k in range(64)])
    places = np.stack([view["row"]["x"], view["row"]["y"]], 1)
    distance = np.square(places[:, None] - places[None]).sum(-1) + 9 * np.eye(600)
    assert (y[distance.argmin(-1)] == y).mean() > 0.9


def test_of_many_rows_labelled_ones_and_their_neighbours_are_drawn() -> None:
    ring = scipy.sparse.diags_array(np.ones(99), offsets=1, shape=(100, 100))
    ring = scipy.sparse.csr_array(ring + ring.T)
    chosen = choose_rows(ring, np.array([20, 70]), 10)
    assert chosen.tolist() == [*range(18, 23), *range(68, 73)]
    alone = scipy.sparse.csr_array((100, 100))
    assert len(choose_rows(alone, np.array([20, 70]), 10)) == 10
    assert choose_rows(ring, np.array([20]), 100).tolist() == list(range(100))


def test_classes_beyond_the_colours_are_gray() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(60) % 12
    model = JLGCNClassifier(n_layers=1).fit(rng.normal(size=(60, 3)) + y[:, None], y)
    colors = class_colors(model)
    assert colors.count("#8a8f96") == 2
    assert len(set(colors)) == 11


@pytest.mark.slow
def test_of_many_classes_fifty_are_listed(tmp_path: Path) -> None:
    y = np.arange(1200) % 60
    x = np.random.default_rng(0).normal(size=(1200, 3)) + y[:, None]
    model = JLGCNClassifier(n_layers=1, n_neighbors=10).fit(x, y)
    write_model_page(model, tmp_path / "page.html", folds=0)
    read = Page((tmp_path / "page.html").read_text())
    assert "On the 1,200 labels" in read.text
    assert "10 classes with fewer labels are not listed." in read.text
    assert "All 1,200 rows are drawn." in read.text
    assert "50 other classes" in read.text


def test_names_that_are_markup_stay_text(tmp_path: Path) -> None:
    x, few, _ = wine()
    names = np.array([HOSTILE, "<img src=x onerror=alert(1)>", '"&<!--<script>', ""], dtype=object)
    model = JLGCNClassifier(n_layers=1).fit(x, names[few])
    path = tmp_path / "page.html"
    ids = [f"{HOSTILE}{i}" for i in range(178)]
    features = [f'<b>{k}</b>" onmouseover="alert(1)' for k in range(13)]
    write_model_page(model, path, name=HOSTILE, ids=ids, feature_names=features, folds=0)
    text = path.read_text()
    read = Page(text)
    assert len(read.scripts) == 2
    assert {tag for tag, _ in read.elements}.isdisjoint({"img", "b"})
    assert not [1 for _, attributes in read.elements if "onmouseover" in attributes]
    assert read.view["row"]["id"] == ids
    assert sorted(read.view["classes"]) == sorted(names[:3])
    assert "<script>alert" not in text
    assert "<!--" not in text
    assert HOSTILE in read.text


def test_markup_in_any_string_of_a_model_is_shown_as_text(tmp_path: Path) -> None:
    x, few, _ = wine()
    refresh = '<meta http-equiv=refresh content="0;url=//evil.example">'
    form = "<form action=//evil.example><button>'\"&amp;\u2028</button></form>"
    names = np.array([refresh, form, HOSTILE, ""], dtype=object)
    model = JLGCNClassifier(n_layers=1).fit(x, names[few])
    neighbors: Any = refresh + form + HOSTILE
    model.model_ = replace(
        model.model_, options=replace(model.model_.options, n_neighbors=neighbors)
    )
    ids = [f"{text}{i}" for i in range(60) for text in names[:3]][:178]
    features = [f"{text}{k}" for k in range(5) for text in names[:3]][:13]
    path = tmp_path / "page.html"
    write_model_page(model, path, name=form, ids=ids, feature_names=features, folds=0)
    read = Page(path.read_text(encoding="utf-8"))
    assert "form" not in {tag for tag, _ in read.elements}
    metas = [attributes for tag, attributes in read.elements if tag == "meta"]
    assert [a["http-equiv"] for a in metas if "http-equiv" in a] == ["Content-Security-Policy"]
    assert len(read.scripts) == 2
    for text in (neighbors, *names[:3], *features):
        assert " ".join(text.split()) in read.text
    assert read.view["row"]["id"] == ids
    assert set(read.view["features"]) <= set(features)
    assert not set("<>&\u2028") & set(read.scripts[0])


def test_a_template_that_asks_for_what_is_not_there_is_refused() -> None:
    with pytest.raises(UndefinedError, match="'title' is undefined"):
        render("layout.html", styles=["page.css"], script="graph_view.js")


def test_a_page_takes_the_place_of_a_link_and_leaves_its_target_alone(
    model: JLGCNClassifier, tmp_path: Path
) -> None:
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "page.html").symlink_to(tmp_path / "mine")
    write_model_page(model, tmp_path / "page.html", folds=0)
    assert (tmp_path / "mine").read_text() == "precious"
    assert not (tmp_path / "page.html").is_symlink()
    assert Page((tmp_path / "page.html").read_text()).text.startswith("model")


@pytest.mark.nightly
def test_whether_the_graph_helps_is_said_where_it_is_asked_for(tmp_path: Path, page: str) -> None:
    assert "jlgcn report MODEL --compare" in Page(page).text
    x, few, _ = wine()
    model = JLGCNClassifier(n_layers=1, n_neighbors=10, max_iter=2).fit(x, few)
    write_model_page(model, tmp_path / "page.html", folds=0, compares=True)
    text = Page((tmp_path / "page.html").read_text()).text
    # The stored features are the scaled ones.
    estimator = JLGCNClassifier(n_layers=1, n_neighbors=10, max_iter=2)
    expected = compare(x, few, estimator=estimator)
    assert expected.advice in text
    # What was hidden, and the intervals from which the advice follows.
    hidden = ~np.isnan(expected.right["learned graph"])
    assert hidden.sum(1).tolist() == [8] * 10
    assert "In each of 10 random splits, stratified by class, 8 of the 40 labels were" in text
    for line in str(expected).splitlines()[1:-1]:
        name, mean, interval, balanced, loss = re.split(r"  +| (?=\()", line)
        assert f"{name} {mean} % {interval.strip('()')} {balanced} % {loss}" in text
    by_label = expected.interval("logistic regression")
    by_split = mean_and_interval(expected.accuracy["logistic regression"])
    assert by_label["low"] < by_split["low"]


def test_names_that_do_not_fit_are_refused(model: JLGCNClassifier, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    with pytest.raises(ValueError, match="ids must have 178 names, but it has 2"):
        write_model_page(model, path, ids=["a", "b"])
    with pytest.raises(ValueError, match="feature_names must have 13 names, but it has 1"):
        write_model_page(model, path, feature_names=["a"])
    with pytest.raises(ValueError, match="folds must be 2 or more, or 0 for the held-out"):
        write_model_page(model, path, folds=1)
    assert not path.exists()


def run(*arguments: object, code: int = 0) -> Result:
    result = runner.invoke(app, ["report", *(str(argument) for argument in arguments)])
    assert result.exit_code == code, result.output
    return result


def said(result: Result) -> str:
    return " ".join(result.output.replace("│", " ").split())


def test_the_command_writes_the_page_with_the_tables_names(
    model: JLGCNClassifier, tmp_path: Path
) -> None:
    folder = tmp_path / "wines"
    model.save(folder)
    output = run(folder, "--folds", 0).output
    low, high = held_out(model, folds=0).accuracy_interval  # type: ignore[union-attr]
    assert f"on 40 held-out labels (95 % interval {100 * low:.1f} to {100 * high:.1f})" in output
    page = tmp_path / "wines-report.html"
    assert f"written: {page}" in output
    assert Page(page.read_text()).view["row"]["id"][:2] == ["0", "1"]
    named = copy.copy(model)
    named.table_ = TableNames([f"w{i}" for i in range(178)], "wine", "grape", [], wine()[2])
    named.save(folder)
    run(folder, "--folds", 0, "--out", tmp_path / "else" / "page.html")
    read = Page((tmp_path / "else" / "page.html").read_text())
    assert read.view["row"]["id"] == named.table_.ids
    assert "proline" in read.text
    assert read.text.startswith("wines")
    named.save(tmp_path / "cellar-model")
    run(tmp_path / "cellar-model", "--folds", 0)
    text = (tmp_path / "cellar-model-report.html").read_text()
    assert Page(text).text.startswith("grape in cellar ")


@pytest.mark.parametrize("named", ["wines", "wines/", "./wines", ".", "../wines"])
def test_the_command_writes_next_to_a_strangers_model_and_follows_none_of_its_links(
    model: JLGCNClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    folder = tmp_path / "wines"
    model.save(folder)
    (tmp_path / "mine").write_text("precious")
    for link in (folder / "report.html", tmp_path / "wines-report.html"):
        link.symlink_to(tmp_path / "mine")
    before = {path: path.lstat().st_mtime_ns for path in folder.iterdir()}
    monkeypatch.chdir(folder if named in (".", "../wines") else tmp_path)
    run(named, "--folds", 0)
    assert (tmp_path / "mine").read_text() == "precious"
    assert {path: path.lstat().st_mtime_ns for path in folder.iterdir()} == before
    assert Page((tmp_path / "wines-report.html").read_text()).text.startswith("wines")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "mine",
        "wines",
        "wines-report.html",
    ]


def test_the_command_says_what_is_wrong(model: JLGCNClassifier, tmp_path: Path) -> None:
    folder = tmp_path / "wines"
    assert "there is no folder" in run(folder, code=2).output
    folder.mkdir()
    assert "holds no model: model.json is missing" in run(folder, code=2).output
    model.save(folder)
    text = said(run(folder, "--out", tmp_path / "page", code=2))
    assert "--out must be a file that ends with .html" in text
    assert "folds must be 2 or more" in said(run(folder, "--folds", 1, code=2))


@pytest.mark.nightly
@needs_data
def test_cora_has_its_page(tmp_path: Path) -> None:
    data = load_planetoid("cora", DATA)
    few = np.full(len(data.y), -1)
    few[data.train] = data.y.numpy()[data.train]
    x = scipy.sparse.csr_matrix(data.x.numpy())
    model = JLGCNClassifier(n_neighbors=10, learned_degree=1.0, given_decay=0.5, n_layers=2)
    model.fit(x, few, data.edge_index.numpy())
    path = tmp_path / "cora.html"
    scores = write_model_page(model, path, folds=0)
    assert scores is not None
    assert scores.accuracy > 0.75
    read = Page(path.read_text())
    assert "Of 2,708 rows 2,000 are drawn" in read.text
    assert path.stat().st_size < 4e6
    view = read.view
    drawn = [int(name) for name in view["row"]["id"]]
    assert set(data.train.tolist()) <= set(drawn)
    edge = view["edge"]
    for place in range(0, len(edge["first"]), 997):
        found = model.explain_edge(drawn[edge["first"][place]], drawn[edge["second"][place]])
        assert edge["distance"][place] == pytest.approx(found.squared_distance, rel=1e-3)


@pytest.fixture(scope="module")
def network() -> JLGCNClassifier:
    """Return a network of wines with forty labels and a few given edges."""
    x, few, _ = wine()
    graph = np.array([[0, 1, 60, 61], [1, 0, 61, 60]])
    return JLGCNClassifier(solver="gradient", max_iter=20).fit(x, few, graph)


def test_the_page_of_a_network_says_how_it_was_trained(
    network: JLGCNClassifier, tmp_path: Path
) -> None:
    scores = write_model_page(network, tmp_path / "page.html", folds=2)
    assert scores is not None
    assert scores.num_folds == 2
    assert len(scores.label) == 40
    text = Page((tmp_path / "page.html").read_text()).text
    epoch = network.best_params_["epoch"] + 1
    for words in (
        "solver gradient the network of Tang et al. (2019)",
        "preset authors",
        f"epochs 20 epoch {epoch} selected",
        "graphs dense",
        f"Epoch {epoch} of 20, the dashed line, has the highest validation accuracy",
        "squared distance of two rows in the first layer",
    ):
        assert words in " ".join(text.split()), words
    assert "leave-one-out log-loss" not in text
    assert "restart" not in text


def test_edges_of_a_networks_page_are_explained_by_columns(network: JLGCNClassifier) -> None:
    names = [f"f{k}" for k in range(13)]
    view = graph_view(network, [str(i) for i in range(178)], names)
    assert set(view["features"]) <= set(names)
    edge = view["edge"]
    i, j = edge["first"][0], edge["second"][0]
    found = network.explain_edge(i, j)
    assert edge["distance"][0] == pytest.approx(found.squared_distance, rel=1e-3)
    assert max(edge["given"]) == 1


def test_without_folds_a_networks_validation_labels_are_scored(network: JLGCNClassifier) -> None:
    found = held_out(network, folds=0)
    assert found is not None
    assert len(found.label) == len(network.model_.validation)
    best = network.history_[network.best_params_["epoch"]]
    assert found.accuracy == pytest.approx(best["val_accuracy"])
    assert found.protocol.startswith("Validation: the network was trained without these 8 labels")


def test_a_network_without_held_out_labels_has_no_scores_without_folds() -> None:
    x, y = load_wine(return_X_y=True)
    few = np.full(178, -1)
    few[[0, 60, 150]] = y[[0, 60, 150]]
    with pytest.warns(UserWarning, match="no class has two labels"):
        model = JLGCNClassifier(solver="gradient", max_iter=2).fit(x, few)
    assert held_out(model, folds=0) is None
