from __future__ import annotations

import importlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from typer.testing import CliRunner

from jlgcn.cli import app
from jlgcn.data import NodeData
from jlgcn.nn import JLGCN, ClosedFormOptions, fit_closed_form
from jlgcn.recipes import (
    RECIPES,
    ClaimExperiment,
    Experiment,
    NodeExperiment,
    Recipe,
    Variant,
    claim_experiment,
    experiment_key,
    get_recipe,
    run_seed,
    with_settings,
)
from jlgcn.recipes.claim_experiment import Baseline, Ours
from jlgcn.recipes.experiment import Where
from jlgcn.recipes.node_experiment import load, make_model
from jlgcn.recipes.sealed_test import seal
from jlgcn.train import TrainConfig
from jlgcn.train.result import config_hash, read_curves, read_kept, record
from tests.data.real import DATA, needs_data
from tests.processes import run_processes
from tests.recipes.short import short
from tests.train.small import small_data

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


@pytest.mark.parametrize(
    ("recipe", "variant"),
    [(recipe.name, variant.name) for recipe in RECIPES.values() for variant in recipe.variants],
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


@needs_data
@begins_complete
def test_two_processes_run_a_recipe_together(tmp_path: Path) -> None:
    command = ["jlgcn", "run", "citation/cora", "--data", str(DATA), "--out", str(tmp_path)]
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


@needs_data
@begins_complete
def test_run_record_and_report_on_the_command_line(tmp_path: Path) -> None:
    runs, results = str(tmp_path / "runs"), str(tmp_path / "results")
    settings = ["--set", "epochs=1", "--out", runs, "--data", str(DATA)]
    done = runner.invoke(app, ["run", "citation/cora", "--seeds", "2", *settings])
    assert done.exit_code == 0, done.output
    assert "seed 1: validation" in done.output
    assert "best test epoch" not in done.output
    assert runner.invoke(app, ["record", "--runs", runs, "--results", results]).exit_code == 0
    table = runner.invoke(app, ["report", "--results", results]).output
    assert "| citation/cora | jlgcn epochs=1 | honest | test_accuracy |" in table
    (row,) = json.loads(
        runner.invoke(app, ["report", "--results", results, "--format", "json"]).output
    )
    assert set(row) == {
        *("recipe", "variant", "protocol", "metric", "mean", "low", "high", "seeds"),
        *("published", "model_bytes"),
    }


def test_the_time_of_a_network_is_that_of_its_trials(tmp_path: Path) -> None:
    command = ["run", "claims/tables/wine", "--variant", "mlp", "--out", str(tmp_path)]
    for setting in ("develops=true", "num_trials=2", "epochs=3"):
        command += ["--set", setting]
    done = runner.invoke(app, command)
    assert done.exit_code == 0, done.output
    assert " s for 2 trials, peak" in done.output
    assert "an epoch" not in done.output


def test_an_interrupted_run_asks_for_resume(tmp_path: Path) -> None:
    experiment = NodeExperiment(train=TrainConfig(epochs=1))
    place: dict[str, Any] = {"recipe": "a/b", "variant": "c", "out": tmp_path, "data": small_data()}
    run_seed(experiment, 0, **place)
    (result,) = tmp_path.rglob("result.json")
    result.unlink()
    with pytest.raises(FileExistsError, match="add --resume to go on from them"):
        run_seed(experiment, 0, **place)
    assert run_seed(experiment, 0, resume=True, **place)["best_epoch"] == 0


def test_finished_trials_of_a_network_are_not_trained_again(tmp_path: Path) -> None:
    experiment = ClaimExperiment(model="gcn", num_trials=3, train=TrainConfig(epochs=3))
    place: dict[str, Any] = {"recipe": "a/b", "variant": "c", "out": tmp_path, "data": small_data()}
    first = run_seed(experiment, 0, **place)
    (result,) = tmp_path.rglob("result.json")
    result.unlink()
    steps: list[Optimizer] = []
    hook = register_optimizer_step_post_hook(lambda optimizer, *_: steps.append(optimizer))
    try:
        # Seconds are those of training, and come from the checkpoints.
        assert run_seed(experiment, 0, resume=True, **place)["seconds"] == first["seconds"]
        assert not steps

        result.unlink()
        shutil.rmtree(result.parent / "checkpoints" / "trial-2")
        resumed = run_seed(experiment, 0, resume=True, **place)
        assert len(steps) == experiment.train.epochs
    finally:
        hook.remove()
    for name in ("parameter_sha256", "test_accuracy", "val_accuracy", "chosen"):
        assert resumed[name] == first[name]


CLAIMED = [variant.name for variant in get_recipe("claims/given/cora").variants]


@pytest.mark.parametrize("model", CLAIMED)
def test_test_labels_of_a_claim_are_read_once_after_selection_and_counted_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    experiment, data = short(get_recipe("claims/given/cora").variant(model).experiment)
    place: dict[str, Any] = {"recipe": "a/b", "variant": model, "out": tmp_path, "data": data}
    result = run_seed(experiment, 4, **place)
    (line,) = map(json.loads, (tmp_path / "test_reads.jsonl").read_text().splitlines())
    names = ("recipe", "variant", "seed", "commit", "freeze", "correction")
    assert {name: line.get(name) for name in names} == {name: result.get(name) for name in names}
    assert line["config_hash"] == config_hash(experiment.configuration())
    assert 0 < result["test_accuracy"] <= 1
    num_right = bin(int(result["correct"], 16)).count("1")
    assert result["test_accuracy"] == num_right / result["num_test"] == num_right / len(data.test)

    run_seed(experiment, 4, **place)  # finished: nothing is read again
    assert len((tmp_path / "test_reads.jsonl").read_text().splitlines()) == 1

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("jlgcn.recipes.sealed_test.write_file", full)
    with pytest.raises(OSError, match="No space left"):
        run_seed(experiment, 5, **place)
    assert not list(tmp_path.rglob("seed-5/result.json"))


def test_methods_are_declared_deterministic_that_give_every_seed_the_same_answer(
    tmp_path: Path,
) -> None:
    found = set()
    for model in CLAIMED:
        experiment, data = short(get_recipe("claims/given/cora").variant(model).experiment)
        hashes = {
            run_seed(experiment, seed, recipe="a/b", variant=model, out=tmp_path, data=data)[
                "parameter_sha256"
            ]
            for seed in range(2)
        }
        if len(hashes) == 1:
            found.add(model)
    assert found == set(claim_experiment.DETERMINISTIC)


@pytest.mark.parametrize(
    ("setting", "dataset", "model", "varies"),
    [
        ("given", "cora", "best", False),
        ("given", "cora", "gcn", True),
        ("given", "cora", "random metric", True),
        ("given", "debian_packages", "best", True),
        ("nograph", "citeseer", "plain knn", False),
        ("edges50", "cora", "best", True),
        ("labels25", "cora", "logistic regression", True),
        ("attack25", "cora_metattack", "given only", False),
        ("others", "actor", "best", True),
        ("tables", "wine", "best", True),
    ],
)
def test_runs_vary_with_the_seed_by_the_method_the_split_or_what_is_taken_away(
    setting: str, dataset: str, model: Ours | Baseline, varies: bool
) -> None:
    experiment = ClaimExperiment(setting=setting, dataset=dataset, model=model)
    assert experiment.varies_with_seed is varies


def test_test_labels_are_hidden_from_everything_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    data = small_data(60)
    seen: list[torch.Tensor] = []
    for name in ("_solve", "_regress", "fit"):
        plain = getattr(claim_experiment, name)

        def spy(*args: Any, plain: Any = plain, **keywords: Any) -> Any:  # noqa: ANN401
            seen.extend(arg.y for arg in args if isinstance(arg, NodeData))
            return plain(*args, **keywords)

        monkeypatch.setattr(claim_experiment, name, spy)
    for model in CLAIMED:
        experiment, _ = short(get_recipe("claims/given/cora").variant(model).experiment)
        with pytest.raises(ValueError, match="20 test labels are to be read, but nothing would"):
            experiment.fit(0, Where(), data)
    assert len(seen) == len(CLAIMED)
    for y in seen:
        assert (y[data.test] == -1).all()
        assert torch.equal(y[:40], data.y[:40])
    with pytest.raises(ValueError, match="20 of 20 test nodes of small have no class, or it is"):
        seal(seal(data)[0])


def test_development_reads_no_sealed_label_and_counts_nothing(tmp_path: Path) -> None:
    experiment, data = short(ClaimExperiment(develops=True))
    result = run_seed(experiment, 0, recipe="a/b", variant="c", out=tmp_path, data=data)
    assert result["test_accuracy"] > 0
    assert "freeze" not in result
    assert not (tmp_path / "test_reads.jsonl").exists()


@pytest.mark.parametrize("has_graph", [True, False])
def test_the_notes_of_a_claim_say_how_many_candidates_validation_compares(
    monkeypatch: pytest.MonkeyPatch, has_graph: bool
) -> None:
    num_calls = {"closed_form": 0, "ridge": 0}
    for name in num_calls:
        module = importlib.import_module(f"jlgcn.nn.{name}")

        def count(*args: Any, name: str = name, plain: Any = module.is_better) -> bool:  # noqa: ANN401
            num_calls[name] += 1
            return bool(plain(*args))

        monkeypatch.setattr(module, "is_better", count)
    data = small_data(60)
    graph = data.graph() if has_graph else None
    options = ClosedFormOptions(num_layers=1)
    fit_closed_form(data.x, graph, data.y, data.train, data.val, options=options)
    num_candidates = num_calls["closed_form"]
    # Of each classifier that is fitted, every pair but the first is compared: those of all
    # candidates, of both starts, and the one that is kept.
    num_pairs = num_calls["ridge"] / (num_candidates + 3) + 1
    assert (num_candidates, num_pairs) == (29 if has_graph else 17, 36)
    notes = " ".join(get_recipe("claims/given/cora").left_open)
    assert f"{num_candidates} candidates" in notes or f"{num_candidates} without a graph" in notes
    assert f"{num_pairs:.0f} pairs of penalty and temperature" in notes


def test_networks_choose_their_width_and_gcnii_its_depth(tmp_path: Path) -> None:
    for model, size in (("gcn", "hidden_channels"), ("gcnii", "num_layers")):
        experiment, data = short(get_recipe("claims/given/cora").variant(model).experiment)
        result = run_seed(experiment, 0, recipe="a/b", variant=model, out=tmp_path, data=data)
        assert result["chosen"] == {"lr": 0.01, "weight_decay": 5e-4, size: 16}


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
        (["run", "citation/cora", "--variant", "x"], "variants are 'jlgcn', 'jlgcn, text'"),
        (["record", "--runs", "nowhere"], "no finished runs below nowhere"),
        (
            ["report", "--results", "nowhere"],
            "no records below nowhere; train with: jlgcn run RECIPE",
        ),
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
    shown = runner.invoke(app, ["show", "citation/citeseer", "--variant", "jlgcn, text"]).output
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
    done = runner.invoke(app, ["list"])
    assert [line.split()[0] for line in done.output.splitlines()[:-1]] == list(RECIPES)
