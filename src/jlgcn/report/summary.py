"""Means over seeds for every cell of the paper's tables and figures."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jlgcn.recipes import RECIPES, Recipe, experiment_key
from jlgcn.report.paired import ahead
from jlgcn.train.result import mean_and_interval

#: How an accuracy is chosen, and what a record calls it.
METRICS = {"honest": "test_accuracy", "authors": "best_test_accuracy"}

#: Accuracies on clouds without some of their points; the share stands behind it.
MISSING = "accuracy_missing"


#: How far the first variant of a claim is ahead of another.
AHEAD = "best_ahead_by"


def summarize(lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return mean and Student-t 95 % interval over seeds, for each recipe, variant and protocol.

    A line that traced the test nodes counts twice: for the accuracy that validation selected, which
    is protocol "honest", and for that of the best test epoch, which is protocol "authors". An
    experiment that stands in several tables was run once, and counts in each. Lines that belong to
    no variant, since a setting was changed, come last, under the names they were recorded with.

    Args:
        lines: recorded lines, see :func:`jlgcn.train.result.read_records`.

    Returns:
        Rows of recipe, variant, protocol, metric, mean, low, high, seeds, published and
        model_bytes, which records of clouds have. Accuracies lie between 0 and 1, as they were
        recorded, but `published` is in percent, as in the paper.
        Of claims there are differences, too: of the first variant and each other,
        see :func:`jlgcn.report.paired.ahead`.
    """
    by_key: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        by_key.setdefault(experiment_key(line["configuration"]), []).append(line)
    rows = []
    used = set()
    for recipe in RECIPES.values():
        main = recipe.variants[0].experiment
        best = by_key.get(experiment_key(main.configuration()), [])
        for variant in recipe.variants:
            key = experiment_key(variant.experiment.configuration())
            used.add(key)
            # The paper's own figures are those of the best test epoch; those of the baselines are
            # quoted from their papers, where validation selects.
            protocol = "authors" if variant.experiment.model == "jlgcn" else "honest"
            published = {protocol: variant.published}
            rows += _rows(recipe.name, variant.name, by_key.get(key, []), published)
            if recipe.name.startswith("claims/") and variant.name != recipe.variants[0].name:
                vary = {
                    "ours_vary": main.varies_with_seed,
                    "theirs_vary": variant.experiment.varies_with_seed,
                }
                rows += _ahead(recipe.name, variant.name, best, by_key.get(key, []), vary)
    for key, group in by_key.items():
        if key not in used:
            rows += _rows(group[0]["recipe"], group[0]["variant"], group, {})
    return rows


def recorded_recipes(rows: Iterable[dict[str, Any]]) -> list[Recipe[Any]]:
    """Return the recipes that have a record of one of their own variants."""
    found = {(row["recipe"], row["variant"]) for row in rows}
    return [
        recipe
        for recipe in RECIPES.values()
        if any((recipe.name, variant.name) in found for variant in recipe.variants)
    ]


def _ahead(
    recipe: str,
    variant: str,
    best: list[dict[str, Any]],
    lines: list[dict[str, Any]],
    vary: dict[str, bool],
) -> list[dict[str, Any]]:
    difference = ahead(best, lines, **vary) if best and lines else None
    if difference is None:
        return []
    name = {"recipe": recipe, "variant": variant, "protocol": "honest", "metric": AHEAD}
    return [name | difference | {"published": None, "model_bytes": None}]


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
