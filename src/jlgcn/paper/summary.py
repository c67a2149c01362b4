"""Means over seeds, with confidence intervals, for every table and figure of the paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from jlgcn._stats import mean_and_interval
from jlgcn.paper.recipe import METRICS, MISSING, Recipe
from jlgcn.paper.recipes import RECIPES, experiment_key


def summarize(
    lines: Iterable[dict[str, Any]], recipes: Mapping[str, Recipe[Any]] = RECIPES
) -> list[dict[str, Any]]:
    """Return means and Student-t 95 % intervals over seeds, by recipe, variant and protocol.

    A line with traced test nodes counts for both protocols: "honest", the accuracy of the epoch
    that validation selected, and "authors", the accuracy of the best test epoch. An experiment that
    several tables share is run once and counts in each. Lines of no variant, with a setting
    changed, come last, under the names they were recorded with.

    Args:
        lines: lines of :func:`jlgcn.paper.records.read_records`.
        recipes: recipes by name.

    Returns:
        Rows of recipe, variant, protocol, metric, mean, low, high, seeds, published and model_bytes
        (clouds only). Accuracies are between 0 and 1, but `published` is in percent.
    """
    by_key = lines_by_experiment(lines)
    rows = []
    used = set()
    for recipe in recipes.values():
        for variant in recipe.variants:
            key = experiment_key(variant.experiment.configuration())
            used.add(key)
            # The paper reports the best test epoch of its network, and quotes the baselines from
            # their own papers, which select on validation data.
            protocol = "authors" if variant.experiment.model == "jlgcn" else "honest"
            published = {protocol: variant.published}
            rows += _rows(recipe.name, variant.name, by_key.get(key, []), published)
    for key, group in by_key.items():
        if key not in used:
            rows += _rows(group[0]["recipe"], group[0]["variant"], group, {})
    return rows


def lines_by_experiment(lines: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Group recorded lines by experiment, over all recipes."""
    by_key: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        by_key.setdefault(experiment_key(line["configuration"]), []).append(line)
    return by_key


def recorded_recipes(
    rows: Iterable[dict[str, Any]], recipes: Mapping[str, Recipe[Any]] = RECIPES
) -> list[Recipe[Any]]:
    """Return the recipes with a record of at least one variant."""
    found = {(row["recipe"], row["variant"]) for row in rows}
    return [
        recipe
        for recipe in recipes.values()
        if any((recipe.name, variant.name) in found for variant in recipe.variants)
    ]


def _rows(
    recipe: str, variant: str, lines: list[dict[str, Any]], published: dict[str, float | None]
) -> list[dict[str, Any]]:
    # A seed in two recipes, or with both protocols, counts once.
    traced_last = sorted(lines, key=lambda line: line["best_test_accuracy"] is not None)
    lines = list({line["seed"]: line for line in traced_last}.values())
    # Clouds also have the mean class accuracy, and accuracies with missing points.
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
            # That of two seeds would be 13 standard errors wide on either side.
            interval = {} if len(values) > 2 else {"low": None, "high": None}
            rows.append(
                name
                | mean_and_interval(values)
                | interval
                | {"published": published.get(protocol) if metric in METRICS.values() else None}
                | {"model_bytes": lines[0].get("model_bytes")}
            )
    return rows
