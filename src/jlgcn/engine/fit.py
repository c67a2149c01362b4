"""Fit the closed form to Parquet files, by an engine."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from jlgcn._files import sha256_of
from jlgcn._saved import DOCUMENT as DOCUMENT_IN_MEMORY
from jlgcn.closed_form.fit import Fitted, fit_layers, labelled_problem
from jlgcn.closed_form.layer import Problem
from jlgcn.closed_form.options import ClosedFormOptions, check_options
from jlgcn.closed_form.scaling import KINDS, ColumnStatistics, FeatureScaler, Kind, guess_kind
from jlgcn.closed_form.shard_bytes import EDGES_BYTES, PROCESS_BYTES
from jlgcn.closed_form.shard_runner import Done
from jlgcn.closed_form.sharded import (
    DiffusedShards,
    JoinedShards,
    ShardedNodes,
    classifier_tensors,
)
from jlgcn.closed_form.sharded_prepare import prepare_nodes
from jlgcn.engine.document import (
    DOCUMENT,
    hash_of_present,
    names_of_parts,
    read_document,
    write_document,
)
from jlgcn.engine.joins import join_edges, join_labels
from jlgcn.engine.predict import write_predictions
from jlgcn.engine.store import Store, absolute, below, sole_writer
from jlgcn.engine.table import (
    ItemTable,
    check_classes,
    from_bytes,
    open_table,
    read_shard,
    stamp_of,
)
from jlgcn.engine.tasks import Engine, Executor, Task

logger = logging.getLogger(__name__)

# Rows by which "auto" tells kinds of features apart.
_NUM_SAMPLED = 2000

# Classes for each label above which labels look like names or measurements.
_MAX_CLASS_SHARE = 0.5

# Bytes of an id while all are compared.
_ID_BYTES = 256

_NONE: Set[str] = frozenset()


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
    overwrite: bool = False,
) -> dict[str, Any]:
    """Fit by an executor, and return the document; see :meth:`ShardedModel.fit`."""
    items, out = absolute(items), absolute(out)
    edges = None if edges is None else absolute(edges)
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
    stamp = stamp_of(items, edges, None)
    asked = [stamp, label, id_column, sorted(drop), scaler, asdict(options), shard_rows]
    inputs = [stamp, f"fit-{sha256_of(json.dumps(asked).encode())}"]
    if id_column is None and (like_ids := [name for name in table.columns if _names_rows(name)]):
        logger.warning(
            "features are named like ids: %s; name the rows by one with --id (id_column=), leave "
            "out others with --drop (drop=)",
            ", ".join(map(repr, like_ids)),
        )
    with sole_writer(out):
        replaced = hash_of_present(out)
        if (present := _model_in(out, inputs[1], overwrite=overwrite)) is not None:
            return present
        engine = Engine(Store(below(out, "parts")), executor)
        bounds = table.bounds
        sampled = max(1, _NUM_SAMPLED // len(table.pieces))
        tasks = [task | {"num_sampled": sampled} for task in table.arguments()]
        if not overwrite:
            say_resumed(engine.store, tasks)
        read = engine.run(read_shard, tasks, num_bytes=shard_bytes(table))
        check_widths(read, table)
        raw = [done.name for done in read]
        labels = labels_in(read, bounds)
        check_classes(items, label, labels.values())
        names, labeled, y = as_classes(labels, label)
        fitted_scaler = _scaler(read, scaler)
        settings = {name: getattr(fitted_scaler, name) for name in ("kind", "is_count", "power")}
        joined = []
        rows: dict[str, Any] = {"rows": raw, "bounds": bounds}
        if edges is not None:
            joined = joined_edges(engine, edges, rows)
        elif id_column is not None:  # only check that no id is there twice
            task = rows | {"uri": None, "stamp": stamp_of(None)}
            task |= {"id_column": id_column, "label_column": label}
            num_bytes = min(EDGES_BYTES, PROCESS_BYTES + _ID_BYTES * bounds[-1])
            engine.run(join_labels, [task], num_bytes=num_bytes)
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
            "inputs": inputs,
        }
        fitted = fit_layers(problem, options)
        return write_model(out, fields, problem, fitted, fitted_scaler, raw, replaced)


def _names_rows(column: str) -> bool:
    return column.lower() == "id" or column.lower().endswith("_id")


def _model_in(out: str, asked: str, *, overwrite: bool) -> dict[str, Any] | None:
    """Return the model in a folder if it is the one asked for; raise if it is another."""
    store = Store(out)
    if store.has(DOCUMENT_IN_MEMORY, ""):
        raise FileExistsError(f"{out} holds a model that was fitted in memory; pass another --out")
    if overwrite or not store.has(DOCUMENT, ""):
        return None
    document = read_document(out)
    if asked not in document["inputs"]:
        raise FileExistsError(
            f"{out} holds a model of other data or options; pass another --out, or --overwrite "
            "(overwrite=True)"
        )
    num_updates = len(document["inputs"]) - document["inputs"].index(asked) - 1
    since = f", and has been updated since (updates: {num_updates})" if num_updates else ""
    logger.warning("%s is there already, of the same inputs%s", out, since)
    clean(out, document)
    return document


def say_resumed(store: Store, tasks: Sequence[Mapping[str, Any]], known: Set[str] = _NONE) -> None:
    """Say how many tasks are done, if one of those that read shards is.

    Args:
        store: where their files are.
        tasks: arguments of the tasks that read shards.
        known: files of a model, which are not counted.
    """
    done = {name for name in store.names() if not name.startswith("kept-")} - known
    if any(Task.of(read_shard, task).name in done for task in tasks):
        logger.info("goes on: %s tasks are done already", f"{len(done):,}")


def joined_edges(engine: Engine, edges: str, rows: Mapping[str, Any]) -> list[str]:
    """Join edges to numbers of rows, say how many do, and return the names of files.

    Args:
        engine: runs the join.
        edges: Parquet files of edges.
        rows: files of ids, and bounds of shards.
    """
    task = {**rows, "uri": edges, "stamp": stamp_of(edges)}
    (done,) = engine.run(join_edges, [task], num_bytes=EDGES_BYTES)
    if "num_edges" in done.summary:  # not in files of earlier versions
        count, joined = (int(done.summary[name]) for name in ("num_edges", "num_joined"))
        text = f"{joined:,} of {count:,} edges join two rows"
        for unknown in from_bytes(done.summary["unknown"]):
            text += f"; {count - joined:,} name an id that no row has (such as {unknown!r})"
        logger.log(logging.WARNING if 2 * joined < count else logging.INFO, "%s", text)
    return [done.name]


def shard_bytes(table: ItemTable) -> int:
    """Return the memory that reading a shard takes."""
    return read_bytes(max(np.diff(table.bounds).tolist()), table.width) + table.group_bytes


def read_bytes(rows: int, num_features: int) -> int:
    """Return the memory that rows take, besides the row groups that they are read from."""
    return 2**29 + 24 * rows * max(64, num_features)


def check_widths(read: Sequence[Done], table: ItemTable) -> None:
    """Raise if the lists of a column are of one length in some shards and of another in others."""
    expected = read[0].summary["widths"].tolist()
    for done in read:
        for name, one, other in zip(
            table.columns, expected, done.summary["widths"].tolist(), strict=True
        ):
            if one != other:
                raise ValueError(
                    f"column {name!r} has lists of {one} numbers in some files of {table.uri} and "
                    f"of {other} in others; write vectors of one length"
                )


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
    if len(names) > _MAX_CLASS_SHARE * len(rows):
        logger.warning(
            "%s labels in %r are of %s classes: is this the column of classes?",
            *(f"{len(rows):,}", column, f"{len(names):,}"),
        )
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
    replaced: str | None,
) -> dict[str, Any]:
    """Score all rows, write predictions and document, delete what is needed no more.

    Args:
        out: folder of the model.
        fields: classes, columns, labels and inputs of the document.
        problem: nodes and labels.
        fitted: what was fitted to them.
        scaler: the scaler of features.
        ids: file of each shard with its ids.
        replaced: hash of the document that is replaced, see :func:`write_document`.
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
    writer = Engine(Store(below(out, "predictions"), *engine.store.uris), engine.executor)
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
    write_document(out, document, replaced)
    clean(out, document)
    return document


def clean(out: str, document: Mapping[str, Any]) -> None:
    """Delete the files that the model in a folder does not need; call it as the sole writer."""
    Store(out).remove_leftovers()
    of_folder = {"parts": names_of_parts(document), "predictions": set(document["predictions"])}
    for folder, needed in of_folder.items():
        store = Store(below(out, folder))
        store.keep_only(needed)
        store.remove_leftovers()
