"""Edges and labels that name rows by id, joined to numbers of rows out of core, by DuckDB."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from jlgcn._optional import require
from jlgcn.closed_form.shard_bytes import EDGES_BYTES
from jlgcn.closed_form.shards import Files, Output
from jlgcn.engine.table import UNLABELED, parquet_files, read_ids, to_bytes


def join_edges(files: Files, uri: str, stamp: str, rows: list[str], bounds: list[int]) -> Output:
    """Join both ends of edges to numbers of rows.

    The first two columns of the edges are ids, a column ``weight`` is optional. Weights of
    duplicates are added, without weights they count once; then an edge has the larger weight of its
    two directions. The summary has the number of edges, of those that join two rows, and an id that
    no row has.
    """
    with _ids(files, rows, bounds) as base:
        edges = _dataset(uri)
        names = edges.schema.names
        if len(names) < 2:
            raise ValueError(f"{uri} must have a column for each end of an edge; it has {names}")
        base.register("edges", edges)
        has_weight = "weight" in names[2:]
        first, second = (_quoted(name) for name in names[:2])
        if has_weight:
            _check_weights(base, uri, edges.schema.field("weight").type, first, second)
        base.execute(
            f"CREATE TABLE found AS SELECT i, j, {'sum(w)' if has_weight else '1'} AS w, "  # noqa: S608
            "count(*) AS num FROM "
            f"(SELECT a.row AS i, b.row AS j, {'e.weight' if has_weight else '1'} AS w "
            f"FROM edges e JOIN ids a ON a.id = CAST(e.{first} AS VARCHAR) "
            f"JOIN ids b ON b.id = CAST(e.{second} AS VARCHAR)) GROUP BY i, j"
        )
        (num_joined,) = base.execute("SELECT coalesce(sum(num), 0) FROM found").fetchone()
        (num_edges,) = base.execute("SELECT count(*) FROM edges").fetchone()
        unknown = []
        if num_joined < num_edges:
            ends = " UNION ALL ".join(
                f"SELECT CAST({end} AS VARCHAR) AS id FROM edges"  # noqa: S608
                for end in (first, second)
            )
            unknown = base.execute(
                f"SELECT id FROM ({ends}) e WHERE NOT EXISTS "  # noqa: S608
                "(SELECT 1 FROM ids a WHERE a.id = e.id) LIMIT 1"
            ).fetchone()
        if num_joined == 0:
            raise ValueError(
                f"no edge in {uri} names two rows of the table; use the ids of --id, of which "
                f"{unknown[0]!r} is none"
            )
        parts = base.execute(
            "SELECT i, j, max(w) AS w FROM (SELECT i, j, w FROM found UNION ALL "
            "SELECT j, i, w FROM found) GROUP BY i, j ORDER BY i, j"
        ).fetchnumpy()
    row, col, weight = (torch.from_numpy(np.asarray(parts[name])) for name in ("i", "j", "w"))
    weight = weight.float()
    if not bool(weight.isfinite().all()):
        raise ValueError(f"weights of an edge in {uri} are larger than float32 holds; scale them")
    summary = {"num_edges": torch.tensor(num_edges), "num_joined": torch.tensor(int(num_joined))}
    tensors = {"row": row, "col": col.int(), "weight": weight}
    return Output(tensors, summary | {"unknown": to_bytes([str(each) for each in unknown])})


def join_labels(
    files: Files,
    uri: str | None,
    stamp: str,
    rows: list[str],
    bounds: list[int],
    id_column: str | None,
    label_column: str,
) -> Output:
    """Join labels to numbers of rows; without labels, only check that no id is there twice."""
    numbers, texts = np.zeros(0, dtype=np.int64), []
    with _ids(files, rows, bounds) as base:
        if uri is not None:
            base.register("labels", _labels(uri, id_column or "row", label_column))
            found = base.execute(
                "SELECT DISTINCT a.row, a.id, l.label FROM labels l JOIN ids a ON a.id = l.id "
                "ORDER BY a.row, l.label"
            ).fetchall()
            found = [each for each in found if each[2] not in UNLABELED]
            if not found:
                raise ValueError(f"no label in {uri} is of a row of the model; use its ids")
            for (row, name, label), (next_row, _, other) in pairwise(found):
                if row == next_row:
                    raise ValueError(
                        f"{uri} gives {name!r} the labels {label!r} and {other!r}; keep one label "
                        "for each id"
                    )
            numbers, texts = np.array([row for row, *_ in found]), [text for *_, text in found]
    return Output(summary={"rows": torch.from_numpy(numbers), "labels": to_bytes(texts)})


@contextmanager
def _ids(files: Files, rows: Sequence[str], bounds: Sequence[int]) -> Iterator[Any]:
    """Open a database with a table of the ids and numbers of all rows."""
    duckdb = require("duckdb", "scale", "joining ids")
    arrow = require("pyarrow", "scale", "joining ids")
    schema = arrow.schema([("id", arrow.large_string()), ("row", arrow.int64())])

    def batches() -> Iterator[Any]:
        for name, first, last in zip(rows, bounds, bounds[1:], strict=False):
            ids = read_ids(files, name, first, last - first)
            yield arrow.record_batch([ids, np.arange(first, last)], schema=schema)

    with tempfile.TemporaryDirectory() as folder:
        base = duckdb.connect(os.path.join(folder, "join.duckdb"))
        try:
            base.execute(f"SET memory_limit = '{EDGES_BYTES * 2 // 3 // 2**20}MiB'")
            base.execute("SET threads = 1")
            base.register("all_ids", arrow.RecordBatchReader.from_batches(schema, batches()))
            base.execute("CREATE TABLE ids AS SELECT * FROM all_ids")
            double = base.execute(
                "SELECT id, count(*) OVER () FROM ids GROUP BY id HAVING count(*) > 1 "
                "ORDER BY min(row) LIMIT 3"
            ).fetchall()
            if double:
                names = ", ".join(repr(name) for name, _ in double)
                more = ", …" if double[0][1] > len(double) else ""
                raise ValueError(
                    f"ids must be unique, but {double[0][1]:,} are those of several rows: {names}"
                    f"{more}; drop rows, or name another column"
                )
            yield base
        except duckdb.Error as error:
            raise ValueError(
                f"ids could not be joined ({str(error).partition(chr(10))[0]}); pass ids as text "
                "or integers, of one type in all files, and see that memory and disk are free"
            ) from None
        finally:
            base.close()


def _dataset(uri: str) -> Any:  # noqa: ANN401
    dataset = require("pyarrow.dataset", "scale", f"reading {uri}")
    source, found = parquet_files(uri)
    return dataset.dataset([info.path for info in found], filesystem=source, format="parquet")


def _labels(uri: str, id_column: str, label_column: str) -> Any:  # noqa: ANN401
    """Return "id" and "label" of the rows with a label, as the text that Arrow makes of them.

    As in the table of a fit: DuckDB would write the 2 of a column with gaps as "2.0".
    """
    arrow = require("pyarrow", "scale", f"reading {uri}")
    labels = _dataset(uri)
    names = labels.schema.names
    for name in (id_column, label_column):
        if name not in names:
            raise ValueError(f"{uri} must have a column {name!r}, but it has {names}")
    dataset = require("pyarrow.dataset", "scale", f"reading {uri}")
    known = dataset.field(label_column).is_valid()
    table = labels.to_table(columns=[id_column, label_column], filter=known)
    ids, texts = (table.column(name).cast(arrow.large_string()) for name in table.column_names)
    return arrow.table({"id": ids, "label": texts})


def _check_weights(base: Any, uri: str, kind: Any, first: str, second: str) -> None:  # noqa: ANN401
    """Raise unless all weights of the edges are finite numbers and none is negative."""
    kinds = require("pyarrow", "scale", f"reading {uri}").types
    if not (kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind)):
        raise ValueError(
            f"weights of edges must be numbers, but column 'weight' of {uri} is of {kind}"
        )
    bad = base.execute(
        f"SELECT CAST({first} AS VARCHAR), CAST({second} AS VARCHAR), weight FROM edges "  # noqa: S608
        "WHERE weight IS NULL OR NOT isfinite(CAST(weight AS DOUBLE)) OR weight < 0 LIMIT 1"
    ).fetchone()
    if bad is not None:
        one, other, weight = bad
        raise ValueError(
            f"weight of the edge from {one!r} to {other!r} in {uri} is "
            f"{'missing' if weight is None else weight}; weights of edges must be finite and not "
            "negative: leave out such edges, or map their weights to [0, ∞)"
        )


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'
