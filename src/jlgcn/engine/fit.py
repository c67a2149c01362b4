"""Fit the closed form to Parquet files, by an engine."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from jlgcn.closed_form.fit import Fitted, fit_layers, labelled_problem
from jlgcn.closed_form.layer import Problem
from jlgcn.closed_form.options import ClosedFormOptions, check_options
from jlgcn.closed_form.scaling import KINDS, ColumnStatistics, FeatureScaler, Kind, guess_kind
from jlgcn.closed_form.shard_bytes import EDGES_BYTES
from jlgcn.closed_form.shard_runner import Done
from jlgcn.closed_form.sharded import (
    DiffusedShards,
    JoinedShards,
    ShardedNodes,
    classifier_tensors,
)
from jlgcn.closed_form.sharded_prepare import prepare_nodes
from jlgcn.engine.document import names_of_parts, write_document
from jlgcn.engine.joins import join_edges
from jlgcn.engine.predict import write_predictions
from jlgcn.engine.store import Store
from jlgcn.engine.table import (
    ItemTable,
    from_bytes,
    open_table,
    read_shard,
    stamp_of,
)
from jlgcn.engine.tasks import Engine, Executor

logger = logging.getLogger(__name__)

# Rows by which "auto" tells kinds of features apart.
_NUM_SAMPLED = 2000


def fit_shards(
    items: str,
    *,
    label: str,
    out: str,
    executor: Executor,
    edges: str | None = None,
    id_column: str | None = None,
    drop: Sequence[str] = (),
    scaler: Kind = "auto",
    options: ClosedFormOptions | None = None,
    shard_rows: int | None = None,
) -> dict[str, Any]:
    """Fit by an executor, and return the document; see :meth:`ShardedModel.fit`."""
    options = ClosedFormOptions() if options is None else options
    check_options(options)
    if options.control != "none":
        raise ValueError(
            f"control={options.control!r} is for fits in memory; pass control='none' to an engine"
        )
    if scaler not in KINDS:
        raise ValueError(f"scaler must be one of {', '.join(KINDS)}, but it is {scaler!r}")
    table = open_table(
        items, id_column=id_column, label_column=label, drop=drop, shard_rows=shard_rows
    )
    engine = Engine(Store(f"{out}/parts"), executor)
    bounds = table.bounds
    sampled = max(1, _NUM_SAMPLED // len(table.pieces))
    tasks = [task | {"num_sampled": sampled} for task in table.arguments()]
    read = engine.run(read_shard, tasks, num_bytes=shard_bytes(table))
    raw = [done.name for done in read]
    names, labeled, y = as_classes(labels_in(read, bounds), label)
    fitted_scaler = _scaler(read, scaler)
    settings = {name: getattr(fitted_scaler, name) for name in ("kind", "is_count", "power")}
    joined = []
    if edges is not None:
        task = {"uri": edges, "stamp": stamp_of(edges), "rows": raw, "bounds": bounds}
        joined = [done.name for done in engine.run(join_edges, [task], num_bytes=EDGES_BYTES)]
    nodes = prepare_nodes(
        engine,
        raw,
        bounds,
        engine.keep({"shift": fitted_scaler.shift, "scale": fitted_scaler.scale}),
        settings,
        num_features=len(fitted_scaler.scale),
        is_sparse=fitted_scaler.kind == "words",
        num_components=options.n_components,
        num_candidates=options.n_candidates,
        edges=joined,
    )
    problem = labelled_problem(nodes, nodes.numbers_of(labeled), y)
    fields = {
        "classes": names,
        "columns": list(table.columns),
        "id_column": id_column,
        "label_column": label,
        "labels": engine.keep({"rows": labeled, "y": y}),
        "inputs": [stamp_of(items, edges, None)],
    }
    return write_model(out, fields, problem, fit_layers(problem, options), fitted_scaler, raw)


def shard_bytes(table: ItemTable) -> int:
    """Return the memory that reading a shard takes."""
    return read_bytes(max(np.diff(table.bounds).tolist()), len(table.columns))


def read_bytes(rows: int, num_columns: int) -> int:
    """Return the memory that reading rows takes."""
    return 2**29 + 24 * rows * max(64, num_columns)


def labels_in(read: Sequence[Done], bounds: Sequence[int]) -> dict[int, str]:
    """Return the labels of rows that were read."""
    found: dict[int, str] = {}
    for done, first in zip(read, bounds, strict=False):
        rows = (done.summary["labeled"] + first).tolist()
        found |= zip(rows, from_bytes(done.summary["labels"]), strict=True)
    return found


def as_classes(labels: dict[int, str], column: str) -> tuple[list[str], Tensor, Tensor]:
    """Return names of classes, labelled rows and their classes."""
    if not labels:
        raise ValueError(f"column {column!r} has no label; label at least one row of each class")
    rows = sorted(labels)
    names, y = np.unique([labels[row] for row in rows], return_inverse=True)
    if len(names) == 1:
        raise ValueError(f"all labels are of one class, {names[0]!r}; label rows of every class")
    return names.tolist(), torch.tensor(rows), torch.from_numpy(y)


def _scaler(read: Sequence[Done], kind: Kind) -> FeatureScaler:
    parts = []
    for done in read:
        num_rows, largest, num_nonzero, mean, square, is_whole = (
            done.summary[name] for name in ColumnStatistics._fields
        )
        parts.append(
            ColumnStatistics(int(num_rows), largest, num_nonzero, mean, square, bool(is_whole))
        )
    if kind == "auto":
        kind = guess_kind(torch.cat([done.summary["sample"] for done in read]))
    return FeatureScaler.of_statistics(reduce(ColumnStatistics.merge, parts), kind)


def write_model(
    out: str,
    fields: dict[str, Any],
    problem: Problem[JoinedShards, DiffusedShards],
    fitted: Fitted[DiffusedShards],
    scaler: FeatureScaler,
    ids: list[str],
) -> dict[str, Any]:
    """Score all rows, write predictions and document, delete what is needed no more.

    Args:
        out: folder of the model.
        fields: classes, columns, labels and inputs of the document.
        problem: nodes and labels.
        fitted: what was fitted to them.
        scaler: the scaler of features.
        ids: file of each shard with its ids.
    """
    nodes, (head, *_) = problem.nodes, fitted.layers[::-1]
    assert isinstance(nodes, ShardedNodes)
    engine = nodes.runner
    assert isinstance(engine, Engine)
    scores, said = nodes.scores(fitted.diffused, fitted.classifier)
    tasks = [
        {
            "scores": scores,
            "order": nodes.order,
            "bounds": nodes.bounds,
            "ids": ids[shard],
            "shard": shard,
            **{name: fields[name] for name in ("id_column", "label_column", "classes")},
        }
        for shard in range(len(scores))
    ]
    writer = Engine(Store(f"{out}/predictions", *engine.store.uris), engine.executor)
    written = writer.run(write_predictions, tasks, num_bytes=2**29, suffix=".parquet")
    parts = {
        "shift": scaler.shift,
        "scale": scaler.scale,
        "projection": nodes.projection,
        "metric": head.metric,
    }
    document = fields | {
        "schema": 2,
        "options": asdict(fitted.options),
        "scaler": {name: getattr(scaler, name) for name in ("kind", "is_count", "power")},
        "bounds": nodes.bounds,
        "unit": nodes.unit,
        "learned_scale": fitted.diffused.joined.scale,
        "landmark_gamma": fitted.classifier.landmarks.gamma,
        "losses": [layer.loss for layer in fitted.layers],
        "evidence": str(fitted.evidence),
        "num_labels": len(problem.y),
        "head": engine.keep(parts | classifier_tensors(fitted.classifier)),
        "quantizer": nodes.quantizer,
        "index": nodes.index,
        "order": nodes.order,
        "edges": nodes.edges,
        "x": nodes.x,
        "learned": fitted.diffused.learned,
        "scores": scores,
        "said": said,
        "predictions": [done.name for done in written],
    }
    write_document(out, document)
    clean(out, document)
    return document


def clean(out: str, document: Mapping[str, Any]) -> None:
    """Delete the files that the model in a folder does not need."""
    Store(f"{out}/parts").keep_only(names_of_parts(document))
    Store(f"{out}/predictions").keep_only(set(document["predictions"]))
