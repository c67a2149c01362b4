from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from typer.testing import CliRunner

from evaluation import claim_experiment
from evaluation.__main__ import app
from evaluation.claim_experiment import Baseline, ClaimExperiment, Ours
from evaluation.claims import CLAIMS
from evaluation.sealed_test import seal
from jlgcn.paper import run_seed
from jlgcn.paper.experiment import Where
from jlgcn.paper.node_data import NodeData
from jlgcn.paper.recipe import Recipe, Variant
from jlgcn.paper.records import config_hash
from jlgcn.training import TrainConfig
from tests.evaluation.short import short
from tests.training.small import small_data

runner = CliRunner()


@pytest.mark.parametrize("recipe", CLAIMS.values(), ids=lambda recipe: recipe.name)
def test_every_claim_names_its_place_and_how_it_is_measured(recipe: Recipe[Any]) -> None:
    assert "table" in recipe.place
    assert recipe.left_open
    assert len({variant.name for variant in recipe.variants}) == len(recipe.variants)
    assert recipe.chosen()
    json.dumps([variant.experiment.configuration() for variant in recipe.variants])


@pytest.mark.slow
@pytest.mark.parametrize("variant", CLAIMS["claims/given/cora"].variants, ids=lambda v: v.name)
def test_every_variant_runs_two_epochs_on_a_small_graph(
    tmp_path: Path, variant: Variant[ClaimExperiment]
) -> None:
    experiment, data = short(variant.experiment)
    recipe = "claims/given/cora"
    result = run_seed(experiment, 1, recipe=recipe, variant=variant.name, out=tmp_path, data=data)
    assert 0 <= result["test_accuracy"] <= 1
    assert (result["recipe"], result["variant"], result["seed"]) == (recipe, variant.name, 1)


def test_the_command_lists_and_shows_every_claim() -> None:
    listed = runner.invoke(app, ["list"]).output
    assert [line.split()[0] for line in listed.splitlines()[:-1]] == list(CLAIMS)
    shown = runner.invoke(app, ["show", "claims/given/cora"]).output
    assert "model = best" in shown
    assert "How it is measured:" in shown


def test_the_time_of_a_network_is_that_of_its_trials(tmp_path: Path) -> None:
    command = ["run", "claims/tables/wine", "--variant", "mlp", "--out", str(tmp_path)]
    for setting in ("develops=true", "num_trials=2", "epochs=3"):
        command += ["--set", setting]
    done = runner.invoke(app, command)
    assert done.exit_code == 0, done.output
    assert " s for 2 trials, peak" in done.output
    assert "an epoch" not in done.output


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


CLAIMED = [variant.name for variant in CLAIMS["claims/given/cora"].variants]


@pytest.fixture(autouse=True)
def freeze(monkeypatch: pytest.MonkeyPatch) -> None:
    # Since the third freeze the closed form has changed, so it would refuse to read.
    monkeypatch.setattr(claim_experiment, "FREEZE", 4)


@pytest.mark.parametrize("model", CLAIMED)
def test_test_labels_of_a_claim_are_read_once_after_selection_and_counted_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    experiment, data = short(CLAIMS["claims/given/cora"].variant(model).experiment)
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

    monkeypatch.setattr("evaluation.sealed_test.write_file", full)
    with pytest.raises(OSError, match="No space left"):
        run_seed(experiment, 5, **place)
    assert not list(tmp_path.rglob("seed-5/result.json"))


@pytest.mark.slow
def test_methods_are_declared_deterministic_that_give_every_seed_the_same_answer(
    tmp_path: Path,
) -> None:
    found = set()
    for model in CLAIMED:
        experiment, data = short(CLAIMS["claims/given/cora"].variant(model).experiment)
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


@pytest.mark.slow
def test_test_labels_are_hidden_from_everything_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    data = small_data(60)
    seen: list[torch.Tensor] = []
    for name in ("_solve", "_regress", "fit_nodes"):
        plain = getattr(claim_experiment, name)

        def spy(*args: Any, plain: Any = plain, **keywords: Any) -> Any:  # noqa: ANN401
            seen.append(args[0].y if isinstance(args[0], NodeData) else args[2])
            return plain(*args, **keywords)

        monkeypatch.setattr(claim_experiment, name, spy)
    for model in CLAIMED:
        experiment, _ = short(CLAIMS["claims/given/cora"].variant(model).experiment)
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


def test_the_closed_form_reads_no_test_label_before_it_is_frozen_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_experiment, "FREEZE", 3)
    experiment, data = short(ClaimExperiment())
    with pytest.raises(ValueError, match="the closed form has changed since the third freeze"):
        run_seed(experiment, 0, recipe="a/b", variant="c", out=tmp_path, data=data)
    assert not (tmp_path / "test_reads.jsonl").exists()


def test_networks_choose_their_width_and_gcnii_its_depth(tmp_path: Path) -> None:
    for model, size in (("gcn", "hidden_channels"), ("gcnii", "num_layers")):
        experiment, data = short(CLAIMS["claims/given/cora"].variant(model).experiment)
        result = run_seed(experiment, 0, recipe="a/b", variant=model, out=tmp_path, data=data)
        assert result["chosen"] == {"lr": 0.01, "weight_decay": 5e-4, size: 16}
