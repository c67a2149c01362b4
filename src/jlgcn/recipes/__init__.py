"""Recipes: the paper's tables and figures, each with its published numbers."""

from collections.abc import Callable
from typing import Any

from jlgcn.recipes import ablation, claims, clouds, learned_graph, robustness, table2
from jlgcn.recipes.claim_experiment import ClaimExperiment
from jlgcn.recipes.cloud_experiment import CloudExperiment
from jlgcn.recipes.experiment import Experiment, run_seed, with_settings
from jlgcn.recipes.node_experiment import NodeExperiment
from jlgcn.recipes.recipe import Recipe, Variant
from jlgcn.train.result import config_hash

_MAKERS: tuple[Callable[[], Recipe[Any]], ...] = (
    table2.cora,
    table2.citeseer,
    table2.pubmed,
    table2.pubmed_10k,
    robustness.edges,
    robustness.labels,
    ablation.graphs,
    ablation.regularizer,
    learned_graph.learned_graph,
    clouds.modelnet40,
    clouds.modelnet10,
    clouds.shapes69,
    learned_graph.cloud_weights,
)

RECIPES: dict[str, Recipe[Any]] = {
    recipe.name: recipe for recipe in (*(make() for make in _MAKERS), *claims.claims())
}


def get_recipe(name: str) -> Recipe[Any]:
    """Return the recipe of this name.

    Example:
        >>> get_recipe("citation/cora").variant("jlgcn").published
        83.9
    """
    if name not in RECIPES:
        raise ValueError(f"there is no recipe {name!r}; recipes are {', '.join(RECIPES)}")
    return RECIPES[name]


def experiment_key(configuration: dict[str, Any]) -> str:
    """Return a short name for what was run, which does not change when experiments get new fields.

    The protocol does not count: tracing the test nodes changes nothing but what is reported.

    Example:
        >>> experiment_key({"dataset": "cora"}) == experiment_key(NodeExperiment().configuration())
        True
    """
    if configuration.get("task") == ClaimExperiment.task:
        return config_hash(configuration)
    is_clouds = configuration.get("task") == CloudExperiment.task
    defaults = (CloudExperiment() if is_clouds else NodeExperiment()).configuration()
    train = defaults["train"] | configuration.get("train", {})
    return config_hash(defaults | configuration | {"train": train, "protocol": None})


__all__ = [
    "RECIPES",
    "ClaimExperiment",
    "CloudExperiment",
    "Experiment",
    "NodeExperiment",
    "Recipe",
    "Variant",
    "experiment_key",
    "get_recipe",
    "run_seed",
    "with_settings",
]
