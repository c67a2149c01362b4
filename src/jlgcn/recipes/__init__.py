"""Recipes: the paper's tables and figures, each with its published number."""

from collections.abc import Callable

from jlgcn.nn.options import Preset
from jlgcn.recipes.citation import citeseer, cora, pubmed, pubmed_10k, run_seed
from jlgcn.recipes.recipe import CitationRecipe, with_settings

RECIPES: dict[str, Callable[[Preset], CitationRecipe]] = {
    "citation/cora": cora,
    "citation/citeseer": citeseer,
    "citation/pubmed": pubmed,
    "citation/pubmed-10k": pubmed_10k,
}


def get_recipe(name: str, preset: Preset = "authors") -> CitationRecipe:
    """Return the recipe of this name.

    Example:
        >>> get_recipe("citation/cora").published
        83.9
    """
    if name not in RECIPES:
        raise ValueError(f"there is no recipe {name!r}; recipes are {', '.join(RECIPES)}")
    return RECIPES[name](preset)


__all__ = ["RECIPES", "CitationRecipe", "get_recipe", "run_seed", "with_settings"]
