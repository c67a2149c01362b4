from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from jlgcn.cli import app
from jlgcn.nn import JLGCN
from jlgcn.paper import NodeExperiment, get_recipe, run_seed
from jlgcn.paper.experiment import Experiment, with_settings
from jlgcn.paper.node_experiment import load, make_model
from jlgcn.paper.recipe import Recipe, Variant
from jlgcn.paper.recipes import RECIPES, experiment_key
from jlgcn.paper.records import read_curves, read_kept, record
from jlgcn.training import TrainConfig
from tests.paper.short import EACH_KIND, short
from tests.processes import run_processes
from tests.real_data import DATA, needs_data
from tests.training.small import small_data

runner = CliRunner()

#: The authors' metric begins so small that all nodes are alike, and the learner says so.
begins_complete = pytest.mark.filterwarnings("ignore:the learned graph is complete")


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=lambda recipe: recipe.name)
def test_every_recipe_names_its_place_and_what_is_open(recipe: Recipe[Any]) -> None:
    assert any(word in recipe.place for word in ("Table", "figure", "table"))
    assert recipe.left_open
    assert len({variant.name for variant in recipe.variants}) == len(recipe.variants)
    assert recipe.chosen()
    json.dumps([variant.experiment.configuration() for variant in recipe.variants])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "variant"),
    [
        pytest.param(name, variant.name, marks=() if name in EACH_KIND else pytest.mark.nightly)
        for name, recipe in RECIPES.items()
        for variant in recipe.variants
    ],
)
@begins_complete
def test_every_variant_runs_two_epochs_on_a_small_graph(
    tmp_path: Path, recipe: str, variant: str
) -> None:
    experiment, data = short(get_recipe(recipe).variant(variant).experiment)
    result = run_seed(experiment, 1, recipe=recipe, variant=variant, out=tmp_path, data=data)
    assert 0 <= result["test_accuracy"] <= (result["best_test_accuracy"] or 1) <= 1
    assert (result["recipe"], result["variant"], result["seed"]) == (recipe, variant, 1)


def test_the_settings_that_the_paper_states() -> None:
    experiment = get_recipe("citation/cora").variant("jlgcn, text").experiment
    train = experiment.train
    assert experiment.preset == "paper"
    assert (experiment.num_layers, experiment.hidden_channels) == (2, 16)
    assert (experiment.rank, experiment.dropout) == (16, 0.5)
    assert (train.epochs, train.lr, train.lr_step, train.lr_decay) == (500, 0.1, 100, 0.5)
    assert (train.weight_decay, train.glr_weight) == (5e-4, 1e-4)


def test_without_edges_metrics_begin_as_the_identity() -> None:
    experiment = get_recipe("robustness/edges").variant("jlgcn 1").experiment
    assert (experiment.rank, experiment.metric_init) == (None, "identity")
    model = make_model(experiment, 6, 2)
    assert isinstance(model, JLGCN)
    for learner in model.learners:
        assert torch.equal(learner.metric.weight, torch.eye(learner.in_channels))


def test_a_fixed_metric_is_not_trained() -> None:
    experiment = get_recipe("ablation/graphs").variant("gcn + euclidean").experiment
    model = make_model(experiment, 6, 2)
    assert isinstance(model, JLGCN)
    (learner,) = model.learners
    assert not learner.metric.weight.requires_grad


def test_an_experiment_in_several_tables_is_run_once(tmp_path: Path) -> None:
    places = (("citation/cora", "jlgcn"), ("robustness/edges", "jlgcn 0"))
    results = []
    for recipe, variant in places:
        experiment = get_recipe(recipe).variant(variant).experiment
        experiment = replace(experiment, train=replace(experiment.train, epochs=1))
        results.append(
            run_seed(experiment, 0, recipe=recipe, variant=variant, out=tmp_path, data=small_data())
        )
    assert results[0] == results[1]
    assert len(list(tmp_path.rglob("result.json"))) == 1


