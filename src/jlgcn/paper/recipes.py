"""All recipes of the paper, by name."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from jlgcn.paper.ablation import graphs, regularizer
from jlgcn.paper.cloud_experiment import CloudExperiment
from jlgcn.paper.clouds import modelnet10, modelnet10_1024, modelnet40, shapes69, shapes69_1024
from jlgcn.paper.learned_graph import cloud_weights, learned_graph
from jlgcn.paper.node_experiment import NodeExperiment
from jlgcn.paper.recipe import Recipe
from jlgcn.paper.records import config_hash
from jlgcn.paper.robustness import edges, labels
from jlgcn.paper.table2 import citeseer, cora, pubmed, pubmed_10k
from jlgcn.training import TrainConfig

_MAKERS: tuple[Callable[[], Recipe[Any]], ...] = (
    cora,
    citeseer,
    pubmed,
    pubmed_10k,
    edges,
    labels,
    graphs,
    regularizer,
    learned_graph,
    modelnet40,
    modelnet10,
    modelnet10_1024,
    shapes69,
    shapes69_1024,
    cloud_weights,
)

RECIPES: dict[str, Recipe[Any]] = {recipe.name: recipe for recipe in (m() for m in _MAKERS)}


def get_recipe(name: str, recipes: Mapping[str, Recipe[Any]] = RECIPES) -> Recipe[Any]:
    """Return a recipe by name.

    Args:
        name (str): name of the recipe.
        recipes (mapping, default the paper's): recipes by name.

    Example:
        >>> get_recipe("citation/cora").variant("jlgcn").published
        83.9
    """
    if name not in recipes:
        raise ValueError(f"there is no recipe {name!r}; recipes are {', '.join(recipes)}")
    return recipes[name]


def experiment_key(configuration: dict[str, Any]) -> str:
    """Return the hash of a configuration, which stays the same when new fields get a default.

    The protocol is excluded: tracing test nodes changes what is reported, not what is trained.

    Example:
        >>> experiment_key({"dataset": "cora"}) == experiment_key(NodeExperiment().configuration())
        True
    """
    experiments = {NodeExperiment.task: NodeExperiment, CloudExperiment.task: CloudExperiment}
    made = experiments.get(configuration.get("task", NodeExperiment.task))
    if made is None:  # of an experiment outside the paper, trained on nodes if it is trained
        train = asdict(TrainConfig()) | configuration.get("train", {})
        return config_hash(configuration | ({"train": train} if "train" in configuration else {}))
    defaults = made().configuration()
    train = defaults["train"] | configuration.get("train", {})
    return config_hash(defaults | configuration | {"train": train, "protocol": None})
