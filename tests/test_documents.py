"""Documents tell the truth: code runs, links lead somewhere, numbers are measured."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from evaluation.documents import differences
from evaluation.summary import summarize
from jlgcn.paper.records import read_records
from tests.run_readme import run_blocks

ROOT = Path(__file__).parent.parent
DOCUMENTS = [path for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")) if path.is_file()]


def cases() -> dict[str, dict[str, float]]:
    path = ROOT / "results" / "benchmarks" / "exact_graph.json"
    found: dict[str, dict[str, float]] = json.loads(path.read_text())["results"]["cases"]
    return found


def test_the_readme_runs_as_written() -> None:
    assert run_blocks((ROOT / "README.md").read_text()) == 3


def test_a_wrong_output_is_noticed() -> None:
    with pytest.raises(SystemExit, match="instead of"):
        run_blocks("```python\nprint(1)\n```\n\n```text\n2\n```\n")


@pytest.mark.parametrize(
    ("row", "case"),
    [
        ("the matrix written out in PyTorch", "dense"),
        ("**`KernelGraph`**", "flash"),
        ("bare attention of the same size, the yardstick", "attention"),
    ],
)
def test_the_readmes_figures_are_the_measured_ones(row: str, case: str) -> None:
    line = next(
        line
        for line in (ROOT / "README.md").read_text().splitlines()
        if line.startswith(f"| {row}")
    )
    seconds, peak = (cell.strip(" *") for cell in line.split("|")[2:4])
    measured = cases()[case]
    assert seconds == f"{measured['forward_backward_seconds']:.2f} s"
    assert peak == f"{measured['peak_bytes'] / 2**20:,.0f} MiB"


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return summarize(read_records(ROOT / "results"))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_marked_numbers_are_the_recorded_ones(path: Path, rows: list[dict[str, Any]]) -> None:
    assert differences(path.read_text(), rows) == []


def test_the_readmes_epoch_of_pubmed_is_the_recorded_one() -> None:
    text = (ROOT / "README.md").read_text()
    lines = read_records(ROOT / "results" / "citation")
    (pubmed,) = (line for line in lines if line["variant"] == "jlgcn epochs=3")
    epochs = pubmed["configuration"]["train"]["epochs"]
    seconds, peak = pubmed["seconds"] / epochs, pubmed["peak_bytes"] / 2**30
    assert f"{seconds:.1f} s an epoch on two threads, peak {peak:.2f} GiB" in text
    assert pubmed["threads"] == 2
    own = ("citation/pubmed", "jlgcn")
    whole = [line for line in lines if (line["recipe"], line["variant"]) == own]
    epoch = {
        line["threads"]: line["seconds"] / line["configuration"]["train"]["epochs"]
        for line in whole
    }
    highest = max(line["peak_bytes"] for line in whole) / 2**30
    said = f"work {epoch[2]:.1f} s, and {epoch[1]:.1f} s on one thread, to {highest:.2f} GiB"
    assert said in " ".join(text.split())


def test_the_readmes_step_on_clouds_is_the_measured_one() -> None:
    found = json.loads((ROOT / "results/benchmarks/clouds.json").read_text())
    assert (found["settings"]["clouds"], found["settings"]["points"]) == (32, 1024)
    ours, theirs = (found["results"]["cases"][case] for case in ("jlgcn, exact", "dgcnn"))
    text = " ".join((ROOT / "README.md").read_text().split())
    speed = ours["clouds_per_second"] / theirs["clouds_per_second"]
    assert f"takes {ours['peak_bytes'] / 2**20:,.0f} MiB; it is {speed:.1f} times" in text


def test_the_readmes_audit_is_the_measured_one() -> None:
    lines = (ROOT / "results/studies/graph_audit.jsonl").read_text().splitlines()
    key = {"task": "suspicious", "data": "metattack", "share": 0.1}
    found = [line for line in map(json.loads, lines) if key.items() <= line.items()]
    auc = {line["method"]: line["auc"] for line in found}
    text = " ".join((ROOT / "README.md").read_text().split())
    assert f"with AUC {auc['audit']:.2f}; Jaccard similarity" in text
    assert f"defence, has {auc['jaccard']:.2f}" in text


def test_what_a_graph_without_a_metric_does_on_clouds_is_the_measured_one() -> None:
    lines = (ROOT / "results/studies/cloud_start.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    (found,) = (r for r in rows if r["trial"]["distance"] == 0 and len(r["history"]) == 20)
    text = " ".join((ROOT / "docs/reproduction.md").read_text().split())
    best = max(epoch["val_accuracy"] for epoch in found["history"])
    assert f"reaches {100 * best:.1f} % of the validation clouds of 69 classes" in text
    three, nine = (100 * found["val_accuracy_missing"][share] for share in ("0.75", "0.9"))
    assert f"{three:.1f} % and {nine:.1f} % of the validation clouds with 0.75 and 0.9" in text
    runs = map(json.loads, (ROOT / "results/clouds/shapes69.jsonl").read_text().splitlines())
    first = {run["variant"]: 100 * run["val_accuracy"] for run in runs if run["seed"] == 0}
    between = f"between the {first['knn-gcn']:.1f} % on 20 neighbours"
    assert f"{between} and the {first['jlgcn']:.1f} % with learned metrics" in text


def test_the_readmes_epoch_is_the_measured_one() -> None:
    path = ROOT / "results/benchmarks/epoch.json"
    epoch = json.loads(path.read_text())["results"]["cases"]
    memory = epoch["plain"]["peak_bytes"] / epoch["jlgcn"]["peak_bytes"]
    claim = f"{epoch['jlgcn']['epoch_ratio']:.2f} times as long and 1/{memory:.0f} of the memory"
    assert claim in (ROOT / "README.md").read_text()


def test_the_readmes_denormal_numbers_are_the_measured_ones() -> None:
    found = json.loads((ROOT / "results/benchmarks/denormals.json").read_text())["results"]
    assert round(found["ratio"]) == 8
    text = (ROOT / "README.md").read_text()
    assert "a product take eight times as long" in text
    assert f"{found['ratio']:.1f} times as long" in (ROOT / "docs/decisions.md").read_text()


def test_the_committed_figures_are_those_that_were_asked_for() -> None:
    assert cases()["flash"]["forward_backward_ratio"] <= 1.2
    exact = json.loads((ROOT / "results/benchmarks/exact_graph.json").read_text())
    assert exact["settings"]["nodes"] == 19717
    assert exact["results"]["layer_memory"]["nodes"] == [4000, 8000, 16000, 32000]
    assert exact["results"]["layer_memory"]["exponent"] <= 1.1
    knn = json.loads((ROOT / "results/benchmarks/knn_graph.json").read_text())
    assert knn["settings"]["nodes"] == 100_000
    assert knn["results"]["build"]["ratio"] <= 1.3
    assert knn["results"]["product"]["ratio"] <= 1.5


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_within_the_project_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text()):
        if not target.startswith("http"):
            assert (path.parent / target).exists(), target


def test_the_files_that_answer_a_newcomers_questions_are_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text[text.index("Twelve questions") : text.index("Imports point one way")]
    questions = [line for line in table.splitlines() if "?" in line]
    assert len(questions) == 12
    for question in questions:
        files = re.findall(r"`([a-z_0-9]+/[a-z_0-9]+\.py)`", question)
        assert files
        for file in files:
            assert (ROOT / "src/jlgcn" / file).is_file(), file
