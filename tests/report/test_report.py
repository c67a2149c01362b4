"""The report of small runs of everything: every table, every figure, the page, the documents."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jlgcn.cli import app
from jlgcn.recipes import RECIPES, ClaimExperiment, CloudExperiment, run_seed
from jlgcn.recipes.claim_experiment import BASELINES
from jlgcn.report import renewed, summarize, write_report
from jlgcn.report.tables import percent, with_interval
from jlgcn.train.result import read_records, record
from tests.recipes.short import short

runner = CliRunner()

#: Our claims are many and of one kind; two of them stand for all.
SHOWN = {
    name: recipe
    for name, recipe in RECIPES.items()
    if not name.startswith("claims/") or name in ("claims/given/cora", "claims/nograph/cora")
}

# The authors' metric begins so small that a graph is complete; recipes follow them.
pytestmark = pytest.mark.filterwarnings("ignore:the learned graph is")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of two seeds of every variant, after two epochs on a small graph.

    They are recorded with the configuration of the real ones, or no table would know them.
    """
    folder = tmp_path_factory.mktemp("report")
    runs, found = folder / "runs", folder / "results"
    for recipe in SHOWN.values():
        for variant in recipe.variants:
            real = variant.experiment
            experiment, data = short(real)
            for seed in range(2):
                result = run_seed(
                    experiment, seed, recipe=recipe.name, variant=variant.name, out=runs, data=data
                )
                path = next(
                    path
                    for path in runs.rglob(f"seed-{seed}/result.json")
                    if json.loads(path.read_text()) == result
                )
                path.write_text(json.dumps(result | {"configuration": real.configuration()}))
    record(runs, found)
    return found


