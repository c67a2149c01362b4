"""A model fitted to shards: its document, and predictions of new rows against the kept index."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from jlgcn._files import hash_of_document
from jlgcn._optional import require
from jlgcn._schema import flag, list_of, maybe, real, record, text, whole, word
from jlgcn.closed_form.model import AttachedRows
from jlgcn.closed_form.options import CHECKS
from jlgcn.closed_form.scaling import KINDS
from jlgcn.closed_form.shards import Files, Output, Rows, read_classifier, scaled, searched
from jlgcn.engine.store import Store
from jlgcn.engine.table import ids_of, open_table, read_rows
from jlgcn.engine.tasks import Engine, Executor
from jlgcn.graphs.candidates import Candidates
from jlgcn.ops.cells import CellIndex

DOCUMENT = "shards.json"

# New rows that are attached at a time.
_BATCH_ROWS = 4096

_MANY = 10**9
_NAME = text(100_000)
_NAMES = list_of(_NAME, _MANY)
_AMOUNT = real(0, 1e300)

#: Names, types and ranges of the document's fields.
_CHECK = record(
    {
        "schema": whole(1, 1),
        "sha256": text(64),
        "options": record(CHECKS),
        "classes": _NAMES,
        "columns": _NAMES,
        "id_column": maybe(_NAME),
        "label_column": _NAME,
        "scaler": record(
            {"kind": word(*KINDS[1:]), "is_count": flag, "power": real(0, 1, above=True)}
        ),
        "bounds": list_of(whole(0, 2**62), _MANY),
        "unit": real(0, 1e300, above=True),
        "learned_scale": _AMOUNT,
        "landmark_gamma": _AMOUNT,
        "losses": list_of(_AMOUNT, 1000),
        "evidence": text(10_000),
        "num_labels": whole(1, 2**62),
        "head": _NAME,
        "index": _NAME,
        "x": _NAMES,
        "scores": _NAMES,
        "said": _NAMES,
    }
)


@dataclass(frozen=True, eq=False)
class ShardedModel:
    """A closed-form model whose rows are in shards; :func:`fit_shards` writes it.

    Its folder has ``shards.json``; ``parts`` with the index, features, diffused features and scores
    of the fitted rows, to which new rows are attached; and ``predictions``, Parquet files with id,
    class and probability of every fitted row.

    Attributes:
        uri: its folder, on disk or in an object store.
        document: the fields of ``shards.json``.
    """

    uri: str
    document: Mapping[str, Any]

    @classmethod
    def load(cls, uri: str) -> ShardedModel:
        """Return the model in a folder."""
        try:
            found = json.loads(Store(uri).read(DOCUMENT))
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{uri} holds no model of shards: {DOCUMENT} is missing; pass the folder of a fit "
                "with an engine"
            ) from None
        own_hash = found.pop("sha256", "") if isinstance(found, dict) else ""
        if own_hash != hash_of_document(found):
            raise ValueError(f"{uri}/{DOCUMENT} does not have its own hash; copy or fit it again")
        _CHECK({"sha256": own_hash} | found, "")
        return cls(uri, found)

    def save(self) -> None:
        """Write the document, which makes the folder a model."""
        signed = {"sha256": hash_of_document(dict(self.document))} | dict(self.document)
        _CHECK(signed, "")
        with Store(self.uri).writing(DOCUMENT) as file:
            file.write(json.dumps(signed, indent=2).encode())

    @property
    def num_rows(self) -> int:
        """Number of fitted rows."""
        return int(self.document["bounds"][-1])

    def predict(
        self, items: str, out: str, executor: Executor, *, shard_rows: int | None = None
    ) -> int:
        """Predict new rows (inductive), batch by batch; return their number.

        Every new row is attached to the learned graph by itself
        (:meth:`jlgcn.closed_form.ClosedFormModel.predict`), by a search in the kept index.

        Args:
            items: Parquet files with the columns of fit, on disk or in an object store.
            out: folder for Parquet files with id, class and probability of every row. Those that
                are there already, of the same input, are not made again.
            executor: what runs the tasks.
            shard_rows: rows of an output file; None for 131,072, or fewer if they are wide.
        """
        found = self.document
        table = open_table(
            items,
            id_column=found["id_column"],
            label_column=None,
            features=found["columns"],
            shard_rows=shard_rows,
        )
        engine = Engine(Store(out, f"{self.uri}/parts"), executor)
        tasks = [
            task | {"model": dict(found), "first": first}
            for task, first in zip(table.arguments(), table.bounds, strict=False)
        ]
        width = 4 * len(found["columns"])
        num_bytes = 2**30 + 8 * _BATCH_ROWS * found["options"]["n_candidates"] * width
        engine.run(attach_rows, tasks, num_bytes=num_bytes, suffix=".parquet")
        return table.bounds[-1]


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
    raw, ids, _ = read_rows(uri, columns, id_column, label_column, pieces)
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
    parts = []
    for batch in raw.split(_BATCH_ROWS):
        x = scaled(files, model["head"], model["scaler"], batch)
        own = x @ head["projection"]
        found, _ = index.search(searched(x, own), min(options["n_candidates"], bounds[-1]))
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
    return predictions(torch.cat(parts), ids, *names)


def write_predictions(
    files: Files,
    scores: str,
    raw: str,
    id_column: str | None,
    label_column: str,
    classes: Sequence[str],
    first: int,
    shard: int,
) -> Output:
    """Write the predictions of a shard of fitted rows."""
    logits = files.tensors(scores)["logits"]
    ids = ids_of(files.tensors(raw), first, len(logits))
    return predictions(logits, ids, id_column, label_column, classes)


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
