"""Recipes: the paper's tables and figures, each with its published numbers."""

from collections.abc import Callable

from jlgcn.recipes import ablation, learned_graph, robustness, table2
from jlgcn.recipes.experiment import Experiment, run_seed, with_settings
from jlgcn.recipes.recipe import Recipe, Variant

_MAKERS: tuple[Callable[[], Recipe], ...] = (
    table2.cora,
    table2.citeseer,
    table2.pubmed,
    table2.pubmed_10k,
    robustness.edges,
    robustness.labels,
    ablation.graphs,
    ablation.regularizer,
    learned_graph.learned_graph,
)

RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in (make() for make in _MAKERS)}


def get_recipe(name: str) -> Recipe:
    """Return the recipe of this name.

    Example:
        >>> get_recipe("citation/cora").variant("jlgcn").published
        83.9
    """
    if name not in RECIPES:
        raise ValueError(f"there is no recipe {name!r}; recipes are {', '.join(RECIPES)}")
    return RECIPES[name]


__all__ = [
    "RECIPES",
    "Experiment",
    "Recipe",
    "Variant",
    "get_recipe",
    "run_seed",
    "with_settings",
]