@pytest.fixture(scope="module")
def written(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("written")
    return write_report(summarize(read_records(results)), results, out).parent


def test_every_recipe_has_its_table_and_figure(written: Path) -> None:
    for name in SHOWN:
        stem = name.replace("/", "-")
        table = (written / f"{stem}.md").read_text()
        for variant in SHOWN[name].variants:
            assert f"| {variant.name} |" in table
        kind = {"learned-graph": "-graphs", "cloud-weights": "-weights"}.get(name.split("/")[1], "")
        for suffix in (".png", ".svg"):
            assert (written / f"{stem}{kind}{suffix}").stat().st_size > 5000
    assert (written / "citation-cora-curves.svg").exists()
    with (written / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    variants = [variant for recipe in SHOWN.values() for variant in recipe.variants]
    of_clouds = sum(isinstance(variant.experiment, CloudExperiment) for variant in variants)
    of_claims = sum(isinstance(variant.experiment, ClaimExperiment) for variant in variants)
    num_claims = sum(name.startswith("claims/") for name in SHOWN)
    # Nodes by both protocols; claims by ours, and all but the best compared with it; clouds
    # overall, by class, and with five shares of points missing.
    assert len(rows) == 2 * (len(variants) - of_clouds) - num_claims + 7 * of_clouds
    assert of_claims > 2 * num_claims


def test_networks_for_clouds_are_weighed(results: Path, written: Path) -> None:
    header, _, *lines = (written / "clouds-modelnet10.md").read_text().splitlines()
    place = header.split(" | ").index("MB")
    bytes_of = {
        line["variant"]: line["model_bytes"]
        for line in read_records(results)
        if line["recipe"] == "clouds/modelnet10"
    }
    for line in lines:
        variant = line.strip("| ").split(" | ")[0]
        assert float(line.split(" | ")[place]) == round(bytes_of.pop(variant) / 1e6, 1) > 0
    assert not bytes_of


def test_claims_stand_beside_what_others_reach_and_what_their_parts_add(
    results: Path, written: Path
) -> None:
    header, _, *lines = (written / "claims.md").read_text().splitlines()
    columns = ("claim", "jlgcn", "published", "run beside it", "ahead of it")
    assert header == f"| {' | '.join((*columns, 'graph adds', 'metric adds'))} |"
    assert [line.split(" | ")[0] for line in lines] == ["| given/cora", "| nograph/cora"]
    rows = summarize(read_records(results))
    found = {
        (row["recipe"], row["variant"], row["metric"]): row
        for row in rows
        if row["recipe"].startswith("claims/")
    }
    for line, without in zip(lines, ("given only", "logistic regression"), strict=True):
        name, ours, published, beside, ahead, graph, metric = line.strip("| ").split(" | ")
        assert ours == with_interval(found[f"claims/{name}", "best", "test_accuracy"])
        assert published == {"given/cora": "85.5 (GCNII)"}.get(name, "73.7 (HES-GSL)")
        others = (variant.name for variant in SHOWN[f"claims/{name}"].variants)
        closest = min(
            (other for other in others if other in BASELINES),
            key=lambda other: found[f"claims/{name}", other, "best_ahead_by"]["mean"],
        )
        reached = percent(found[f"claims/{name}", closest, "test_accuracy"]["mean"])
        assert beside == f"{reached} ({closest})"
        assert ahead == with_interval(found[f"claims/{name}", closest, "best_ahead_by"])
        assert graph == with_interval(found[f"claims/{name}", without, "best_ahead_by"])
        assert metric == with_interval(found[f"claims/{name}", "plain knn", "best_ahead_by"])


def test_everything_that_was_run_beside_a_claim_stands_in_one_table(
    results: Path, written: Path
) -> None:
    header, _, *lines = (written / "claims-beside.md").read_text().splitlines()
    names = header.strip("| ").split(" | ")
    assert names == ["claim", "jlgcn", *BASELINES]
    assert [line.split(" | ")[0] for line in lines] == ["| given/cora", "| nograph/cora"]
    found = {
        (row["recipe"], row["variant"]): row
        for row in summarize(read_records(results))
        if row["metric"] == "test_accuracy"
    }
    for line in lines:
        claim, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        for name, cell in zip(("best", *BASELINES), cells, strict=True):
            row = found.get((f"claims/{claim}", name))
            assert cell == ("" if row is None else f"{percent(row['mean'])} ({row['seeds']})")
        assert cells[0]


def test_a_claim_is_measured_against_its_controls(results: Path, written: Path) -> None:
    header, _, *lines = (written / "claims-controls.md").read_text().splitlines()
    controls = {
        "over learned graph alone": "learned only",
        "over random metrics": "random metric",
        "over shuffled graphs": "shuffled graph",
    }
    assert header.strip("| ").split(" | ") == ["claim", *controls]
    found = {
        (row["recipe"], row["variant"]): row
        for row in summarize(read_records(results))
        if row["metric"] == "best_ahead_by"
    }
    num_filled = 0
    for line in lines:
        claim, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        for name, cell in zip(controls.values(), cells, strict=True):
            assert cell == with_interval(found.get((f"claims/{claim}", name)))
            num_filled += bool(cell)
    assert num_filled == 5  # without a graph, the learned one alone is what is claimed


def test_the_page_is_whole_and_needs_nothing_else(written: Path) -> None:
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
    assert text.count("<svg ") == 25
    for recipe in SHOWN.values():
        assert recipe.place in text


def test_the_same_records_give_the_same_files(results: Path, written: Path, tmp_path: Path) -> None:
    write_report(summarize(read_records(results)), results, tmp_path)
    for path in written.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name


def test_marked_numbers_are_renewed_and_checked(results: Path, tmp_path: Path) -> None:
    document = tmp_path / "document.md"
    document.write_text(
        "Cora: 12.3<!-- citation/cora | jlgcn | authors -->.\n\n"
        "<!-- jlgcn report: ablation/graphs -->\nold\n<!-- jlgcn report end -->\n\nEnd.\n"
    )
    check = ["report", "--results", str(results), "--check", "--document", str(document)]
    done = runner.invoke(app, check)
    assert done.exit_code == 1
    assert "document.md: - Cora: 12.3" in done.output
    assert "jlgcn report --renew" in done.output
    renew = ["report", "--results", str(results), "--renew", "--document", str(document)]
    assert runner.invoke(app, renew).exit_code == 0
    assert runner.invoke(app, check).exit_code == 0
    text = document.read_text()
    assert "12.3" not in text
    assert "old" not in text
    assert "| single graph | 83.4 |" in text
    assert text.startswith("Cora: ")
    assert text.endswith("\n\nEnd.\n")
    document.write_text(text.replace("| single graph | 83.4 |", "| single graph | 83.5 |"))
    assert runner.invoke(app, check).exit_code == 1
    lines = text.splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith("| single graph |"))
    lines[place], lines[place + 1] = lines[place + 1], lines[place]  # the same lines, in disorder
    document.write_text("\n".join(lines) + "\n")
    assert runner.invoke(app, check).exit_code == 1


def test_a_mark_without_a_record_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no record of citation/cora \| jlgcn \| honest"):
        renewed("1.0<!-- citation/cora | jlgcn | honest -->", [])
    with pytest.raises(ValueError, match="no records of 'citation/cora'"):
        renewed("<!-- jlgcn report: citation/cora -->\n<!-- jlgcn report end -->", [])


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_every_format_has_every_row(results: Path, form: str) -> None:
    done = runner.invoke(app, ["report", "--results", str(results), "--format", form])
    assert done.exit_code == 0
    assert done.output.count("robustness/edges") == 2 * 18


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
