"""Commands that list, show, run and record recipes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from jlgcn.paper.experiment import Experiment
    from jlgcn.paper.recipe import Recipe, Variant
    from jlgcn.training import RunOptions

RecipeName = Annotated[str, typer.Argument(metavar="RECIPE", help='Its name, see "list".')]
VariantOption = Annotated[
    list[str] | None,
    typer.Option("--variant", help='One of the recipe\'s variants, or "all"; may be repeated.'),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Change a field; may be repeated."),
]


def recipe_commands(
    name: str,
    recipes: Callable[[], Mapping[str, Recipe[Any]]],
    gather: Callable[[], Callable[[Path, Path], list[Path]]],
    about: str,
) -> typer.Typer:
    """Return the commands list, show, run and record of a collection of recipes.

    Args:
        name: what is typed before them, for messages.
        recipes: returns the recipes by name, when a command needs them.
        gather: returns what gathers finished runs into records, likewise.
        about: help of the group.
    """
    group = typer.Typer(
        help=about,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @group.command("list")
    def list_recipes() -> None:
        """List the recipes, and what each of them compares."""
        found = recipes()
        width = max(len(name) for name in found)
        for recipe in found.values():
            published = [recipe.variant(name).published for name in recipe.main]
            number = f" (published {published[0]:g})" if published and published[0] else ""
            typer.echo(f"{recipe.name:{width}} {recipe.place}: {recipe.summary}{number}")
        typer.echo(f'"{name} show RECIPE" tells more; "{name} run RECIPE" trains it.')

    @group.command()
    def show(recipe: RecipeName, variant: VariantOption = None, settings: SetOption = None) -> None:
        """Show a recipe: its variants, fields that "run --set" can change, and what is open."""
        found, chosen, _ = _chosen(recipes(), recipe, variant, settings)
        typer.echo(f"{found.name}: {found.place}\n{found.summary}\n\nvariants:")
        for each in found.variants:
            published = "" if each.published is None else f", published {each.published:g}"
            is_main = " (runs where none are named)" if each.name in found.main else ""
            typer.echo(f"  {each.name}{published}{is_main}")
        first = chosen[0]
        typer.echo(f"\nsettings of {first.name}:")
        for key, value in first.experiment.configuration().items():
            for field, setting in value.items() if key == "train" else [(key, value)]:
                typer.echo(f"  {field} = {setting}")
        typer.echo(f"\n{found.about}:")
        for line in found.left_open:
            typer.echo(f"  - {line}")

    @group.command()
    def run(
        recipe: RecipeName,
        variant: VariantOption = None,
        settings: SetOption = None,
        seeds: Annotated[int, typer.Option(min=1, help="How many seeds to run.")] = 1,
        first_seed: Annotated[int, typer.Option(min=0, help="The first of them.")] = 0,
        out: Annotated[Path, typer.Option(help="Folder for runs and checkpoints.")] = Path("runs"),
        data: Annotated[
            Path | None, typer.Option(help="Folder of the data; JLGCN_DATA if it is not given.")
        ] = None,
        download: Annotated[
            bool, typer.Option("--download", help="Fetch data files that are not there.")
        ] = False,
        resume: Annotated[
            bool, typer.Option("--resume", help="Go on from checkpoints of an interrupted run.")
        ] = False,
        threads: Annotated[
            int | None,
            typer.Option(min=1, help="Threads a run; results depend on it in the last bit."),
        ] = None,
        jobs: Annotated[int, typer.Option(min=1, help="Seeds that run side by side.")] = 1,
        checkpoint_seconds: Annotated[
            float, typer.Option(min=0, help="Time between two checkpoints.")
        ] = 120.0,
        device: Annotated[str, typer.Option(help="Where to train, such as cpu or cuda:1.")] = "cpu",
    ) -> None:
        """Train the variants of a recipe, seed by seed; what is finished is not run again.

        Ctrl-C finishes the epoch and leaves a checkpoint; the same command with --resume goes on
        from it and ends with the same parameters, bit for bit.

        Several processes share the rows of exact graphs, or the clouds of a batch, where torchrun
        starts them: torchrun --nproc-per-node 2 -m jlgcn paper run RECIPE
        """
        from concurrent.futures import ProcessPoolExecutor, as_completed
        from dataclasses import replace
        from multiprocessing import get_context

        from tqdm import tqdm

        from jlgcn.distributed.launch import torchrun_group
        from jlgcn.ops.precision import without_denormals
        from jlgcn.training import RunOptions

        found, chosen, label = _chosen(recipes(), recipe, variant, settings)
        options = {
            "recipe": found.name,
            "out": out,
            "root": data,
            "download": download,
            "resume": resume,
        }
        quiet = RunOptions(device=device, checkpoint_seconds=checkpoint_seconds)
        shown = replace(quiet, progress=True)
        # Seed by seed over all variants, so that what is interrupted has as many seeds of each.
        wanted = [
            (each.experiment, seed, options | {"variant": f"{each.name}{label}"})
            for seed in range(first_seed, first_seed + seeds)
            for each in chosen
        ]
        try:
            if jobs == 1:
                with without_denormals(), torchrun_group(device):
                    for experiment, seed, keywords in wanted:
                        _echo_result(_run_seed(experiment, seed, threads, shown, keywords))
                return
            with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
                tasks = [
                    pool.submit(_run_seed, experiment, seed, threads, quiet, keywords)
                    for experiment, seed, keywords in wanted
                ]
                bar = tqdm(total=len(tasks), desc=found.name, unit="run", disable=None)
                try:
                    with bar:
                        for task in as_completed(tasks):
                            with bar.external_write_mode():
                                _echo_result(task.result())
                            bar.update()
                except BaseException:
                    pool.shutdown(cancel_futures=True)
                    raise
        except KeyboardInterrupt:
            typer.echo(
                "stopped; finished seeds are kept, and --resume goes on with the others", err=True
            )
            raise typer.Exit(130) from None
        except (OSError, ValueError) as problem:
            typer.echo(f"Error: {problem}", err=True)
            raise typer.Exit(1) from None

    @group.command()
    def record(
        runs: Annotated[Path, typer.Option(help="Folder of runs.")] = Path("runs"),
        results: Annotated[Path, typer.Option(help="Folder of records.")] = Path("results"),
    ) -> None:
        """Gather finished runs into results/RECIPE.jsonl, a line a seed."""
        written = gather()(runs, results)
        if not written:
            typer.echo(
                f"no finished runs below {runs}; train some with: {name} run RECIPE", err=True
            )
            raise typer.Exit(1)
        for path in written:
            typer.echo(f"{path}: {len(path.read_text().splitlines())} seeds")

    return group


def _chosen(
    recipes: Mapping[str, Recipe[Any]],
    name: str,
    variants: list[str] | None,
    settings: list[str] | None,
) -> tuple[Recipe[Any], list[Variant[Any]], str]:
    """Return a recipe, its chosen variants with settings, and a label for what these change."""
    from dataclasses import replace

    from jlgcn.paper import get_recipe
    from jlgcn.paper.experiment import with_settings

    changes: dict[str, str] = {}
    for setting in settings or []:
        field, equals, value = setting.partition("=")
        if not equals:
            raise typer.BadParameter(
                f"{setting!r} is not of the form FIELD=VALUE; write for example epochs=3",
                param_hint="--set",
            )
        changes[field.strip()] = value.strip()
    try:
        recipe = get_recipe(name, recipes)
        chosen = [
            replace(variant, experiment=with_settings(variant.experiment, changes))
            for variant in recipe.chosen(variants)
        ]
    except ValueError as problem:
        raise typer.BadParameter(str(problem)) from None
    label = "".join(f" {key}={value}" for key, value in changes.items() if key != "protocol")
    return recipe, chosen, label


def _run_seed(
    experiment: Experiment,
    seed: int,
    threads: int | None,
    run_options: RunOptions,
    options: dict[str, Any],
) -> dict[str, Any]:
    import torch

    from jlgcn.ops.precision import without_denormals
    from jlgcn.paper import run_seed

    if threads is not None:
        torch.set_num_threads(threads)
    with without_denormals():  # before the first threads, which take it over from this one
        return run_seed(experiment, seed, options=run_options, **options)


def _echo_result(result: dict[str, Any]) -> None:
    if not result:  # not the first of several processes
        return
    best = result["best_test_accuracy"]
    trials = result["configuration"].get("num_trials")  # of all of which the seconds are
    epochs = result["configuration"].get("train", {}).get("epochs")  # the closed form has none
    if trials is not None:
        epochs, speed = None, f"{result['seconds']:.1f} s for {trials} trials"
    elif epochs is None:
        speed = f"{result['seconds']:.1f} s"
    else:
        speed = f"{result['seconds'] / epochs:.2f} s an epoch"
    name = f"{result['recipe']} {result['variant']} seed {result['seed']}"
    typer.echo(
        f"{name}: validation {100 * result['val_accuracy']:.1f}"
        + ("" if epochs is None else f" in epoch {result['best_epoch']}")
        + f", test {100 * result['test_accuracy']:.1f}"
        + ("" if best is None else f" (best test epoch, for comparison only: {100 * best:.1f})")
        + f"; {speed}, peak {result['peak_bytes'] / 2**30:.2f} GiB"
    )
