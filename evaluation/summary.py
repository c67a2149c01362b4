"""Means over seeds of the paper's tables and of our claims, and differences of the latter."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from evaluation.claims import AHEAD, CLAIMS
from evaluation.paired import ahead
from jlgcn.paper.recipe import Recipe
from jlgcn.paper.recipes import RECIPES, experiment_key
from jlgcn.paper.summary import lines_by_experiment
from jlgcn.paper.summary import summarize as summarize_recipes

#: The paper's recipes, and our claims.
ALL: dict[str, Recipe[Any]] = RECIPES | CLAIMS


def summarize(lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of :func:`jlgcn.paper.summarize` for all recipes and claims.

    Of claims there are differences, too: of the first variant and each other, see
    :func:`evaluation.paired.ahead`.
    """
    lines = list(lines)
    by_key = lines_by_experiment(lines)
    rows: list[dict[str, Any]] = []
    for (name, variant), group in itertools.groupby(
        summarize_recipes(lines, ALL), lambda row: (row["recipe"], row["variant"])
    ):
        rows += group
        claim = CLAIMS.get(name)
        if claim is not None and variant in [each.name for each in claim.variants[1:]]:
            rows += _ahead(claim, variant, by_key)
    return rows


def _ahead(
    claim: Recipe[Any], variant: str, by_key: dict[str, list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    main, other = claim.variants[0].experiment, claim.variant(variant).experiment
    ours, theirs = (
        by_key.get(experiment_key(experiment.configuration()), []) for experiment in (main, other)
    )
    difference = (
        ahead(
            ours,
            theirs,
            ours_vary=main.varies_with_seed,
            theirs_vary=other.varies_with_seed,
        )
        if ours and theirs
        else None
    )
    if difference is None:
        return []
    name = {"recipe": claim.name, "variant": variant, "protocol": "honest", "metric": AHEAD}
    return [name | difference | {"published": None, "model_bytes": None}]
