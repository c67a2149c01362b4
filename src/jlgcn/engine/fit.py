"""Fit the closed form to Parquet files, by an engine."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from jlgcn.closed_form.fit import Fitted, fit_layers, labelled_problem
from jlgcn.closed_form.options import ClosedFormOptions, check_options
from jlgcn.closed_form.scaling import KINDS, ColumnStatistics, FeatureScaler, Kind, guess_kind
from jlgcn.closed_form.sharded import DiffusedShards, Done, ShardedNodes, classifier_tensors
from jlgcn.engine.document import write_document
from jlgcn.engine.predict import write_predictions
from jlgcn.engine.store import Store
from jlgcn.engine.table import (
    ItemTable,
    from_bytes,
    join_edges,
    open_table,
    read_shard,
    stamp_of,
)
from jlgcn.engine.tasks import Engine, Executor

logger = logging.getLogger(__name__)

# Memory of the join of edges: two thirds are DuckDB's.
_JOIN_BYTES = 3 * 2**30

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
    shard_bytes = 2**29 + 24 * max(np.diff(bounds).tolist()) * max(64, len(table.columns))
    tasks = [task | {"num_sampled": sampled} for task in table.arguments()]
    read = engine.run(read_shard, tasks, num_bytes=shard_bytes)
    raw = [done.name for done in read]
    names, labeled, y = _labels(read, bounds, label)
    fitted_scaler = _scaler(read, scaler)
    settings = {name: getattr(fitted_scaler, name) for name in ("kind", "is_count", "power")}
    joined = None
    if edges is not None:
        task = {"uri": edges, "stamp": stamp_of(edges), "raw": raw, "bounds": bounds}
        joined = engine.run(join_edges, [task], num_bytes=_JOIN_BYTES)[0].name
    nodes = ShardedNodes.prepare(
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
    fitted = fit_layers(labelled_problem(nodes, labeled, y), options)
    return _write(out, table, engine, nodes, fitted, fitted_scaler, names, raw, len(y))


def _labels(
    read: Sequence[Done], bounds: Sequence[int], label: str
) -> tuple[list[str], Tensor, Tensor]:
    """Return names of classes, labelled rows and their classes."""
    rows = torch.cat(
        [done.summary["labeled"] + first for done, first in zip(read, bounds, strict=False)]
    )
    texts = [text for done in read for text in from_bytes(done.summary["labels"])]
    if not texts:
        raise ValueError(f"column {label!r} has no label; label at least one row of each class")
    names, y = np.unique(texts, return_inverse=True)
    if len(names) == 1:
        raise ValueError(f"all labels are of one class, {names[0]!r}; label rows of every class")
    return names.tolist(), rows, torch.from_numpy(y)


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


def _write(
    out: str,
    table: ItemTable,
    engine: Engine,
    nodes: ShardedNodes,
    fitted: Fitted[DiffusedShards],
    scaler: FeatureScaler,
    classes: list[str],
    raw: list[str],
    num_labels: int,
) -> dict[str, Any]:
    """Score all rows, write predictions and document, delete what prediction does not need."""
    scores, said = nodes.scores(fitted.diffused, fitted.classifier)
    tasks = [
        {
            "scores": scores[shard],
            "raw": raw[shard],
            "id_column": table.id_column,
            "label_column": table.label_column,
            "classes": classes,
            "first": first,
            "shard": shard,
        }
        for shard, first in enumerate(nodes.bounds[:-1])
    ]
    writer = Engine(Store(f"{out}/predictions", *engine.store.uris), engine.executor)
    writer.run(write_predictions, tasks, num_bytes=2**29, suffix=".parquet")
    head = engine.keep(
        {
            "shift": scaler.shift,
            "scale": scaler.scale,
            "projection": nodes.projection,
            "metric": fitted.layers[-1].metric,
            **classifier_tensors(fitted.classifier),
        }
    )
    document = {
        "schema": 1,
        "options": asdict(fitted.options),
        "classes": classes,
        "columns": list(table.columns),
        "id_column": table.id_column,
        "label_column": table.label_column,
        "scaler": {n: getattr(scaler, n) for n in ("kind", "is_count", "power")},
        "bounds": nodes.bounds,
        "unit": nodes.unit,
        "learned_scale": fitted.diffused.joined.scale,
        "landmark_gamma": fitted.classifier.landmarks.gamma,
        "losses": [layer.loss for layer in fitted.layers],
        "evidence": str(fitted.evidence),
        "num_labels": num_labels,
        "head": head,
        "index": nodes.index,
        "x": nodes.x,
        "scores": scores,
        "said": list(said),
    }
    write_document(out, document)
    needed = {head, nodes.index, *nodes.x, *scores, *said}
    engine.store.remove([name for name in engine.store.names() if name not in needed])
    return document
