"""The HTML page of a fitted model: its worth, what to check, graph, features, hyperparameters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

import jlgcn
from jlgcn._files import write_file
from jlgcn.closed_form import ClosedFormModel
from jlgcn.closed_form.audit import NUM_FOLDS
from jlgcn.estimator import JLGCNClassifier
from jlgcn.estimator.comparison import Comparison
from jlgcn.estimator.encoding import column_names, sum_by_name
from jlgcn.graphs.explanation import mean_contributions
from jlgcn.report.doubts import doubts
from jlgcn.report.graph_view import COLORS, OTHER_COLOR, class_colors, graph_view
from jlgcn.report.held_out import HeldOut, best_rival, compare_again, held_out
from jlgcn.report.render import render
from jlgcn.report.settings import loss_curve, settings

_FEATURES = 20
_CLASSES = 50  # lines of the table of classes
_CONFUSED = 12  # classes of the confusion matrix
_ROWS_FOR_AUDIT = 20_000  # above, an audit is made on request
_INTERVAL = ("mean", "low", "high")


def write_model_page(
    model: JLGCNClassifier,
    path: str | Path,
    *,
    name: str = "model",
    ids: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    folds: int | None = None,
    compares: bool = False,
    audits: bool | None = None,
    progress: bool = False,
) -> HeldOut | None:
    """Write a self-contained HTML page about a fitted model, and return its held-out scores.

    Args:
        model: a fitted estimator.
        path: file to write; its folder is created if it does not exist.
        name (str, default "model"): title of the page.
        ids: names of the rows; None for their numbers.
        feature_names: names of the features; None for those of `fit`, or x0, x1, …. Contributions
            of features that share a name, as all of one column of a raw table do, are summed.
        folds (int or None, default None): folds of the cross-validation, see
            :func:`jlgcn.report.held_out.held_out`.
        compares (bool, default False): also run :func:`jlgcn.compare` on the model's own rows.
        audits (bool or None, default None): list suspicious and missing edges,
            :meth:`JLGCNClassifier.audit`; None for the closed form with ten or more given edges, up
            to 20,000 rows.
        progress (bool, default False): show progress bars.

    Cost: :func:`jlgcn.report.held_out.held_out`, by default five fits,
    :func:`jlgcn.report.held_out.best_rival`, the audit and
    :func:`jlgcn.report.graph_view.graph_view`; 30 to 50 more fits with `compares`.

    Example:
        >>> import tempfile
        >>> from sklearn.datasets import load_wine
        >>> model = JLGCNClassifier().fit(*load_wine(return_X_y=True))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     scores = write_model_page(model, Path(folder) / "wine.html", folds=0)
        >>> scores.accuracy > 0.9
        True
    """
    check_is_fitted(model, "model_")
    num_rows, num_features = len(model.transduction_), model.model_.x.shape[1]
    names = column_names(model) if feature_names is None else feature_names
    ids = [str(i) for i in range(num_rows)] if ids is None else ids
    for what, found, size in (("ids", ids, num_rows), ("feature_names", names, num_features)):
        if len(found) != size:
            raise ValueError(
                f"{what} must have {size:,} names, but it has {len(found):,}; pass one for each"
            )
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    comparison = compare_again(model, progress=progress) if compares else None
    scores = held_out(model, folds=folds, progress=progress)
    audit = model.audit() if (_can_audit(model) if audits is None else audits) else None
    view = graph_view(model, ids, names, progress=progress)
    text = render(
        "model.html",
        styles=["page.css", "model_page.css"],
        script="graph_view.js",
        title=name,
        about=_about(model),
        settings=settings(model),
        notes=getattr(model.encoder_, "notes_", {}),
        curve=loss_curve(model),
        losses=[f"{entry['loss']:.3f}" for entry in model.history_],
        has_given=model.model_.given is not None,
        scores=None if scores is None else _scores(model, scores, progress=progress),
        audited=audit is not None,
        doubts=doubts(model, scores, audit, ids, names),
        num_rows=f"{num_rows:,}",
        num_drawn=f"{len(view['row']['id']):,}",
        legend=_legend(model),
        view=view,
        features=_features(model, names),
        comparison=None if comparison is None else _comparison(comparison),
    )
    write_file(path, text)
    return scores


def _about(model: JLGCNClassifier) -> str:
    """Return what is predicted from what, with date and version."""
    target = "the class" if model.table_ is None else f"“{model.table_.label_column}”"
    number, labels = len(model.transduction_), len(model.model_.train)
    return (
        f"Predicts {target} of {number:,} rows from {labels:,} labels of "
        f"{len(model.classes_):,} {'class' if len(model.classes_) == 1 else 'classes'}. Page of "
        f"{datetime.now(UTC):%Y-%m-%d}, by jlgcn {jlgcn.__version__}."
    )


def _can_audit(model: JLGCNClassifier) -> bool:
    fitted = model.model_
    if not isinstance(fitted, ClosedFormModel) or fitted.given is None:
        return False
    num_edges = int((fitted.given.edge_index[0] != fitted.given.edge_index[1]).sum()) // 2
    return num_edges >= 2 * NUM_FOLDS and len(model.transduction_) <= _ROWS_FOR_AUDIT


def _scores(model: JLGCNClassifier, scores: HeldOut, *, progress: bool) -> dict[str, Any]:
    counts = np.bincount(scores.label, minlength=len(model.classes_))
    low, high = scores.accuracy_interval
    listed = np.argsort(-counts, kind="stable")[:_CLASSES]
    listed = np.sort(listed[counts[listed] > 0])
    rows = np.bincount(model.label_distributions_.argmax(-1), minlength=len(counts))
    classes = []
    for code, f1 in zip(listed, scores.f1(listed), strict=True):
        right = int(((scores.predicted == code) & (scores.label == code)).sum())
        cells = (f"{counts[code]:,}", f"{right:,}", f"{100 * f1:.1f} %", f"{rows[code]:,}")
        classes.append((model.classes_[code], cells))
    rival, accuracy = best_rival(model, scores, progress=progress)
    return {
        "facts": [
            (
                "accuracy",
                f"{100 * scores.accuracy:.1f} %",
                f"95 %: {100 * low:.1f} to {100 * high:.1f}",
            ),
            ("best rival", f"{100 * accuracy:.1f} %", rival),
            ("macro-F1", f"{100 * scores.macro_f1:.1f} %", "every class counts alike"),
            ("calibration error", f"{100 * scores.calibration_error:.1f} %", "expected; 0 is best"),
            ("baseline", f"{100 * counts.max() / counts.sum():.1f} %", "always the majority class"),
        ],
        "num_labels": len(scores.label),
        "protocol": scores.protocol,
        "num_folds": scores.num_folds,
        "num_single": int((counts == 1).sum()),
        "classes": classes,
        "num_not_listed": len(counts) - len(listed),
        "confusion": _confusion(model, scores, counts),
        "bins": scores.bins(),
    }


def _confusion(
    model: JLGCNClassifier, scores: HeldOut, counts: NDArray[np.int64]
) -> dict[str, Any]:
    """Return the confusion matrix of the classes with most labels, others summed."""
    listed = np.argsort(-counts, kind="stable")[:_CONFUSED]
    listed = np.sort(listed[counts[listed] > 0])
    has_others = int((counts > 0).sum()) > len(listed)
    place = np.full(len(counts), len(listed))
    place[listed] = np.arange(len(listed))
    size = len(listed) + 1
    matrix = np.zeros((size, size), dtype=np.int64)
    np.add.at(matrix, (place[scores.label], place[scores.predicted]), 1)
    # A class without any label may be predicted in folds that lack another one.
    shown = size if has_others or matrix[:, -1].any() else size - 1
    names = [*(str(model.classes_[code]) for code in listed), "others"][:shown]
    share = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    rows = [
        [(f"{matrix[i, j]:,}", round(45 * float(share[i, j])), i == j) for j in range(shown)]
        for i in range(shown)
        if matrix[i].any()
    ]
    heads = [name for i, name in enumerate(names) if matrix[i].any()]
    return {"names": names, "rows": list(zip(heads, rows, strict=True))}


def _legend(model: JLGCNClassifier) -> list[tuple[str, object]]:
    colors = class_colors(model)
    legend = [
        (color, name)
        for color, name in zip(colors, model.classes_, strict=True)
        if color != OTHER_COLOR
    ]
    if len(colors) > len(COLORS):
        legend.append((OTHER_COLOR, f"{len(colors) - len(COLORS)} other classes"))
    return legend


def _features(model: JLGCNClassifier, names: Sequence[str]) -> dict[str, Any]:
    layer = model.model_.num_column_layers - 1
    added, names = sum_by_name(model.model_.feature_importance(layer).cpu(), names)
    share = None
    if isinstance(model.model_, ClosedFormModel):
        fitted = model.model_
        metric = fitted.layers[layer].metric
        if bool(metric.any()):
            whole = mean_contributions(fitted.x, metric, 1 / fitted.candidates.unit)
            share = f"{100 * float(added.sum() / whole.sum()):.0f} %"
    order = added.argsort(descending=True, stable=True)[:_FEATURES].tolist()
    most, whole_sum = max(float(added.max()), 1e-300), max(float(added.sum()), 1e-300)
    return {
        "share": share,
        "shown": f"All {len(added):,}"
        if len(order) == len(added)
        else f"The {len(order)} largest of {len(added):,}",
        "bars": [
            (
                names[k],
                100 * max(0.0, float(added[k])) / most,
                f"{100 * float(added[k]) / whole_sum:.1f} %",
            )
            for k in order
        ],
    }


def _comparison(comparison: Comparison) -> dict[str, Any]:
    variants = []
    for name in comparison.accuracy:
        mean, low, high = (100 * comparison.interval(name)[part] for part in _INTERVAL)
        balanced = 100 * np.mean(comparison.balanced_accuracy[name])
        loss = np.mean(comparison.log_loss[name])
        cells = (f"{mean:.1f} %", f"{low:.1f} to {high:.1f}", f"{balanced:.1f} %", f"{loss:.3f}")
        variants.append((name, cells))
    return {"advice": comparison.advice, "variants": variants, "protocol": comparison.protocol}
