"""Stages of prediction: new rows attached against the kept index, and files of predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from jlgcn._optional import require
from jlgcn.closed_form.model import AttachedRows
from jlgcn.closed_form.shard_graphs import read_classifier
from jlgcn.closed_form.shards import Files, Output, Rows, scaled, searched
from jlgcn.engine.table import ids_of, read_ids, read_rows
from jlgcn.graphs.candidates import Candidates, Features
from jlgcn.ops.cells import CellIndex

#: New rows that are attached at a time.
BATCH_ROWS = 4096


def attach_rows(
    files: Files,
    model: Mapping[str, Any],
    uri: str,
    columns: Sequence[str],
    id_column: str | None,
    label_column: str | None,
    pieces: Any,  # noqa: ANN401
    stamp: str,
    shard: int,
    first: int,
) -> Output:
    """Predict the rows of a part of a table by attaching each to the fitted rows."""
    raw, _, ids, _ = read_rows(uri, columns, id_column, label_column, pieces)
    head, options = files.tensors(model["head"]), model["options"]
    if raw.shape[1] != len(head["shift"]):
        raise ValueError(
            f"rows must have the {len(head['shift'])} features of the model, but those of {uri} "
            f"have {raw.shape[1]}; pass the same columns"
        )
    index = CellIndex.read(files.path(model["index"]))
    classifier = read_classifier(head, model["landmark_gamma"])
    bounds, metric = model["bounds"], head["metric"]
    rows = Rows(files, model["x"], bounds)
    fitted = Rows(files, model["scores"], bounds)
    empty = torch.zeros(0, 0)

    def read(batch: torch.Tensor) -> tuple[Features, torch.Tensor]:
        x = scaled(files, model["head"], model["scaler"], batch)
        return x, x @ head["projection"]

    # One cell after the other, so that rows of a batch share neighbours.
    cells = torch.cat([index.cells_of(searched(*read(batch))) for batch in raw.split(BATCH_ROWS)])
    order = cells[:, 0].argsort(stable=True)
    parts = []
    for batch in order.split(BATCH_ROWS):
        x, own = read(raw[batch])
        count = min(options["n_candidates"], bounds[-1])
        found, _ = index.search(searched(x, own), count, cells[batch])
        near, place = found.clamp(min=0).unique(return_inverse=True)
        candidates = Candidates(rows.features(near), model["unit"], empty, empty, None, None)
        edges = candidates.attach_to(
            place.masked_fill(found < 0, -1),
            x,
            metric,
            model["learned_scale"],
            None,
            num_neighbors=options["n_neighbors"],
        )
        diffused, degree = fitted.gather("diffused", near), fitted.gather("degree", near)
        attached = AttachedRows(*edges, diffused, degree)
        scores = attached.scores(own, classifier, options["restart"])
        if len(classifier.blocks):
            scores = scores + x @ classifier.blocks[0]
        parts.append(scores)
    if ids is None:
        ids = ids_of({}, first, len(raw))
    names = (model["id_column"], model["label_column"], model["classes"])
    return predictions(torch.cat(parts)[order.argsort()], ids, *names)


def write_predictions(
    files: Files,
    scores: list[str],
    order: str,
    bounds: list[int],
    ids: str,
    id_column: str | None,
    label_column: str,
    classes: Sequence[str],
    shard: int,
) -> Output:
    """Write the predictions of a shard of fitted rows, in the order of the table."""
    first, last = bounds[shard : shard + 2]
    numbers = files.tensors(order)["number"][first:last].long()
    logits = Rows(files, scores, bounds).gather("logits", numbers)
    names = read_ids(files, ids, first, last - first)
    return predictions(logits, names, id_column, label_column, classes)


def predictions(
    logits: torch.Tensor,
    ids: Any,  # noqa: ANN401
    id_column: str | None,
    label_column: str,
    classes: Sequence[str],
) -> Output:
    """Return a Parquet file with id, class and probability of rows."""
    arrow = require("pyarrow", "scale", "writing predictions")
    parquet = require("pyarrow.parquet", "scale", "writing predictions")
    probability, best = logits.double().softmax(-1).max(-1)
    names = arrow.DictionaryArray.from_arrays(best.int().numpy(), arrow.array(list(classes)))
    columns = {id_column or "row": ids, label_column: names}
    table = arrow.table(columns | {"probability": probability.float().numpy()})

    def write(file: Any) -> None:  # noqa: ANN401
        # To an open file, which the store opened by its safe writer.
        with parquet.ParquetWriter(file, table.schema) as writer:
            writer.write(table)

    return Output(write=write, suffix=".parquet")
