"""Recipes: the experiments of a table or figure of the paper, with the published numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from jlgcn.paper.experiment import E

#: Evaluation protocol, and the name of its accuracy in records.
METRICS = {"honest": "test_accuracy", "authors": "best_test_accuracy"}

#: Metric of accuracies on clouds with missing points; the fraction follows it.
MISSING = "accuracy_missing"


@dataclass(frozen=True)
class Variant(Generic[E]):
    """A row of a table, or a point of a figure.

    Attributes:
        name (str): name on the command line and in records.
        experiment (Experiment): its configuration.
        published (float or None): published accuracy in percent, of the best test epoch for the
            paper's network; None if the paper gives no number.
    """

    name: str
    experiment: E
    published: float | None = None


@dataclass(frozen=True)
class Recipe(Generic[E]):
    """The experiments of a table or figure of the paper.

    Attributes:
        name (str): name on the command line.
        place (str): table or figure of the paper.
        summary (str): what is compared.
        left_open (tuple of str): what the paper leaves unspecified, and the choice made here.
        variants (tuple of Variant): its experiments.
        main (tuple of str): variants that run by default; empty for all.
        quoted (tuple of (str, float)): methods and accuracies in percent that are quoted from the
            paper and not run.
        columns (tuple of (str, str)): headings and metrics of its table, between the published
            accuracy and the number of seeds.
        about (str): heading of `left_open`.
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
        """Return variants by name: None for the main ones, ["all"] for all."""
        if names == ["all"] or (not names and not self.main):
            return list(self.variants)
        return [self.variant(name) for name in names or self.main]


#: What the paper leaves unspecified about the training of its network.
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
