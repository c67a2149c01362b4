"""The closed form fitted to shards, and its predictions of new rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jlgcn._optional import require
from jlgcn.closed_form.options import ClosedFormOptions
from jlgcn.closed_form.scaling import Kind
from jlgcn.engine.document import read_document
from jlgcn.engine.executors import EngineName, open_executor
from jlgcn.engine.fit import fit_shards, shard_bytes
from jlgcn.engine.predict import BATCH_ROWS, attach_rows
from jlgcn.engine.store import Store, absolute, below, filesystem
from jlgcn.engine.table import SPARSE_SHARE, ItemTable, open_table
from jlgcn.engine.tasks import Engine, Task
from jlgcn.engine.update import update_shards


@dataclass(frozen=True, eq=False)
class ShardedModel:
    """A closed-form model of more rows than memory holds.

    Its folder has ``shards.json``; ``parts`` with the index, features, diffused features and scores
    of the fitted rows, to which new rows are attached; and ``predictions``, Parquet files with id,
    class and probability of every fitted row.

    Attributes:
        uri: its folder, on disk or in an object store.
        document: the fields of ``shards.json``.

    Example:
        >>> import tempfile
        >>> import numpy as np, pyarrow as pa, pyarrow.parquet as pq
        >>> folder = tempfile.mkdtemp()
        >>> kind = ["a"] + 29 * [None] + ["b"] + 29 * [None]
        >>> table = pa.table({"kind": kind, "size": np.repeat([0.0, 9.0], 30) + np.tile(range(30), 2) / 30})
        >>> pq.write_table(table, f"{folder}/items.parquet")
        >>> model = ShardedModel.fit(
        ...     f"{folder}/items.parquet", label="kind", out=f"{folder}/model", num_workers=1
        ... )
        >>> predicted = pq.read_table(f"{folder}/model/predictions").column("kind").to_pylist()
        >>> predicted == 30 * ["a"] + 30 * ["b"]
        True
    """  # noqa: E501

    uri: str
    document: Mapping[str, Any]

    @classmethod
    def fit(
        cls,
        items: str,
        *,
        label: str,
        out: str,
        edges: str | None = None,
        id_column: str | None = None,
        drop: Sequence[str] = (),
        scaler: Kind = "auto",
        options: ClosedFormOptions | None = None,
        shard_rows: int | None = None,
        overwrite: bool = False,
        engine: EngineName = "local",
        num_workers: int | None = None,
        address: str | None = None,
    ) -> ShardedModel:
        """Fit the closed form to Parquet files.

        The steps of :func:`jlgcn.closed_form.fit_closed_form`, shard by shard; the driver holds the
        labelled rows and sums over shards. Every intermediate file is named by the hash of its
        inputs: a fit that was interrupted goes on where it stopped when it is run again. A model
        that is there already, of the same files and arguments, is returned as it is; one of others
        is refused.

        Args:
            items: folder of Parquet files, or one file, on disk or in an object store (``s3://…``).
                Every column that no other argument names is a feature: numbers, or lists of them
                (embeddings).
            label: column of classes; null, "" or -1 in unlabelled rows.
            out: folder of the model, on disk or in an object store; a disk must be shared by all
                machines.
            engine ({"local", "ray"}, default "local"): what runs the stages, a pool of processes or
                a Ray cluster.
            num_workers: processes of "local", or cores of a Ray that is started here; None for all.
            address: address of a running Ray cluster; None starts Ray on this machine.
            edges: Parquet files of known edges: two columns of ids, and optionally "weight".
            id_column: column of unique ids; None for row numbers.
            drop: columns that are not features.
            scaler ({"auto", "words", "table", "embeddings", "none"}, default "auto"): feature
                scaling; "auto" looks at 2,000 rows.
            options: hyperparameters; None for the defaults. Controls are not available.
            shard_rows: most rows of a shard; None for 131,072, or fewer if they are wide.
            overwrite (bool, default False): fit even if a model of an engine is in `out`, and
                replace it.

        Cost: as in memory, plus the files, N·(8·n_candidates + 24·n_neighbors + 8·n_components)
        bytes and, where hyperparameters are selected, several times the last two. A task of the
        diffusion takes at most 4 GiB, and a few bytes for each row; others take a shard.
        """
        with open_executor(engine, num_workers, address) as executor:
            document = fit_shards(
                items,
                label=label,
                out=out,
                executor=executor,
                edges=edges,
                id_column=id_column,
                drop=drop,
                scaler=scaler,
                options=options,
                shard_rows=shard_rows,
                overwrite=overwrite,
            )
        return cls(out, document)

    @classmethod
    def load(cls, uri: str) -> ShardedModel:
        """Return the model in a folder."""
        return cls(uri, read_document(uri))

    @property
    def num_rows(self) -> int:
        """Number of fitted rows."""
        return int(self.document["bounds"][-1])

    def update(
        self,
        items: str | None = None,
        *,
        edges: str | None = None,
        labels: str | None = None,
        shard_rows: int | None = None,
        engine: EngineName = "local",
        num_workers: int | None = None,
        address: str | None = None,
    ) -> ShardedModel:
        """Add rows, edges and labels to the model, and return what is in its folder now.

        Hyperparameters, scaling, principal directions and the metric stay. Fitted rows keep their
        neighbours, and get those new rows that choose them; features are diffused over the larger
        graph, from the old solution; the classifiers are fitted again, to all labels. So an update
        takes a fraction of a fit; after many, fit again. The same update is made once: run it again
        after an interruption.

        Args:
            items: Parquet files of new rows, with the columns of fit; labels are optional. None for
                none.
            edges: Parquet files of new edges, between any rows. None for none.
            labels: Parquet files with the columns of ids and labels of fit (without an id column:
                "row", its number), for any rows, whose old labels they replace. None for none.
            shard_rows: as of :meth:`fit`, like the arguments after it.
            engine: see there.
            num_workers: see there.
            address: see there.

        Cost: a search for the new rows alone; one diffusion; no selection of hyperparameters.
        """
        with open_executor(engine, num_workers, address) as executor:
            document = update_shards(
                self.uri,
                self.document,
                items,
                edges=edges,
                labels=labels,
                executor=executor,
                shard_rows=shard_rows,
            )
        return ShardedModel(self.uri, document)

    def predict(
        self,
        items: str,
        out: str,
        *,
        shard_rows: int | None = None,
        engine: EngineName = "local",
        num_workers: int | None = None,
        address: str | None = None,
    ) -> int:
        """Predict new rows (inductive), batch by batch; return their number.

        Every new row is attached to the learned graph by itself
        (:meth:`jlgcn.closed_form.ClosedFormModel.predict`), by a search in the kept index.

        Args:
            items: Parquet files with the columns of fit, on disk or in an object store.
            out: folder for Parquet files with id, class and probability of every row, in the order
                of the rows. Those that are there already, of the same input and model, are not made
                again; a folder with others is refused.
            shard_rows: rows of an output file; None for 131,072, or fewer if they are wide.
            engine: as of :meth:`fit`, like the arguments after it.
            num_workers: see there.
            address: see there.
        """
        found, items, out = self.document, absolute(items), absolute(out)
        table = open_table(
            items,
            id_column=found["id_column"],
            label_column=None,
            features=found["columns"],
            shard_rows=shard_rows,
        )
        tasks = [
            task | {"model": dict(found), "first": first}
            for task, first in zip(table.arguments(), table.bounds, strict=False)
        ]
        with open_executor(engine, num_workers, address) as executor:
            _check_out(out, {f"{Task.of(attach_rows, task).name}.parquet" for task in tasks})
            runner = Engine(Store(out, below(absolute(self.uri), "parts")), executor)
            num_bytes = attach_bytes(found, table)
            runner.run(attach_rows, tasks, num_bytes=num_bytes, suffix=".parquet")
        return table.bounds[-1]


def attach_bytes(document: Mapping[str, Any], table: ItemTable) -> int:
    """Return the memory in which a task reads new rows and attaches a batch of them.

    The batch's candidates may all differ: their features and diffused features are gathered, shard
    after shard, so some are there twice.
    """
    options = document["options"]
    near = min(document["bounds"][-1], BATCH_ROWS * options["n_candidates"])
    width = table.width
    if document["scaler"]["kind"] == "words":
        width = int(SPARSE_SHARE * width)  # they are stored as sparse up to this share
    num_bytes: int = shard_bytes(table) + 2**29 + 8 * near * (width + options["n_components"])
    return num_bytes


def _check_out(out: str, expected: set[str]) -> None:
    """Raise if a folder of predictions has Parquet files of others, or is a file."""
    fs = require("pyarrow.fs", "scale", f"writing {out}")
    files, path = filesystem(out)
    if files.get_file_info(path).is_file:
        raise ValueError(
            f"{out} is a file, but a model by an engine predicts into a folder; pass one"
        )
    found = files.get_file_info(fs.FileSelector(path, allow_not_found=True))
    names = {each.base_name for each in found if each.base_name.endswith(".parquet")}
    if others := sorted(names - expected):
        raise ValueError(
            f"{out} holds {others[0]}, which this model did not predict of these rows; pass an "
            "empty folder"
        )
