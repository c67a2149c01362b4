"""Accuracy and calibration of a fitted model on held-out labels."""

from __future__ import annotations

import math
import warnings
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

from jlgcn.closed_form import ClosedFormModel
from jlgcn.estimator import JLGCNClassifier
from jlgcn.estimator.comparison import Comparison, compare
from jlgcn.estimator.rivals import Problem, rivals_that_fit
from jlgcn.estimator.solvers import fit_model

# Above so many rows, k-fold cross-validation only on request: it fits the model again.
_ROWS_FOR_FOLDS = 20_000
_FOLDS = 5
_BINS = 10


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Predictions of held-out labels.

    Attributes:
        label: true classes, (M,), as indices into `classes_`.
        probability: predicted class probabilities, (M, n_classes).
        num_folds: number of folds of the cross-validation; 0 for labels held out of one fit.
        rows: their rows, (M,).
        is_validation: whether these are the network's validation labels.
    """

    label: NDArray[np.int64]
    probability: NDArray[np.float64]
    num_folds: int
    rows: NDArray[np.int64]
    is_validation: bool = False

    @property
    def predicted(self) -> NDArray[np.int64]:
        """Predicted classes, (M,)."""
        predicted: NDArray[np.int64] = self.probability.argmax(-1)
        return predicted

    @property
    def accuracy(self) -> float:
        """Share of labels that are predicted correctly."""
        return float((self.predicted == self.label).mean())

    @property
    def accuracy_interval(self) -> tuple[float, float]:
        """95 % Wilson score interval of the accuracy (Wilson, 1927); it stays within 0 and 1."""
        right = int((self.predicted == self.label).sum())
        found = scipy.stats.binomtest(right, len(self.label)).proportion_ci(0.95, "wilson")
        return float(found.low), float(found.high)

    @property
    def protocol(self) -> str:
        """The evaluation protocol, in sentences."""
        return (
            f"{self._hidden} The 95 % interval of the accuracy is a Wilson score interval, which "
            "holds for few labels, too. Macro-F1 is the mean over classes of F1, the harmonic mean "
            "of precision (how many rows predicted as a class belong to it) and recall (how many "
            "rows of a class are found)."
        )

    @property
    def _hidden(self) -> str:
        number = len(self.label)
        if self.is_validation:
            return (
                f"Validation: the network was trained without these {number:,} labels, but they "
                "selected the epoch, so the scores are slightly optimistic."
            )
        if self.num_folds == 0:
            return (
                f"Cross-validation within the fit: each of {number:,} labels was predicted by "
                "classifiers, a metric and a graph that were learned without it. Hyperparameters, "
                "the weights of the classifiers and the temperature were selected with it, so the "
                "scores are slightly optimistic."
            )
        least, most = number // self.num_folds, math.ceil(number / self.num_folds)
        size = f"{most:,}" if least == most else f"{least:,} or {most:,}"
        return (
            f"Stratified {self.num_folds}-fold cross-validation: in each fold {size} of the "
            f"{number:,} labels were hidden and the model was fitted again without them, graph, "
            "metric and hyperparameters included. The scores count hidden labels only. The model "
            "itself had all labels, more than any of these fits."
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
        """Return count, mean confidence and accuracy of ten equal bins of confidence."""
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
        """Expected calibration error: mean |confidence - accuracy| over bins, by their counts."""
        return sum(n * abs(sure - right) for n, sure, right in self.bins()) / len(self.label)


def held_out(
    model: JLGCNClassifier, *, folds: int | None = None, progress: bool = False
) -> HeldOut | None:
    """Predict every label of a fitted model from the others, by cross-validation.

    Stratified k-fold: each fold's labels are held out of a complete fit, graph, metric and selected
    hyperparameters included. Without folds, the held-out predictions of the fit itself count: of
    the closed form, those of its own cross-validation, which selected hyperparameters; of a
    network, its validation labels, which selected the epoch.

    Args:
        model: a fitted estimator.
        folds (int ≥ 2, 0 or None, default None): number of folds; 0 for the held-out predictions
            of the fit itself. None is 5, and 0 above 20,000 rows.
        progress (bool, default False): show a progress bar.

    Returns:
        The predictions; None if there is one label only, or no validation label without folds.

    Cost: a fit for each fold, with all epochs of a network; nothing without folds.

    Example:
        >>> from sklearn.datasets import load_wine
        >>> model = JLGCNClassifier().fit(*load_wine(return_X_y=True))
        >>> held_out(model, folds=0).accuracy > 0.9
        True
    """
    y = torch.from_numpy(label_codes(model)).to(model.model_.logits.device)
    if folds is not None and (folds < 0 or folds == 1):
        raise ValueError(
            "folds must be 2 or more, or 0 for the held-out predictions of the fit itself, but it "
            f"is {folds}"
        )
    fitted, train = model.model_, model.model_.train
    if len(train) < 2:
        return None
    if folds is None:
        folds = _FOLDS if len(y) <= _ROWS_FOR_FOLDS else 0
    labels = y[train].cpu()
    if folds == 0:
        return _within_one_fit(model, y)
    folds = min(folds, len(train))
    cpu = torch.device("cpu")
    probability = torch.zeros(len(train), len(model.classes_), dtype=torch.float64, device=cpu)
    bar = tqdm(
        stratified(labels, folds), desc="cross-validation", disable=None if progress else True
    )
    for hidden in bar:
        is_shown = torch.ones(len(train), dtype=torch.bool, device=cpu)
        is_shown[hidden] = False
        with warnings.catch_warnings():  # of a class that has a single label
            warnings.filterwarnings("ignore", "no node of train has class", UserWarning)
            again = fit_model(
                model.get_params(),
                fitted.x,
                y,
                fitted.given,
                train[is_shown.to(train.device)],
                classes=model.classes_,
                progress=progress,
            )
        found = again.logits[train[hidden.to(train.device)]].double().softmax(-1).cpu()
        probability[hidden, : found.shape[1]] = found  # the last classes may have no label left
    return HeldOut(labels.numpy(), probability.numpy(), folds, train.cpu().numpy())


def _within_one_fit(model: JLGCNClassifier, y: torch.Tensor) -> HeldOut | None:
    """Predict labels that the fit itself held out."""
    fitted = model.model_
    if isinstance(fitted, ClosedFormModel):
        evidence = fitted.evidence
        rows = evidence.is_held_out.cpu()
        if not bool(rows.any()):
            return None
        probability = evidence.held_out.cpu()[rows].double().softmax(-1).numpy()
        labelled = fitted.train.cpu()[rows].numpy()
        return HeldOut(fitted.labels.cpu()[rows].numpy(), probability, 0, labelled)
    found = fitted.validation[~torch.isin(fitted.validation, fitted.learned_from)]
    if not len(found):
        return None
    probability = fitted.logits[found].double().softmax(-1).cpu().numpy()
    labels, labelled = y[found].cpu().numpy(), found.cpu().numpy()
    return HeldOut(labels, probability, 0, labelled, is_validation=True)


def stratified(labels: torch.Tensor, folds: int) -> list[torch.Tensor]:
    """Return the places of each stratified fold, on the CPU.

    Args:
        labels: classes, (M,), int64.
        folds: number of folds, at most M.
    """
    cpu = torch.device("cpu")  # folds do not depend on the device
    order = torch.randperm(len(labels), generator=torch.Generator(cpu).manual_seed(0), device=cpu)
    order = order[labels[order].argsort(stable=True)]  # class by class, each in a random order
    return [order[fold::folds] for fold in range(folds)]


def best_rival(
    model: JLGCNClassifier, scores: HeldOut, *, progress: bool = False
) -> tuple[str, float]:
    """Return the rival of highest accuracy on the held-out labels of a model, and its accuracy.

    Rivals (:func:`jlgcn.estimator.rivals.rivals_that_fit`) are tuned and fitted without the labels
    that they predict: those of each fold, or, where the model's own fit held labels out, of five
    stratified folds; of a network's validation labels, on all others. The best is chosen by the
    very accuracy that is returned, so it is slightly optimistic.

    Cost: logistic regressions of the labelled rows, and a kNN graph.
    """
    fitted, shown = model.model_, label_codes(model)
    problem = Problem(fitted.x.to("cpu"), len(model.classes_), fitted.given)
    labels = torch.from_numpy(scores.label)
    folds = [torch.arange(len(labels), device="cpu")]
    if not scores.is_validation:
        folds = stratified(labels, scores.num_folds or min(_FOLDS, len(labels)))
    right = {}
    rivals = rivals_that_fit(problem).items()
    for name, rival in tqdm(rivals, desc="rivals", disable=None if progress else True):
        right[name] = 0
        for hidden in folds:
            asked = scores.rows[hidden.numpy()]
            others = shown.copy()
            others[asked] = -1
            predicted = rival(problem, others).scores[asked].argmax(-1)
            right[name] += int((predicted == shown[asked]).sum())
    best = max(right, key=right.__getitem__)
    return best, right[best] / len(labels)


def compare_again(model: JLGCNClassifier, *, progress: bool = False) -> Comparison:
    """Return :func:`jlgcn.compare` on a fitted model's own features, labels and given graph.

    Cost: 30 to 50 fits, and the rivals.
    """
    x = model.model_.x
    estimator = clone(model).set_params(scaler="none")  # the stored features are scaled
    return compare(
        x.cpu().numpy() if isinstance(x, torch.Tensor) else x.to_scipy(),
        label_codes(model),
        model.model_.given,
        estimator=estimator,
        progress=progress,
    )


def label_codes(model: JLGCNClassifier) -> NDArray[np.int64]:  # (n_samples,)
    """Return the index of every row's label in `classes_`; -1 for unlabelled rows."""
    check_is_fitted(model, "model_")
    codes = np.full(len(model.transduction_), -1)
    codes[model.model_.train.cpu().numpy()] = model.model_.labels.cpu().numpy()
    return codes
