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

RecipeName = Annotated[str, typer.Argument(metavar="RECIPE", help='Name of a recipe, see "list".')]
VariantOption = Annotated[
    list[str] | None,
    typer.Option(
        "--variant",
        metavar="NAME",
        help='Variant of the recipe, or "all"; repeatable. Default: its main variants, see "show".',
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="FIELD=VALUE", help="Override a setting, such as epochs=3; repeatable."
    ),
]


def recipe_commands(
    name: str,
    recipes: Callable[[], Mapping[str, Recipe[Any]]],
    gather: Callable[[], Callable[[Path, Path], list[Path]]],
    about: str,
) -> typer.Typer:
    """Return the commands list, show, run and record of a collection of recipes.

    Args:
        name: the command line of the group, for messages.
        recipes: returns the recipes by name; called by commands, because it imports PyTorch.
        gather: returns the function that gathers finished runs into records, likewise.
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
        """List the recipes: a table or figure each, with the published number.

        Example: list | grep citation
        """
        found = recipes()
        width = max(len(name) for name in found)
        for recipe in found.values():
            published = [recipe.variant(name).published for name in recipe.main]
            number = f" (published {published[0]:g})" if published and published[0] else ""
            typer.echo(f"{recipe.name:{width}} {recipe.place}: {recipe.summary}{number}")
        typer.echo(f'Next: "{name} show RECIPE" for its settings, "{name} run RECIPE" to train it.')

    @group.command()
    def show(recipe: RecipeName, variant: VariantOption = None, settings: SetOption = None) -> None:
        """Show the variants and settings of a recipe, and what the publication leaves open.

        Example: show RECIPE --variant VARIANT --set epochs=50
        """
        found, chosen, _ = _chosen(recipes(), recipe, variant, settings)
        typer.echo(f"{found.name}: {found.place}\n{found.summary}\n\nvariants:")
        for each in found.variants:
            published = "" if each.published is None else f", published {each.published:g}"
            is_main = " (main)" if each.name in found.main else ""
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
        seeds: Annotated[int, typer.Option(min=1, help="Number of random seeds.")] = 1,
        first_seed: Annotated[int, typer.Option(min=0, help="First random seed.")] = 0,
        out: Annotated[Path, typer.Option(help="Folder for runs and checkpoints.")] = Path("runs"),
        data: Annotated[
            Path | None,
            typer.Option(help="Folder of the data. Default: $JLGCN_DATA, or ~/.cache/jlgcn."),
        ] = None,
        download: Annotated[
            bool, typer.Option("--download", help="Download missing data files.")
        ] = False,
        sha256: Annotated[
            str | None,
            typer.Option(
                metavar="HEX",
                help="SHA-256 of an archive to download, where the package knows none: ModelNet40.",
            ),
        ] = None,
        resume: Annotated[
            bool, typer.Option("--resume", help="Resume interrupted runs from their checkpoints.")
        ] = False,
        threads: Annotated[
            int | None,
            typer.Option(
                min=1,
                help="CPU threads of a run, which affect the last bits. Default: PyTorch's.",
            ),
        ] = None,
        jobs: Annotated[int, typer.Option(min=1, help="Processes that run in parallel.")] = 1,
        checkpoint_seconds: Annotated[
            float, typer.Option(min=0, help="Seconds between checkpoints.")
        ] = 120.0,
        device: Annotated[
            str, typer.Option(help="PyTorch device to train on, such as cpu or cuda:1.")
        ] = "cpu",
    ) -> None:
        """Train the variants of a recipe, for each random seed; finished runs are skipped.

        Example: run RECIPE --seeds 3 --set epochs=50

        Ctrl-C finishes the epoch and writes a checkpoint. The same command with
        --resume continues from it and ends with bitwise the same parameters.

        Under torchrun, processes share the rows of exact graphs, or the clouds of a
        batch: torchrun --nproc-per-node 2 -m jlgcn paper run RECIPE
        """
        from concurrent.futures import ProcessPoolExecutor, as_completed
        from dataclasses import replace
        from multiprocessing import get_context

        from jlgcn._processes import end_with_parent
        from jlgcn.distributed.launch import torchrun_group
        from jlgcn.ops.precision import without_denormals
        from jlgcn.training import RunOptions

        found, chosen, label = _chosen(recipes(), recipe, variant, settings)
        options = {
            "recipe": found.name,
            "out": out,
            "root": data,
            "download": download,
            "sha256": sha256,
            "resume": resume,
            "device": device,
        }
        quiet = RunOptions(checkpoint_seconds=checkpoint_seconds)
        shown = replace(quiet, progress=True)
        # Seeds outside, variants inside: an interrupted command has as many seeds of each variant.
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
            with ProcessPoolExecutor(
                jobs, mp_context=get_context("spawn"), initializer=end_with_parent
            ) as pool:
                tasks = [
                    pool.submit(_run_seed, experiment, seed, threads, quiet, keywords)
                    for experiment, seed, keywords in wanted
                ]
                try:
                    for task in as_completed(tasks):
                        _echo_result(task.result())
                except BaseException:
                    pool.shutdown(cancel_futures=True)
                    raise
        except KeyboardInterrupt:
            typer.echo(
                "stopped; finished runs are kept, and --resume continues the others", err=True
            )
            raise typer.Exit(130) from None
        except (OSError, ValueError) as problem:
            typer.echo(f"Error: {problem}", err=True)
            raise typer.Exit(1) from None

    @group.command()
    def record(
        runs: Annotated[Path, typer.Option(help='Folder of runs, see "run".')] = Path("runs"),
        results: Annotated[Path, typer.Option(help="Folder for records.")] = Path("results"),
    ) -> None:
        """Gather finished runs into RESULTS/RECIPE.jsonl, a line for each seed.

        Example: record --runs runs --results results
        """
        written = gather()(runs, results)
        if not written:
            typer.echo(
                f"no finished runs below {runs}; train some with: {name} run RECIPE", err=True
            )
            raise typer.Exit(1)
        for path in written:
            typer.echo(f"{path}: {len(path.read_text().splitlines())} runs, of all variants")

    return group


def _chosen(
    recipes: Mapping[str, Recipe[Any]],
    name: str,
    variants: list[str] | None,
    settings: list[str] | None,
) -> tuple[Recipe[Any], list[Variant[Any]], str]:
    """Return a recipe, its chosen variants with overridden settings, and a label of these."""
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
    with without_denormals():  # before PyTorch starts threads, which inherit it
        return run_seed(experiment, seed, options=run_options, **options)


def _echo_result(result: dict[str, Any]) -> None:
    if not result:  # only the first of several processes has one
        return
    best = result["best_test_accuracy"]
    trials = result["configuration"].get("num_trials")  # seconds are the sum over trials
    epochs = result["configuration"].get("train", {}).get("epochs")  # the closed form has none
    speed = f"{result['seconds']:.1f} s" + ("" if trials is None else f" for {trials} trials")
    if trials is None and epochs is not None:
        speed = f"{result['seconds'] / epochs:.2f} s an epoch"
    name = f"{result['recipe']} {result['variant']} seed {result['seed']}"
    typer.echo(
        f"{name}: validation {100 * result['val_accuracy']:.1f}"
        + ("" if epochs is None or trials else f" in epoch {result['best_epoch']}")
        + f", test {100 * result['test_accuracy']:.1f}"
        + ("" if best is None else f" (best test epoch, for comparison only: {100 * best:.1f})")
        + f"; {speed}, peak {result['peak_bytes'] / 2**30:.2f} GiB"
    )
