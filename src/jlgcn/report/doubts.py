"""What a person should check: doubtful labels, suspicious and missing edges, rows to label next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jlgcn.closed_form import ClosedFormModel
from jlgcn.estimator import JLGCNClassifier
from jlgcn.estimator.audit import Audit
from jlgcn.report.held_out import HeldOut

# Rows of a list: what a person reads in one sitting.
_LISTED = 20
_FEATURES = 3  # that explain an edge


class Doubts(NamedTuple):
    """A list of rows or edges to check.

    Attributes:
        name: what they are.
        note: how they were found.
        head: names of the columns.
        rows: cells of each line, as text.
    """

    name: str
    note: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def doubts(
    model: JLGCNClassifier,
    scores: HeldOut | None,
    audit: Audit | None,
    ids: Sequence[str],
    feature_names: Sequence[str],
) -> list[Doubts]:
    """Return the lists of a fitted model that have a line.

    Args:
        model: a fitted estimator.
        scores: predictions of held-out labels, for doubtful ones.
        audit: an audit of the given graph; None for none.
        ids: names of the rows, (N,).
        feature_names: names of the features, (F,).
    """
    found = [] if scores is None else [_labels(model, scores, ids)]
    if audit is not None:
        found.append(_edges(audit, ids, feature_names, missing=False))
        found.append(_edges(audit, ids, feature_names, missing=True))
    found.append(_rows_to_label(model, ids))
    return [each for each in found if each.rows]


def _labels(model: JLGCNClassifier, scores: HeldOut, ids: Sequence[str]) -> Doubts:
    own = scores.probability[np.arange(len(scores.label)), scores.label]
    wrong = np.flatnonzero(scores.predicted != scores.label)
    order = wrong[own[wrong].argsort(kind="stable")]
    rows = [
        (
            ids[scores.rows[place]],
            str(model.classes_[scores.label[place]]),
            f"{own[place]:.2f}",
            str(model.classes_[scores.predicted[place]]),
            f"{scores.probability[place].max():.2f}",
            *_text_of(model, int(scores.rows[place])),
        )
        for place in order[:_LISTED].tolist()
    ]
    note = (
        f"{len(wrong):,} of {len(scores.label):,} labels are not the class that was predicted "
        "while they were held out. Those of the smallest probability are first: the label is "
        "wrong, or the row is unlike its class."
    )
    head = ("row", "label", "its probability", "predicted", "probability", *_text_head(model))
    return Doubts("doubtful labels", note, head, rows)


def _edges(
    audit: Audit, ids: Sequence[str], feature_names: Sequence[str], *, missing: bool
) -> Doubts:
    table = audit.pairs.missing if missing else audit.pairs.suspicious
    rows = []
    for edge in range(min(_LISTED, len(table.source))):
        source, target = ids[int(table.source[edge])], ids[int(table.target[edge])]
        features, neighbors = audit.reasons(edge, missing=missing, number=_FEATURES)
        why = [f"{feature_names[k]} {value:+.2g}" for k, value in features]
        shared = [ids[k] for k in neighbors]
        named = ", ".join(shared[:_FEATURES]) + (", …" if len(shared) > _FEATURES else "")
        why.append(f"common neighbours: {named}" if shared else "no common neighbour")
        rows.append((source, target, f"{float(table.score[edge]):.3f}", "; ".join(why)))
    if missing:
        note = (
            "Pairs without a given edge that look like one. The score is the probability, at even "
            "odds, that the pair is an edge and not a random pair."
        )
    else:
        note = (
            f"About {audit.num_wrong:,} of the {len(table.source):,} given edges are no better "
            "than random pairs. Each was scored by a graph without it; the score is the "
            "probability, at even odds, that it is a random pair."
        )
    note += (
        " Beside it are the features whose contributions to the log-odds of an edge speak loudest "
        "for the listing."
    )
    name = "missing edges" if missing else "suspicious edges"
    return Doubts(name, note, ("row", "row", "score", "why"), rows)


def _rows_to_label(model: JLGCNClassifier, ids: Sequence[str]) -> Doubts:
    num_unlabelled = len(ids) - len(model.model_.train)
    number = min(_LISTED, num_unlabelled)
    chosen: Any = model.suggest_labels(number) if number else np.empty(0, dtype=np.int64)
    sure = model.label_distributions_
    rows = [
        (
            ids[row],
            str(model.classes_[sure[row].argmax()]),
            f"{sure[row].max():.2f}",
            *_text_of(model, row),
        )
        for row in chosen.tolist()
    ]
    inputs = (
        "all predictions" if isinstance(model.model_, ClosedFormModel) else "its last layer's fit"
    )
    note = (
        f"Labels of these rows would reduce the variance of {inputs} most (V-optimal design). "
        "Label all of them, then fit again."
    )
    head = ("row", "predicted", "probability", *_text_head(model))
    return Doubts("rows to label next", note, head, rows)


def _text_head(model: JLGCNClassifier) -> tuple[str, ...]:
    return () if model.table_ is None or model.table_.texts is None else ("row contents",)


def _text_of(model: JLGCNClassifier, row: int) -> tuple[str, ...]:
    return () if model.table_ is None or model.table_.texts is None else (model.table_.texts[row],)
