"""The HTML page of a fitted model: hyperparameters, held-out scores, graph, features."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from jlgcn._files import write_file
from jlgcn.estimator import JLGCNClassifier
from jlgcn.estimator.comparison import Comparison
from jlgcn.report.graph_view import COLORS, OTHER_COLOR, class_colors, graph_view
from jlgcn.report.held_out import HeldOut, compare_again, held_out
from jlgcn.report.render import render
from jlgcn.report.settings import loss_curve, settings

_FEATURES = 20
_CLASSES = 50  # lines of the table of classes
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
    progress: bool = False,
) -> HeldOut | None:
    """Write a self-contained HTML page about a fitted model, and return its held-out scores.

    Args:
        model: a fitted estimator.
        path: file to write; its folder is created if it does not exist.
        name (str, default "model"): title of the page.
        ids: names of the rows; None for their numbers.
        feature_names: names of the features; None for those of `fit`, or x0, x1, ….
        folds (int or None, default None): folds of the cross-validation, see
            :func:`jlgcn.report.held_out.held_out`.
        compares (bool, default False): also run :func:`jlgcn.compare` on the model's own rows.
        progress (bool, default False): show progress bars.

    Cost: :func:`jlgcn.report.held_out.held_out`, by default five fits, and
    :func:`jlgcn.report.graph_view.graph_view`; 40 to 70 more fits with `compares`.

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
    num_rows, num_features = len(model.transduction_), model.n_features_in_
    names = feature_names
    if names is None:
        names = getattr(model, "feature_names_in_", [f"x{k}" for k in range(num_features)])
    ids = [str(i) for i in range(num_rows)] if ids is None else ids
    for what, found, size in (("ids", ids, num_rows), ("feature_names", names, num_features)):
        if len(found) != size:
            raise ValueError(
                f"{what} must have {size:,} names, but it has {len(found):,}; pass one for each"
            )
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    comparison = compare_again(model, progress=progress) if compares else None
    scores = held_out(model, folds=folds, progress=progress)
    view = graph_view(model, ids, names, progress=progress)
    text = render(
        "model.html",
        styles=["page.css", "model_page.css"],
        script="graph_view.js",
        title=name,
        settings=settings(model),
        curve=loss_curve(model),
        losses=[f"{entry['loss']:.3f}" for entry in model.history_],
        has_given=model.model_.given is not None,
        scores=None if scores is None else _scores(model, scores),
        num_rows=f"{num_rows:,}",
        num_drawn=f"{len(view['row']['id']):,}",
        legend=_legend(model),
        view=view,
        features=_features(model, names),
        comparison=None if comparison is None else _comparison(comparison),
    )
    write_file(path, text)
    return scores


def _scores(model: JLGCNClassifier, scores: HeldOut) -> dict[str, Any]:
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
    return {
        "facts": [
            (
                "accuracy",
                f"{100 * scores.accuracy:.1f} %",
                f"95 %: {100 * low:.1f} to {100 * high:.1f}",
            ),
            ("macro-F1", f"{100 * scores.macro_f1:.1f} %", "mean over classes"),
            ("calibration error", f"{100 * scores.calibration_error:.1f} %", "expected; 0 is best"),
            ("baseline", f"{100 * counts.max() / counts.sum():.1f} %", "always the majority class"),
        ],
        "num_labels": len(scores.label),
        "protocol": scores.protocol,
        "num_folds": scores.num_folds,
        "num_single": int((counts == 1).sum()),
        "classes": classes,
        "num_not_listed": len(counts) - len(listed),
        "bins": scores.bins(),
    }


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
    added = model.model_.feature_importance(model.model_.num_column_layers - 1).cpu()
    order = added.argsort(descending=True, stable=True)[:_FEATURES].tolist()
    most = max(float(added.max()), 1e-300)
    return {
        "total": float(added.sum()),
        "number": f"{len(added):,}",
        "bars": [
            (names[k], 100 * max(0.0, float(added[k])) / most, float(added[k])) for k in order
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
