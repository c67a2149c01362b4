"""Means over seeds for every cell of the paper's tables and figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from jlgcn._stats import mean_and_interval
from jlgcn.paper.recipe import METRICS, MISSING, Recipe
from jlgcn.paper.recipes import RECIPES, experiment_key


def summarize(
    lines: Iterable[dict[str, Any]], recipes: Mapping[str, Recipe[Any]] = RECIPES
) -> list[dict[str, Any]]:
    """Return mean and Student-t 95 % interval over seeds, for each recipe, variant and protocol.

    A line that traced the test nodes counts twice: for the accuracy that validation selected, which
    is protocol "honest", and for that of the best test epoch, which is protocol "authors". An
    experiment that stands in several tables was run once, and counts in each. Lines that belong to
    no variant, since a setting was changed, come last, under the names they were recorded with.

    Args:
        lines: recorded lines, see :func:`jlgcn.paper.records.read_records`.
        recipes: tables and figures to look for, by name.

    Returns:
        Rows of recipe, variant, protocol, metric, mean, low, high, seeds, published and
        model_bytes, which records of clouds have. Accuracies lie between 0 and 1, as they were
        recorded, but `published` is in percent, as in the paper.
    """
    by_key = lines_by_experiment(lines)
    rows = []
    used = set()
    for recipe in recipes.values():
        for variant in recipe.variants:
            key = experiment_key(variant.experiment.configuration())
            used.add(key)
            # The paper's own figures are those of the best test epoch; those of the baselines are
            # quoted from their papers, where validation selects.
            protocol = "authors" if variant.experiment.model == "jlgcn" else "honest"
            published = {protocol: variant.published}
            rows += _rows(recipe.name, variant.name, by_key.get(key, []), published)
    for key, group in by_key.items():
        if key not in used:
            rows += _rows(group[0]["recipe"], group[0]["variant"], group, {})
    return rows


def lines_by_experiment(lines: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return recorded lines by what was run, whichever table it was run for."""
    by_key: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        by_key.setdefault(experiment_key(line["configuration"]), []).append(line)
    return by_key


def recorded_recipes(
    rows: Iterable[dict[str, Any]], recipes: Mapping[str, Recipe[Any]] = RECIPES
) -> list[Recipe[Any]]:
    """Return the recipes that have a record of one of their own variants."""
    found = {(row["recipe"], row["variant"]) for row in rows}
    return [
        recipe
        for recipe in recipes.values()
        if any((recipe.name, variant.name) in found for variant in recipe.variants)
    ]


def _rows(
    recipe: str, variant: str, lines: list[dict[str, Any]], published: dict[str, float | None]
) -> list[dict[str, Any]]:
    # A seed that was run in two tables, or by both protocols, is one seed.
    traced_last = sorted(lines, key=lambda line: line["best_test_accuracy"] is not None)
    lines = list({line["seed"]: line for line in traced_last}.values())
    # Of clouds there is more: the mean over classes, and what remains when points are missing.
    metrics = [(protocol, metric, None) for protocol, metric in METRICS.items()]
    if lines and "mean_class_accuracy" in lines[0]:
        metrics.append(("honest", "mean_class_accuracy", None))
        metrics += [("honest", MISSING, share) for share in lines[0][MISSING]]
    rows = []
    for protocol, metric, share in metrics:
        values = [line[metric] if share is None else line[metric][share] for line in lines]
        values = [value for value in values if value is not None]
        if values:
            full = metric if share is None else f"{metric} {share}"
            name = {"recipe": recipe, "variant": variant, "protocol": protocol, "metric": full}
            rows.append(
                name
                | mean_and_interval(values)
                | {"published": published.get(protocol) if metric in METRICS.values() else None}
                | {"model_bytes": lines[0].get("model_bytes")}
            )
    return rows
