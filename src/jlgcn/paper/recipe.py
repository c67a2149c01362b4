"""A recipe: the experiments behind one table or figure, and what the paper says there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from jlgcn.paper.experiment import E

#: How an accuracy is chosen, and what a record calls it.
METRICS = {"honest": "test_accuracy", "authors": "best_test_accuracy"}

#: Accuracies on clouds without some of their points; the share stands behind it.
MISSING = "accuracy_missing"


@dataclass(frozen=True)
class Variant(Generic[E]):
    """One cell of a table, or one point of a figure.

    Attributes:
        name: what the command line and the records call it.
        experiment: what is run.
        published: accuracy the paper gives, in percent, by the best test epoch where it is the
            paper's own network; None where it gives none, or only a curve to be read by eye.
    """

    name: str
    experiment: E
    published: float | None = None


@dataclass(frozen=True)
class Recipe(Generic[E]):
    """The experiments behind one table or figure of the paper.

    Attributes:
        name: what the command line calls it.
        place: table or figure of the paper.
        summary: what is compared.
        left_open: what the paper does not say, and what is chosen here.
        variants: its experiments.
        main: names of those that run where none are named; empty for all.
        quoted: accuracies in percent that are quoted from the paper and not run here.
        columns: what its table shows between the published figure and the number of seeds: a
            heading, and the metric below it.
        about: heading of `left_open`.
    """

    name: str
    place: str
    summary: str
    left_open: tuple[str, ...]
    variants: tuple[Variant[E], ...]
    main: tuple[str, ...] = ()
    quoted: tuple[tuple[str, float], ...] = ()
    columns: tuple[tuple[str, str], ...] = (
        ("best test epoch", METRICS["authors"]),
        ("selected by validation", METRICS["honest"]),
    )
    about: str = "What the paper leaves open here, and what was chosen"

    def variant(self, name: str) -> Variant[E]:
        """Return the variant of this name."""
        for variant in self.variants:
            if variant.name == name:
                return variant
        names = ", ".join(repr(variant.name) for variant in self.variants)
        raise ValueError(f"{self.name} has no variant {name!r}; variants are {names}")

    def chosen(self, names: list[str] | None = None) -> list[Variant[E]]:
        """Return the variants of these names: None for the main ones, ["all"] for all."""
        if names == ["all"] or (not names and not self.main):
            return list(self.variants)
        return [self.variant(name) for name in names or self.main]


#: What the paper leaves open wherever its network is trained.
LEFT_OPEN = (
    "how large the random metric is at first: in the authors' code so small that all distances are "
    "nearly 0, which suits their normalisation and not the text's; for the text it is scaled so "
    "that the median squared distance is 1, and the small one is a variant of its own",
    "which epoch is reported: the authors' code takes the best on the test nodes; here validation "
    "selects, and theirs is reported apart",
    "what the regularizer is divided by: nothing, in text and code",
    "all features at once are smoothed by the regularizer; here 16 random directions of them, "
    "which have the same expectation",
)
