"""A recipe: everything a run needs, the published number, and what the paper leaves open."""

from __future__ import annotations

import dataclasses
import difflib
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, Literal

from jlgcn.data.citation import Planetoid
from jlgcn.nn.learner import Backend
from jlgcn.nn.options import Preset
from jlgcn.train import TrainConfig

Protocol = Literal["honest", "authors"]


@dataclass(frozen=True)
class CitationRecipe:
    """A network for a citation network, and how to train it.

    Attributes:
        name: what the command line calls it.
        place: table or figure of the paper.
        published: accuracy the paper gives there, in percent, by the best test epoch; None if it
            gives none.
        left_open: what the paper does not say, and what is chosen here.
        dataset: which citation network.
        num_others: nodes kept beside those of the split; None for all.
        preset: the paper's text or its authors' code.
        hidden_channels: features between the layers.
        num_layers: number of layers.
        rank: rank of every metric; None for that of an identity.
        dropout: share of every layer's input that is dropped.
        input_dropout: the same for the first layer; None for `dropout`.
        backend: how learned graphs are held.
        num_neighbors: neighbours of a node where they are held as kNN.
        edges_missing: share of the given edges that is removed first, by the seed.
        labels_missing: share of the training labels that is removed first, by the seed.
        protocol: "honest" looks at the test nodes once, after selection; "authors" traces them in
            every epoch as well, and reports the best apart.
        train: how to train.
    """

    name: str
    place: str
    published: float | None
    left_open: tuple[str, ...]
    dataset: Planetoid
    num_others: int | None = None
    preset: Preset = "authors"
    hidden_channels: int = 16
    num_layers: int = 2
    rank: int | None = 16
    dropout: float = 0.5
    input_dropout: float | None = None
    backend: Backend = "exact"
    num_neighbors: int = 16
    edges_missing: float = 0.0
    labels_missing: float = 0.0
    protocol: Protocol = "honest"
    train: TrainConfig = field(default_factory=TrainConfig)

    def configuration(self) -> dict[str, Any]:
        """Return all that the result depends on, as plain values."""
        fields = dataclasses.asdict(self)
        for name in ("name", "place", "published", "left_open"):
            del fields[name]
        return fields


#: Fields that describe a recipe and are not set.
_FIXED = ("name", "place", "published", "left_open", "dataset", "train", "preset")


def with_settings(recipe: CitationRecipe, settings: dict[str, str]) -> CitationRecipe:
    """Return a variant of a recipe with some fields, or fields of its training, set from text.

    Example:
        >>> from jlgcn.recipes import get_recipe
        >>> with_settings(get_recipe("citation/cora"), {"epochs": "3"}).train.epochs
        3
    """
    own = {f.name for f in dataclasses.fields(recipe)}.difference(_FIXED)
    training = {f.name for f in dataclasses.fields(TrainConfig)}
    for name, text in settings.items():
        if name in own:
            recipe = dataclasses.replace(recipe, **{name: _parse(CitationRecipe, name, text)})
        elif name in training:
            changed = dataclasses.replace(recipe.train, **{name: _parse(TrainConfig, name, text)})
            recipe = dataclasses.replace(recipe, train=changed)
        else:
            near = difflib.get_close_matches(name, own | training, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            choices = ", ".join(sorted(own | training))
            raise ValueError(f"there is no setting {name!r}{hint} Settings are: {choices}")
    return recipe


def _parse(owner: type, name: str, text: str) -> Any:  # noqa: ANN401
    """Read a value of the type that a field of a dataclass has."""
    annotation = typing.get_type_hints(owner)[name]
    kinds = typing.get_args(annotation) if typing.get_origin(annotation) is not Literal else ()
    kinds = kinds or (annotation,)
    if NoneType in kinds and text.lower() == "none":
        return None
    kind = next(k for k in kinds if k is not NoneType)
    if typing.get_origin(kind) is Literal:
        choices = typing.get_args(kind)
        if text not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}, but it is {text!r}")
        return text
    parsers: dict[Any, Callable[[str], Any]] = {int: int, float: float, str: str}
    try:
        return parsers[kind](text)
    except ValueError:
        none = " or none" if NoneType in kinds else ""
        raise ValueError(f"{name} must be {kind.__name__}{none}, but it is {text!r}") from None
