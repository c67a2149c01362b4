"""Rows, edges and labels added to a model of shards."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from jlgcn._files import hash_of_document
from jlgcn.closed_form.fit import labelled_problem, refit_heads
from jlgcn.closed_form.options import ClosedFormOptions
from jlgcn.closed_form.scaling import FeatureScaler
from jlgcn.closed_form.shard_bytes import EDGES_BYTES
from jlgcn.closed_form.sharded import OldShards
from jlgcn.closed_form.sharded_prepare import prepare_nodes
from jlgcn.closed_form.shards import MAX_SHARDS
from jlgcn.engine.document import hash_of_present, names_of_parts, read_document
from jlgcn.engine.fit import (
    as_classes,
    check_widths,
    clean,
    joined_edges,
    labels_in,
    say_resumed,
    shard_bytes,
    write_model,
)
from jlgcn.engine.joins import join_labels
from jlgcn.engine.store import Store, absolute, below, sole_writer
from jlgcn.engine.table import check_classes, from_bytes, open_table, read_shard, stamp_of
from jlgcn.engine.tasks import Engine, Executor

logger = logging.getLogger(__name__)


def update_shards(
    uri: str,
    document: Mapping[str, Any],
    items: str | None,
    *,
    edges: str | None,
    labels: str | None,
    executor: Executor,
    shard_rows: int | None,
) -> dict[str, Any]:
    """Update a model by an executor, and return its document; see :meth:`ShardedModel.update`."""
    if items is edges is labels is None:
        raise ValueError("an update needs new rows, edges or labels; pass some")
    items, edges, labels = (
        None if each is None else absolute(each) for each in (items, edges, labels)
    )
    stamp, uri = stamp_of(items, edges, labels), absolute(uri)
    with sole_writer(uri):
        replaced, present = hash_of_present(uri), read_document(uri)
        if stamp in present["inputs"]:
            logger.warning("%s has these rows, edges and labels already", uri)
            clean(uri, present)
            return present
        if hash_of_document(present) != hash_of_document(dict(document)):
            raise ValueError(
                f"{uri} was changed since it was loaded; load it again, or go on with the model "
                "that update returned"
            )
        return _updated(uri, present, replaced, stamp, items, edges, labels, executor, shard_rows)


def _updated(
    uri: str,
    document: Mapping[str, Any],
    replaced: str | None,
    stamp: str,
    items: str | None,
    edges: str | None,
    labels: str | None,
    executor: Executor,
    shard_rows: int | None,
) -> dict[str, Any]:
    """Update the model that is there, whose document is to be replaced."""
    engine = Engine(Store(below(uri, "parts")), executor)
    id_column, label = document["id_column"], document["label_column"]
    head, known = (engine.store.tensors(document[name]) for name in ("head", "labels"))
    scaler = FeatureScaler(shift=head["shift"], scale=head["scale"], **document["scaler"])
    classes = [document["classes"][number] for number in known["y"].tolist()]
    texts = dict(zip(known["rows"].tolist(), classes, strict=True))
    bounds, raw = list(document["bounds"]), []
    if items is not None:
        table = open_table(
            items,
            id_column=id_column,
            label_column=label,
            features=document["columns"],
            shard_rows=shard_rows,
        )
        if len(document["x"]) + len(table.pieces) > MAX_SHARDS:
            raise ValueError(
                f"{uri} would have more than {MAX_SHARDS:,} shards; take shard_rows larger, or fit "
                "again"
            )
        tasks = [task | {"num_sampled": 1} for task in table.arguments()]
        say_resumed(engine.store, tasks, names_of_parts(document))
        read = engine.run(read_shard, tasks, num_bytes=shard_bytes(table))
        check_widths(read, table)
        if (width := len(read[0].summary["mean"])) != len(scaler.shift):
            raise ValueError(
                f"rows must have the {len(scaler.shift)} features of the model, but those of "
                f"{items} have {width}; pass the same columns"
            )
        new = [bounds[-1] + bound for bound in table.bounds]
        labels_of_new = labels_in(read, new)
        check_classes(items, label, labels_of_new.values())
        texts |= labels_of_new
        raw, bounds = [done.name for done in read], bounds + new[1:]
    predictions = below(uri, "predictions")
    ids = [below(predictions, f"{name}.parquet") for name in document["predictions"]] + raw
    join: dict[str, Any] = {"rows": ids, "bounds": bounds}
    joined = []
    if edges is not None:
        joined = joined_edges(engine, edges, join)
    task = join | {"uri": labels, "stamp": stamp_of(labels)}
    task |= {"id_column": id_column, "label_column": label}
    (done,) = engine.run(join_labels, [task], num_bytes=EDGES_BYTES)
    given = from_bytes(done.summary["labels"])
    if labels is not None:
        check_classes(labels, label, given)
    texts |= zip(done.summary["rows"].tolist(), given, strict=True)
    names, labeled, y = as_classes(texts, label)
    options = ClosedFormOptions(**document["options"])
    nodes = prepare_nodes(
        engine,
        raw,
        bounds,
        document["head"],
        document["scaler"],
        num_features=len(scaler.shift),
        is_sparse=scaler.kind == "words",
        num_components=options.n_components,
        num_candidates=options.n_candidates,
        edges=joined,
        old=OldShards(
            x=document["x"],
            projection=head["projection"],
            quantizer=document["quantizer"],
            index=document["index"],
            order=document["order"],
            edges=document["edges"],
            unit=document["unit"],
            learned=document["learned"],
            diffused=document["scores"],
        ),
    )
    problem = labelled_problem(nodes, nodes.numbers_of(labeled), y)
    fitted = refit_heads(problem, options, head["metric"])
    fields = {name: document[name] for name in ("columns", "id_column", "label_column")}
    fields |= {"classes": names, "labels": engine.keep({"rows": labeled, "y": y})}
    fields |= {"inputs": [*document["inputs"], stamp]}
    return write_model(uri, fields, problem, fitted, scaler, ids, replaced)
