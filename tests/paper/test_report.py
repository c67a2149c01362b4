"""The report of small runs: every table, every figure, the page."""

from __future__ import annotations

import base64
import csv
import hashlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from jlgcn.cli import app
from jlgcn.paper import CloudExperiment, run_seed, write_report
from jlgcn.paper.recipe import Recipe
from jlgcn.paper.recipes import RECIPES
from jlgcn.paper.records import read_records, record
from jlgcn.paper.summary import summarize
from tests.paper.short import EACH_KIND, record_short_runs, short

runner = CliRunner()

# The authors' metric begins so small that a graph is complete; recipes follow them.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:the learned graph is"),
]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(EACH_KIND, id="each kind"),
        pytest.param(tuple(RECIPES), id="all recipes", marks=pytest.mark.nightly),
    ],
)
def shown(request: pytest.FixtureRequest) -> dict[str, Recipe[Any]]:
    return {name: RECIPES[name] for name in request.param}


@pytest.fixture(scope="module")
def results(shown: dict[str, Recipe[Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_short_runs(tmp_path_factory.mktemp("report"), shown.values(), short)


@pytest.fixture(scope="module")
def written(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("written")
    return write_report(summarize(read_records(results)), results, out).parent


def test_every_recipe_has_its_table_and_figure(
    shown: dict[str, Recipe[Any]], written: Path
) -> None:
    for name in shown:
        stem = name.replace("/", "-")
        table = (written / f"{stem}.md").read_text()
        for variant in shown[name].variants:
            assert f"| {variant.name} |" in table
        kind = {"learned-graph": "-graphs", "cloud-weights": "-weights"}.get(name.split("/")[1], "")
        for suffix in (".png", ".svg"):
            assert (written / f"{stem}{kind}{suffix}").stat().st_size > 5000
    assert (written / "citation-cora-curves.svg").exists()
    with (written / "results.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["recipe"] in shown]
    variants = [variant for recipe in shown.values() for variant in recipe.variants]
    of_clouds = sum(isinstance(variant.experiment, CloudExperiment) for variant in variants)
    # Nodes by both protocols; clouds overall, by class, and with five shares of points missing.
    assert len(rows) == 2 * (len(variants) - of_clouds) + 7 * of_clouds


def test_networks_for_clouds_are_weighed(results: Path, written: Path) -> None:
    header, _, *lines = (written / "clouds-shapes69.md").read_text().splitlines()
    place = header.split(" | ").index("MB")
    bytes_of = {
        line["variant"]: line["model_bytes"]
        for line in read_records(results)
        if line["recipe"] == "clouds/shapes69"
    }
    for line in lines:
        variant = line.strip("| ").split(" | ")[0]
        assert float(line.split(" | ")[place]) == round(bytes_of.pop(variant) / 1e6, 1) > 0
    assert not bytes_of


def test_the_page_is_whole_and_needs_nothing_else(
    shown: dict[str, Recipe[Any]], written: Path
) -> None:
    text = (written / "index.html").read_text()
    ids: list[str] = []
    targets: list[str] = []
    policies: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            assert tag not in ("link", "iframe", "form", "base")
            if "http-equiv" in dict(attributes):
                policies.append(str(dict(attributes)["content"]))
            for name, value in attributes:
                assert not name.startswith("on")
                if name == "id" and value is not None:
                    ids.append(value)
                if name in ("src", "href", "xlink:href") and value is not None:
                    targets.append(value)

    Reader().feed(text)
    script = text[text.rindex("<script>") + len("<script>") : text.rindex("</script>")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policies[0].split("; ") == [
        *("default-src 'none'", "base-uri 'none'", "form-action 'none'"),
        *("style-src 'unsafe-inline'", f"script-src 'sha256-{digest}'", "img-src data:"),
    ]
    assert len(policies) == 1
    assert len(ids) == len(set(ids)), "two figures use the same name"
    for target in targets:
        assert target.startswith("data:") or target.removeprefix("#") in ids, target
    figures = list(written.glob("*.svg"))
    assert text.count("<svg ") == len(figures) >= len(shown)
    for recipe in shown.values():
        assert recipe.place in text


@pytest.mark.nightly
def test_the_same_records_give_the_same_files(results: Path, written: Path, tmp_path: Path) -> None:
    write_report(summarize(read_records(results)), results, tmp_path)
    for path in written.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_every_format_has_every_row(results: Path, form: str) -> None:
    done = runner.invoke(app, ["paper", "report", "--results", str(results), "--format", form])
    assert done.exit_code == 0
    assert done.output.count("citation/cora") == 2 * len(RECIPES["citation/cora"].variants)


def test_a_recipe_whose_settings_were_changed_has_no_table(tmp_path: Path) -> None:
    experiment, data = short(RECIPES["citation/pubmed"].variant("jlgcn").experiment)
    run_seed(
        experiment, 0, recipe="citation/pubmed", variant="jlgcn epochs=2", out=tmp_path, data=data
    )
    record(tmp_path, tmp_path / "results")
    rows = summarize(read_records(tmp_path / "results"))
    assert {row["variant"] for row in rows} == {"jlgcn epochs=2"}
    write_report(rows, tmp_path / "results", tmp_path / "report")
    assert not list((tmp_path / "report").glob("citation-*"))
