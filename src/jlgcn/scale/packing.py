"""Tables that need not fit into memory: Parquet anywhere, packed into shards of NumPy's own format.

A shard follows from its number alone, so packing can stop anywhere, go on, or be spread over
machines; what is packed is a cache and can be deleted.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jlgcn._files import write_file
from jlgcn._optional import require
from jlgcn.scale.mapping import Mapper, in_turn, write_array
from jlgcn.scale.parquet import (
    absolute,
    filesystem,
    open_parquet,
    parquet_files,
    row_groups,
    rows_of,
)

MANIFEST = "pack.json"
_VERSION = 1


@dataclass(frozen=True)
class PackPlan:
    """What is packed, and how: all that a shard depends on.

    Attributes:
        files: path, rows and bytes of every Parquet file, in the order of their paths.
        features: columns that are features.
        label: column of classes, or None.
        classes: names of the classes, where the column does not hold their numbers.
        rows: rows of a shard; the last one may have fewer.
        dtype: of packed features.
        edges: path, rows and bytes of every file of edges.
        version: of this format.
    """

    files: tuple[tuple[str, int, int], ...]
    features: tuple[str, ...]
    label: str | None
    classes: tuple[str, ...]
    rows: int
    dtype: str
    edges: tuple[tuple[str, int, int], ...] = ()
    version: int = _VERSION

    @property
    def num_rows(self) -> int:
        """Rows of the table."""
        return sum(rows for _, rows, _ in self.files)

    @property
    def num_edges(self) -> int:
        """Rows of the files of edges."""
        return sum(rows for _, rows, _ in self.edges)

    @property
    def shards(self) -> list[str]:
        """The shards there are to be, by name."""
        return [
            f"{kind}-{index:05d}"
            for kind, total in (("nodes", self.num_rows), ("edges", self.num_edges))
            for index in range(-(-total // self.rows))
        ]


def pack(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    label: str | None = None,
    drop: Sequence[str] = (),
    edges: str | os.PathLike[str] | None = None,
    rows: int = 1 << 20,
    dtype: str = "float32",
    progress: bool = False,
    run: Mapper | None = None,
) -> PackPlan:
    """Write a table of Parquet files as shards of ``.npy`` files (extra ``table``).

    Args:
        source: a Parquet file or a folder of them, by path or by any address that pyarrow knows,
            such as ``s3://bucket/table``. Rows are numbered in the order of file names.
        out: folder to write to. Shards that are there already are not written again; a folder that
            was packed from something else is refused.
        label: column of classes: numbers from 0, with -1 or nothing where unknown, or text.
        drop: columns that are not features. All others must hold numbers.
        edges: Parquet files whose first two columns are the numbers of the two rows of each known
            edge; a column ``weight`` is its weight.
        rows: rows of a shard.
        dtype: "float32", or "float16" for half the space.
        progress: show a bar, where there is a terminal.
        run: what packs the shards, such as :func:`jlgcn.scale.over_ray`; None packs them in turn.

    Cost: the time to read the source once, where its row groups are smaller than a shard; memory of
    a shard and of a row group.

    Example:
        >>> import pyarrow, pyarrow.parquet, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> table = pyarrow.table({"a": [0.5, 1.5, 2.5], "kind": [0, 1, -1]})
        >>> pyarrow.parquet.write_table(table, f"{folder}/table.parquet")
        >>> pack(f"{folder}/table.parquet", f"{folder}/packed", label="kind").num_rows
        3
    """
    if dtype not in ("float32", "float16"):
        raise ValueError(f'dtype must be "float32" or "float16", but it is {dtype!r}')
    if rows < 1:
        raise ValueError(f"rows must be at least 1, but it is {rows}")
    # A process of another machine works in another folder.
    source, edges = absolute(source), None if edges is None else absolute(edges)
    files = parquet_files(source)
    plan = _plan(source, files, label, drop, rows, dtype, edges)
    folder = Path(out).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    manifest = folder / MANIFEST
    if manifest.exists() and read_plan(folder) != plan:
        raise ValueError(
            f"{folder} was packed from another table, or with other options; delete it, or choose "
            "another folder"
        )
    write_file(manifest, json.dumps(asdict(plan), indent=2) + "\n")
    missing = [name for name in plan.shards if not (folder / f"{name}.npy").exists()]
    run = run or functools.partial(in_turn, progress=progress)
    run(
        functools.partial(_pack_one, plan, missing, source, edges, folder),
        len(missing),
        "pack",
    )
    return plan


def _pack_one(
    plan: PackPlan,
    names: list[str],
    source: str | os.PathLike[str],
    edges: str | os.PathLike[str] | None,
    folder: Path,
    number: int,
) -> None:
    pack_shard(plan, names[number], source, edges, folder)


def pack_shard(
    plan: PackPlan,
    name: str,
    source: str | os.PathLike[str],
    edges: str | os.PathLike[str] | None,
    folder: Path,
) -> None:
    """Write one shard; a function of its arguments alone, for whoever maps it.

    Cost: reads the row groups that the shard touches.

    Example:
        >>> import pyarrow, pyarrow.parquet, tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> table = pyarrow.table({"a": [0.5, 1.5, 2.5]})
        >>> pyarrow.parquet.write_table(table, folder / "table.parquet")
        >>> plan = pack(folder / "table.parquet", folder / "packed", rows=2)
        >>> pack_shard(plan, "nodes-00001", folder / "table.parquet", None, folder)
        >>> np.load(folder / "nodes-00001.npy")
        array([[2.5]], dtype=float32)
    """
    kind, _, number = name.partition("-")
    start = int(number) * plan.rows
    if kind == "edges":
        assert edges is not None
        parts = list(_edge_columns(edges, plan, start, min(start + plan.rows, plan.num_edges)))
        write_array(folder / f"{name}.npy", np.concatenate(parts, 1))
        return
    stop = min(start + plan.rows, plan.num_rows)
    x = np.empty((stop - start, len(plan.features)), dtype=plan.dtype)
    y = np.full(stop - start, -1, dtype=np.int32)
    for first, table in rows_of(source, plan.files, start, stop, plan.features, plan.label):
        here = slice(first - start, first - start + table.num_rows)
        for column, feature in enumerate(plan.features):
            x[here, column] = _numbers(table, feature, first)
        if plan.label is not None:
            y[here] = _classes(table.column(plan.label), plan, first)
    if plan.label is not None:
        # Before the features, whose presence says that the shard is whole.
        write_array(folder / f"{name.replace('nodes', 'classes')}.npy", y)
    write_array(folder / f"{name}.npy", x)


def read_plan(folder: str | os.PathLike[str]) -> PackPlan:
    """Return what a folder was packed from.

    Cost: a small file.

    Example:
        >>> read_plan("nowhere")
        Traceback (most recent call last):
        FileNotFoundError: nowhere/pack.json is not there; pack a table first: jlgcn pack TABLE --out nowhere
    """  # noqa: E501
    path = Path(folder) / MANIFEST
    try:
        fields = json.loads(path.read_text())
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path} is not there; pack a table first: jlgcn pack TABLE --out {folder}"
        ) from None
    if fields.get("version") != _VERSION:
        raise ValueError(
            f"{path} has the version {fields.get('version')}, but this is version {_VERSION}; "
            "delete the folder and pack again"
        )
    for name in ("files", "edges"):
        fields[name] = tuple((str(path), int(rows), int(size)) for path, rows, size in fields[name])
    for name in ("features", "classes"):
        fields[name] = tuple(fields[name])
    return PackPlan(**fields)


def _plan(
    source: str | os.PathLike[str],
    files: tuple[tuple[str, int, int], ...],
    label: str | None,
    drop: Sequence[str],
    rows: int,
    dtype: str,
    edges: str | os.PathLike[str] | None,
) -> PackPlan:
    system, _ = filesystem(source)
    schema = open_parquet(system, files[0][0]).schema_arrow
    names = list(schema.names)
    for what, name in (("label", label), *(("drop", name) for name in drop)):
        if name is not None and name not in names:
            raise ValueError(
                f"{files[0][0]} has no column {name!r} (asked for as {what}); its columns are "
                f"{', '.join(names[:5])}{' …' if len(names) > 5 else ''}"
            )
    kinds = require("pyarrow", "table", "reading Parquet").types
    features = tuple(name for name in names if name not in {label, *drop})
    if not features or sum(count for _, count, _ in files) == 0:
        raise ValueError(f"{source} has no rows, or no columns of features; it needs both")
    for name in features:
        kind = schema.field(name).type
        if not (kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind)):
            raise ValueError(
                f"features must be numbers, but column {name!r} holds {kind}; turn it into numbers,"
                " or leave it out (drop, --drop)"
            )
    classes: tuple[str, ...] = ()
    if label is not None and not kinds.is_integer(schema.field(label).type):
        classes = _class_names(source, files, label)
    found = () if edges is None else parquet_files(edges)
    return PackPlan(files, features, label, classes, rows, dtype, found)


def _class_names(
    source: str | os.PathLike[str], files: tuple[tuple[str, int, int], ...], label: str
) -> tuple[str, ...]:
    seen: set[str] = set()
    system, _ = filesystem(source)
    for path, _, _ in files:
        for batch in open_parquet(system, path).iter_batches(columns=[label]):
            seen |= {str(v) for v in batch.column(0).unique().to_pylist() if v not in (None, "")}
    return tuple(sorted(seen))


def _numbers(table: Any, name: str, first: int) -> np.ndarray:  # noqa: ANN401
    arrow = require("pyarrow", "table", "reading Parquet")
    values = np.asarray(table.column(name).cast(arrow.float64()).to_numpy())
    is_bad = ~np.isfinite(values)
    if is_bad.any():
        row = int(is_bad.argmax())
        raise ValueError(
            f"features must be finite, but column {name!r} of row {first + row} is {values[row]}; "
            "fill or drop such rows before packing"
        )
    return values


def _classes(column: Any, plan: PackPlan, first: int) -> np.ndarray:  # noqa: ANN401
    if plan.classes:
        place = {name: index for index, name in enumerate(plan.classes)}
        return np.array([place.get(str(value), -1) for value in column.to_pylist()], np.int32)
    found = np.asarray(column.fill_null(-1).to_numpy())
    if found.size and found.min() < -1:
        row = first + int(found.argmin())
        raise ValueError(
            f"classes must be numbers from 0, or -1 where unknown, but that of row {row} is "
            f"{found.min()}"
        )
    return found.astype(np.int32)


def _edge_columns(
    edges: str | os.PathLike[str], plan: PackPlan, start: int, stop: int
) -> Iterator[np.ndarray]:
    """Yield both ends and the weight of edges, (3, E), float64, which counts rows to 2⁵³."""
    system, _ = filesystem(edges)
    first = 0
    for path, num_rows, _ in plan.edges:
        if first < stop and first + num_rows > start:
            for row, table in row_groups(open_parquet(system, path), first, start, stop, None):
                ends = [np.asarray(table.column(i).to_numpy(), np.float64) for i in (0, 1)]
                weight = np.ones(table.num_rows)
                if "weight" in table.column_names[2:]:
                    weight = np.asarray(table.column("weight").to_numpy(), np.float64)
                found = np.stack([*ends, weight])
                is_bad = (found[:2] < 0).any(0) | (found[:2] >= plan.num_rows).any(0)
                is_bad |= ~(np.isfinite(weight) & (weight >= 0))
                if is_bad.any():
                    bad = int(is_bad.argmax())
                    raise ValueError(
                        f"edges must name rows from 0 to {plan.num_rows - 1} and have finite "
                        f"weights that are not negative, but edge {row + bad} is "
                        f"{tuple(found[:, bad].tolist())}"
                    )
                yield found
        first += num_rows
