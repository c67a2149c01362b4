"""How good a fitted model is on labels that it did not learn from, and how sure of itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.stats
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import f1_score
from sklearn.utils.validation import check_is_fitted
from tqdm import tqdm

from jlgcn.closed_form import fit_closed_form
from jlgcn.closed_form.heads import leave_one_out
from jlgcn.estimator import JLGCNClassifier
from jlgcn.estimator.comparison import Comparison, compare
from jlgcn.ops import SparseFeatures

# Models of more rows are not fitted again where nobody asks for it.
_ROWS_FOR_FOLDS = 20_000
_FOLDS = 5
_BINS = 10


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What a model says of labels that it did not learn from.

    Attributes:
        label: their classes, (M,), as places in `classes_`.
        probability: of the classes, (M, n_classes).
        num_folds: how often a part of the labels was hidden and the model fitted again; 0 if
            instead each label was predicted by all others within one fit.
    """

    label: NDArray[np.int64]
    probability: NDArray[np.float64]
    num_folds: int

    @property
    def predicted(self) -> NDArray[np.int64]:
        """The likeliest class of each, (M,)."""
        likeliest: NDArray[np.int64] = self.probability.argmax(-1)
        return likeliest

    @property
    def accuracy(self) -> float:
        """Share of labels that are predicted."""
        return float((self.predicted == self.label).mean())

    @property
    def accuracy_interval(self) -> tuple[float, float]:
        """95 % Wilson score interval of the accuracy (Wilson, 1927); it stays within 0 and 1."""
        right = int((self.predicted == self.label).sum())
        found = scipy.stats.binomtest(right, len(self.label)).proportion_ci(0.95, "wilson")
        return float(found.low), float(found.high)

    @property
    def protocol(self) -> str:
        """What was hidden from what, and which interval it is, in sentences for the reader."""
        return f"{self._hidden} The 95 % interval of the accuracy is a Wilson score interval."

    @property
    def _hidden(self) -> str:
        number = len(self.label)
        if self.num_folds == 0:
            return (
                f"Leave-one-out: each of the {number:,} labels was predicted from all others by "
                "the last layer's regression. The graph, the metric and the hyperparameters were "
                "learned with that label, so the scores are slightly optimistic."
            )
        least, most = number // self.num_folds, math.ceil(number / self.num_folds)
        size = f"{most:,}" if least == most else f"{least:,} or {most:,}"
        return (
            f"Stratified {self.num_folds}-fold cross-validation: in each fold {size} of the "
            f"{number:,} labels were hidden and the model was fitted again without them, graph, "
            "metric and hyperparameters included. The scores count hidden labels only. The model "
            "itself learned from all labels, more than any of these fits had."
        )

    @property
    def macro_f1(self) -> float:
        """Mean over classes that have labels of the harmonic mean of precision and recall."""
        return float(self.f1(np.unique(self.label)).mean())

    def f1(self, classes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the harmonic mean of precision and recall of some classes."""
        options: dict[str, Any] = {"labels": classes, "average": None, "zero_division": 0}
        return np.asarray(f1_score(self.label, self.predicted, **options))

    def bins(self) -> list[tuple[int, float, float]]:
        """Return number, mean probability and accuracy of predictions, by tenths of probability."""
        sure = self.probability.max(-1)
        place = np.minimum((sure * _BINS).astype(np.int64), _BINS - 1)
        is_right = self.predicted == self.label
        return [
            (int(inside.sum()), float(sure[inside].mean()), float(is_right[inside].mean()))
            for inside in (place == k for k in range(_BINS))
            if inside.any()
        ]

    @property
    def calibration_error(self) -> float:
        """Mean distance of probability and accuracy over bins, weighted by their numbers."""
        return sum(n * abs(sure - right) for n, sure, right in self.bins()) / len(self.label)


def held_out(
    model: JLGCNClassifier, *, folds: int | None = None, progress: bool = False
) -> HeldOut | None:
    """Predict every label of a fitted model by others.

    With folds, a part of each class's labels is hidden at a time and the model fitted again, graph,
    metric and choices included: nothing of it has seen what it is asked for. Without, each label is
    predicted by all others in the last layer's regression, in one fit whose graph and metric did
    see it.

    Args:
        model: a fitted estimator.
        folds: in how many parts labels are hidden; 0 to leave each out in one fit. None for 5, and
            for 0 where there are more than 20,000 rows.
        progress: show a bar.

    Returns:
        What was predicted; None where there is one label only.

    Cost: a fit for each fold; without folds one eigendecomposition of n_components.

    Example:
        >>> from sklearn.datasets import load_wine
        >>> model = JLGCNClassifier().fit(*load_wine(return_X_y=True))
        >>> held_out(model, folds=0).accuracy > 0.9
        True
    """
    y = torch.from_numpy(label_codes(model))
    if folds is not None and (folds < 0 or folds == 1):
        raise ValueError(
            f"folds must be 2 or more, or 0 to leave labels out one by one, but it is {folds}"
        )
    fitted, train = model.model_, model.model_.train
    if len(train) < 2:
        return None
    if folds is None:
        folds = _FOLDS if len(y) <= _ROWS_FOR_FOLDS else 0
    labels = y[train]
    if folds == 0:
        scores = leave_one_out(fitted.inputs(), y, train, len(model.classes_))
        return HeldOut(labels.numpy(), scores.softmax(-1).numpy(), 0)
    folds = min(folds, len(train))
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))
    order = order[labels[order].argsort(stable=True)]  # class by class, each in a random order
    probability = torch.zeros(len(train), len(model.classes_), dtype=torch.float64)
    bar = tqdm(range(folds), desc="fits with labels hidden", disable=None if progress else True)
    for fold in bar:
        hidden = order[fold::folds]
        shown = torch.ones(len(train), dtype=torch.bool)
        shown[hidden] = False
        again = fit_closed_form(
            fitted.candidates.x,
            y,
            fitted.candidates.given,
            train=train[shown],
            options=model.closed_form_options(),
        )
        found = again.logits[train[hidden]].double().softmax(-1)
        probability[hidden, : found.shape[1]] = found  # the last classes may have no label left
    return HeldOut(labels.numpy(), probability.numpy(), folds)


def compare_again(model: JLGCNClassifier, *, progress: bool = False) -> Comparison:
    """Return :func:`jlgcn.compare` on a fitted model's own features, labels and given graph.

    Cost: that of :func:`jlgcn.compare`, 40 to 60 fits.
    """
    labels, candidates = label_codes(model), model.model_.candidates
    x = candidates.x.to_scipy() if isinstance(candidates.x, SparseFeatures) else candidates.x
    estimator = clone(model).set_params(scaler="none")  # the stored features are scaled
    return compare(
        np.asarray(x) if isinstance(x, torch.Tensor) else x,
        labels,
        candidates.given,
        estimator=estimator,
        progress=progress,
    )


def label_codes(model: JLGCNClassifier) -> NDArray[np.int64]:  # (n_samples,)
    """Return the place of every row's label in `classes_`; -1 for none."""
    check_is_fitted(model, "model_")
    codes = np.full(len(model.transduction_), -1)
    codes[model.model_.train.numpy()] = model.model_.labels.numpy()
    return codes
