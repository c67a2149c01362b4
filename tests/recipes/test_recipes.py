from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jlgcn.cli import app
from jlgcn.nn.options import Preset
from jlgcn.recipes import RECIPES, get_recipe, run_seed, with_settings
from jlgcn.recipes.citation import load
from tests.data.real import DATA, needs_data

runner = CliRunner()


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("preset", ["paper", "authors"])
def test_every_recipe_names_its_place_and_what_is_open(name: str, preset: Preset) -> None:
    recipe = get_recipe(name, preset)
    assert recipe.name == name
    assert recipe.preset == preset
    assert "Table" in recipe.place
    assert recipe.left_open
    json.dumps(recipe.configuration())


def test_the_settings_that_the_paper_states() -> None:
    recipe = get_recipe("citation/cora", "paper")
    train = recipe.train
    assert (recipe.num_layers, recipe.hidden_channels, recipe.rank, recipe.dropout) == (
        2,
        16,
        16,
        0.5,
    )
    assert (train.epochs, train.lr, train.lr_step, train.lr_decay) == (500, 0.1, 100, 0.5)
    assert (train.weight_decay, train.glr_weight) == (5e-4, 1e-4)


def test_settings_are_read_by_their_type() -> None:
    recipe = with_settings(
        get_recipe("citation/cora"),
        {"rank": "none", "epochs": "7", "lr": "1e-2", "protocol": "authors", "glr_probes": "none"},
    )
    assert recipe.rank is None
    assert (recipe.train.epochs, recipe.train.lr, recipe.train.glr_probes) == (7, 0.01, None)
    assert recipe.protocol == "authors"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epoch": "3"}, "there is no setting 'epoch'; did you mean 'epochs'"),
        ({"epochs": "many"}, "epochs must be int, but it is 'many'"),
        ({"rank": "x"}, "rank must be int or none"),
        ({"backend": "dense"}, "backend must be one of auto, exact, knn, but it is 'dense'"),
        ({"trace_test": "true"}, "there is no setting 'trace_test'"),
        ({"published": "99"}, "there is no setting 'published'"),
    ],
)
def test_wrong_settings_are_refused_with_a_remedy(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        with_settings(get_recipe("citation/cora"), settings)


def test_an_unknown_recipe_is_refused() -> None:
    with pytest.raises(ValueError, match="no recipe 'cora'; recipes are citation/cora"):
        get_recipe("cora")


@needs_data
def test_what_a_recipe_removes_depends_on_the_seed() -> None:
    recipe = with_settings(
        get_recipe("citation/cora"), {"edges_missing": "0.5", "labels_missing": "0.75"}
    )
    first, second = load(recipe, 0, DATA), load(recipe, 1, DATA)
    assert first.edge_index.shape == (2, 5278)
    assert len(first.train) == 35
    assert first.edge_index.tolist() != second.edge_index.tolist()


@needs_data
@pytest.mark.parametrize("preset", ["paper", "authors"])
def test_two_epochs_on_cora(tmp_path: Path, preset: Preset) -> None:
    recipe = with_settings(
        get_recipe("citation/cora", preset), {"epochs": "2", "protocol": "authors"}
    )
    result = run_seed(recipe, 3, out=tmp_path, root=DATA)
    assert result["seed"] == 3
    assert result["recipe"] == "citation/cora"
    assert result["best_test_accuracy"] >= result["test_accuracy"]
    assert run_seed(recipe, 3, out=tmp_path, root=DATA) == result  # not run again
    (history,) = tmp_path.rglob("history.csv")
    assert len(history.read_text().splitlines()) == 3


@needs_data
def test_run_record_and_report_on_the_command_line(tmp_path: Path) -> None:
    runs, results = str(tmp_path / "runs"), str(tmp_path / "results")
    settings = ["--set", "epochs=1", "--out", runs, "--data", str(DATA)]
    done = runner.invoke(app, ["run", "citation/cora", "--seeds", "2", *settings])
    assert done.exit_code == 0, done.output
    assert "seed 1: validation" in done.output
    assert "best test epoch" not in done.output
    assert runner.invoke(app, ["record", "--runs", runs, "--results", results]).exit_code == 0
    table = runner.invoke(app, ["report", "--results", results]).output
    assert "| citation/cora | epochs=1 | honest |" in table
    (row,) = json.loads(
        runner.invoke(app, ["report", "--results", results, "--format", "json"]).output
    )
    assert set(row) == {
        *("recipe", "variant", "protocol", "metric", "mean", "low", "high", "seeds", "published")
    }


@needs_data
def test_an_interrupted_run_asks_for_resume(tmp_path: Path) -> None:
    recipe = with_settings(get_recipe("citation/cora"), {"epochs": "1"})
    run_seed(recipe, 0, out=tmp_path, root=DATA)
    (result,) = tmp_path.rglob("result.json")
    result.unlink()
    with pytest.raises(FileExistsError, match="add --resume to go on from them"):
        run_seed(recipe, 0, out=tmp_path, root=DATA)
    assert run_seed(recipe, 0, out=tmp_path, root=DATA, resume=True)["best_epoch"] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["run", "citation/cora", "--data", "nowhere"],
            "planetoid/ind.cora.x is not there",
        ),
        (["run", "citation/cor"], "there is no recipe 'citation/cor'"),
        (["run", "citation/cora", "--set", "epochs"], "write for example epochs=3"),
        (["show", "citation/cora", "--set", "epoch=3"], "did you mean 'epochs'"),
        (["record", "--runs", "nowhere"], "no finished runs below nowhere"),
    ],
)
def test_messages_say_what_to_do(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = runner.invoke(app, arguments)
    assert done.exit_code != 0
    assert message in " ".join(done.output.replace("│", " ").split())


def test_list_and_show() -> None:
    listed = runner.invoke(app, ["list"]).output
    assert all(name in listed for name in RECIPES)
    shown = runner.invoke(app, ["show", "citation/citeseer", "--preset", "paper"]).output
    assert "lr_decay = 0.5" in shown
    assert "published: 73.7" in shown