def test_the_graphs_of_the_figure_are_kept_and_recorded(tmp_path: Path) -> None:
    recipe = get_recipe("figures/learned-graph")
    experiment = with_settings(recipe.variants[0].experiment, {"epochs": "11", "keep_graphs": "5"})
    run_seed(
        experiment,
        0,
        recipe=recipe.name,
        variant="jlgcn",
        out=tmp_path / "runs",
        data=small_data(),
    )
    record(tmp_path / "runs", tmp_path / "results")
    graphs = read_kept(tmp_path / "results/figures/learned-graph.graphs.json")["jlgcn"]
    assert list(graphs) == ["given", "layer 1", "layer 2"]
    weights = torch.tensor(graphs["layer 2"])
    assert weights.shape == (5, 5)
    assert torch.allclose(weights, weights.T, rtol=2e-3)
    (rows,) = read_curves(tmp_path / "results/figures/learned-graph.curves.csv").values()
    assert [row["epoch"] for row in rows] == [0, 10]


def test_settings_are_read_by_their_type() -> None:
    settings = {"rank": "none", "epochs": "7", "lr": "1e-2", "glr_probes": "none"}
    settings |= {"protocol": "authors", "train_metric": "false"}
    experiment = with_settings(NodeExperiment(), settings)
    train = experiment.train
    assert experiment.rank is None
    assert (train.epochs, train.lr, train.glr_probes) == (7, 0.01, None)
    assert experiment.protocol == "authors"
    assert experiment.train_metric is False


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epoch": "3"}, "there is no setting 'epoch'; did you mean 'epochs'"),
        ({"epochs": "many"}, "epochs must be int, but it is 'many'"),
        ({"rank": "x"}, "rank must be int or none"),
        ({"backend": "fast"}, "backend must be one of auto, exact, knn, dense, but it is 'fast'"),
        ({"train_metric": "maybe"}, "train_metric must be bool, but it is 'maybe'"),
        ({"trace_test": "true"}, "there is no setting 'trace_test'"),
        ({"published": "99"}, "there is no setting 'published'"),
    ],
)
def test_wrong_settings_are_refused_with_a_remedy(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        with_settings(NodeExperiment(), settings)


def test_an_unknown_recipe_is_refused() -> None:
    with pytest.raises(ValueError, match="no recipe 'cora'; recipes are citation/cora"):
        get_recipe("cora")


@needs_data
def test_what_is_removed_depends_on_the_seed() -> None:
    experiment = NodeExperiment(edges_missing=0.5, labels_missing=0.75)
    first, second = load(experiment, 0, DATA), load(experiment, 1, DATA)
    assert first.edge_index.shape == (2, 5278)
    assert len(first.train) == 35
    assert first.edge_index.tolist() != second.edge_index.tolist()


@needs_data
@begins_complete
def test_one_epoch_on_cora(tmp_path: Path) -> None:
    experiment = NodeExperiment(train=TrainConfig(epochs=1))
    place: dict[str, Any] = {"recipe": "citation/cora", "variant": "jlgcn", "out": tmp_path}
    result = run_seed(experiment, 3, root=DATA, **place)
    assert result["best_test_accuracy"] is None
    assert run_seed(experiment, 3, root=DATA, **place) == result  # not run again
    (history,) = tmp_path.rglob("history.csv")
    assert len(history.read_text().splitlines()) == 2


@pytest.mark.nightly
@needs_data
@begins_complete
def test_two_processes_run_a_recipe_together(tmp_path: Path) -> None:
    command = [
        "jlgcn",
        "paper",
        "run",
        "citation/cora",
        "--data",
        str(DATA),
        "--out",
        str(tmp_path),
    ]
    for setting in ("epochs=2", "dropout=0", "glr_weight=0"):
        command += ["--set", setting]
    printed = run_processes(2, *command, "--threads", "1")
    assert printed.count("citation/cora jlgcn") == 1  # the first process speaks
    (path,) = tmp_path.rglob("result.json")
    together = json.loads(path.read_text())
    assert together["processes"] == 2
    settings = {"epochs": "2", "dropout": "0", "glr_weight": "0"}
    experiment = with_settings(get_recipe("citation/cora").variant("jlgcn").experiment, settings)
    place: dict[str, Any] = {"recipe": "citation/cora", "variant": "jlgcn", "out": tmp_path / "one"}
    alone = run_seed(experiment, 0, root=DATA, **place)
    assert together["val_accuracy"] == pytest.approx(alone["val_accuracy"], abs=0.01)


@pytest.mark.slow
@needs_data
@begins_complete
def test_run_record_and_report_on_the_command_line(tmp_path: Path) -> None:
    runs, results = str(tmp_path / "runs"), str(tmp_path / "results")
    settings = ["--set", "epochs=1", "--out", runs, "--data", str(DATA)]
    done = runner.invoke(app, ["paper", "run", "citation/cora", "--seeds", "2", *settings])
    assert done.exit_code == 0, done.output
    assert "seed 1: validation" in done.output
    assert "best test epoch" not in done.output
    assert (
        runner.invoke(app, ["paper", "record", "--runs", runs, "--results", results]).exit_code == 0
    )
    table = runner.invoke(app, ["paper", "report", "--results", results]).output
    assert "| citation/cora | jlgcn epochs=1 | honest | test_accuracy |" in table
    (row,) = json.loads(
        runner.invoke(app, ["paper", "report", "--results", results, "--format", "json"]).output
    )
    assert set(row) == {
        *("recipe", "variant", "protocol", "metric", "mean", "low", "high", "seeds"),
        *("published", "model_bytes"),
    }


def test_an_interrupted_run_asks_for_resume(tmp_path: Path) -> None:
    experiment = NodeExperiment(train=TrainConfig(epochs=1))
    place: dict[str, Any] = {"recipe": "a/b", "variant": "c", "out": tmp_path, "data": small_data()}
    run_seed(experiment, 0, **place)
    (result,) = tmp_path.rglob("result.json")
    result.unlink()
    with pytest.raises(FileExistsError, match="add --resume to resume from them"):
        run_seed(experiment, 0, **place)
    assert run_seed(experiment, 0, resume=True, **place)["best_epoch"] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["run", "citation/cora", "--data", "nowhere"],
            "planetoid/ind.cora.x does not exist",
        ),
        (["run", "citation/cor"], "there is no recipe 'citation/cor'"),
        (["run", "citation/cora", "--set", "epochs"], "write for example epochs=3"),
        (["show", "citation/cora", "--set", "epoch=3"], "did you mean 'epochs'"),
        (["run", "citation/cora", "--variant", "x"], "variants are 'jlgcn', 'jlgcn, text'"),
        (["record", "--runs", "nowhere"], "no finished runs below nowhere"),
        (
            ["report", "--results", "nowhere"],
            "no records below nowhere; train with: jlgcn paper run RECIPE",
        ),
    ],
)
def test_messages_say_what_to_do(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = runner.invoke(app, ["paper", *arguments])
    assert done.exit_code != 0
    assert message in " ".join(done.output.replace("│", " ").split())


def test_list_and_show() -> None:
    listed = runner.invoke(app, ["paper", "list"]).output
    assert all(name in listed for name in RECIPES)
    shown = runner.invoke(
        app, ["paper", "show", "citation/citeseer", "--variant", "jlgcn, text"]
    ).output
    assert "lr_decay = 0.5" in shown
    assert "jlgcn, published 73.7" in shown


def test_a_variant_holds_an_experiment_whose_key_is_its_own() -> None:
    recipe = get_recipe("citation/cora")
    assert all(isinstance(variant, Variant) for variant in recipe.variants)
    assert all(isinstance(variant.experiment, Experiment) for variant in recipe.variants)
    keys = {experiment_key(variant.experiment.configuration()) for variant in recipe.variants}
    assert len(keys) == len(recipe.variants)
    traced = recipe.variant("jlgcn").experiment.configuration() | {"protocol": "authors"}
    assert experiment_key(traced) in keys  # how it is reported does not count


def test_the_list_names_every_recipe() -> None:
    done = runner.invoke(app, ["paper", "list"])
    assert [line.split()[0] for line in done.output.splitlines()[:-1]] == list(RECIPES)


def test_a_key_stays_the_same_when_training_gets_a_new_setting() -> None:
    for task in ("nodes", "clouds", "claims"):
        configuration = {"task": task, "dataset": "cora", "train": {"epochs": 3}}
        low = configuration | {"train": {"epochs": 3, "precision": "bfloat16"}}
        same = configuration | {"train": {"epochs": 3, "precision": "float32"}}
        assert experiment_key(same) == experiment_key(configuration) != experiment_key(low)
