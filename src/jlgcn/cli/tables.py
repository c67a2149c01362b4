"""What the commands share: tables and models of the user read with plain errors."""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from jlgcn.estimator import JLGCNClassifier
    from jlgcn.estimator.document import TableNames
    from jlgcn.io.table_file import TableFile

# Control characters, Unicode line ends and directional overrides, lone surrogates.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help='Folder of a fitted model, see "jlgcn fit".')
]
LayerOption = Annotated[
    int | None,
    typer.Option(
        help="Layer of the learned graph, from 0; -1 is the last. Default: the last whose metric "
        "is of the table's columns, which is layer 0 of a network."
    ),
]


@contextmanager
def plain_errors() -> Iterator[None]:
    """Print warnings and errors as a line without a traceback; exit with 2 after an error."""
    import warnings

    from jlgcn.errors import OneWayEdgesWarning

    def show(message: Warning | str, *where: object, **more: object) -> None:
        typer.echo(f"jlgcn: {_printable_lines(message)}", err=True)

    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("once", UserWarning)
            # Files list each edge once.
            warnings.simplefilter("ignore", OneWayEdgesWarning)
            warnings.showwarning = show
            yield
    except (ValueError, OSError, ModuleNotFoundError) as error:
        typer.echo(f"jlgcn: {_printable_lines(error)}", err=True)
        raise typer.Exit(2) from None


def printable(name: object) -> str:
    """Return text that is safe to print: control characters are escaped."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), str(name))


def _printable_lines(message: object) -> str:
    return "\n".join(printable(line) for line in str(message).split("\n"))


def read_labelled(
    table: Path, id_column: str | None, label: str, drop: list[str] | None
) -> tuple[TableFile, np.ndarray]:
    """Read a table and its labels, None in unlabelled rows."""
    import numpy as np

    from jlgcn.estimator.validation import read_labels
    from jlgcn.io.table_file import read_table

    found = read_table(table, id_column=id_column, label_column=label, drop=drop or ())
    assert found.labels is not None
    labels = np.array(found.labels, dtype=object)
    try:
        numbers = np.array([np.nan if name is None else float(name) for name in found.labels])
    except ValueError:
        return found, labels
    # A file does not tell numbers from text: validate numbers as Python's arrays are.
    labels[~read_labels(numbers).is_known] = None
    return found, labels


def complete_features(found: TableFile) -> np.ndarray:
    """Return the features of a table, or refuse missing numbers."""
    import numpy as np

    if found.num_missing:
        row, column = (int(index[0]) for index in np.isnan(found.x).nonzero())
        raise ValueError(
            f"features must be complete, but {found.num_missing:,} numbers are missing, the first "
            f"in column {found.feature_names[column]!r} of row {found.ids[row]!r}; impute them, or "
            "leave out their columns with --drop"
        )
    return found.x


def read_graph(path: Path, ids: list[str]) -> Any:  # noqa: ANN401
    """Read the known edges among the rows of a table."""
    from jlgcn.io.table_file import read_edges

    edge_index, weight = read_edges(path, ids)
    if edge_index.shape[1] == 0:
        raise ValueError(
            f"no edge in {path.name} names two rows of the table; use the ids of the column --id"
        )
    return edge_index if weight is None else (edge_index, weight)


def read_cross_edges(
    path: Path, new: list[str], fitted: list[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges of a file between new and fitted rows, (2, E), and weights, (E,)."""
    import numpy as np

    from jlgcn.io.table_file import read_edges

    is_new = set(new)
    others = [index for index, name in enumerate(fitted) if name not in is_new]
    edge_index, weights = read_edges(path, [*new, *(fitted[index] for index in others)])
    one_way = edge_index.numpy()
    weight = np.ones(one_way.shape[1]) if weights is None else weights.numpy()
    row, col = np.concatenate([one_way, one_way[::-1]], axis=1)
    is_cross = (row < len(new)) & (col >= len(new))
    numbers = np.array(others, dtype=np.int64)[col[is_cross] - len(new)]
    return np.stack([row[is_cross], numbers]), np.concatenate([weight, weight])[is_cross]


def read_new_rows(table: Path, rows: TableNames) -> TableFile:
    """Read new rows, with the feature columns of the fitted table in its order."""
    from dataclasses import replace

    from jlgcn.io.table_file import column_names, read_table

    present = set(column_names(table))
    ignored = [name for name in (rows.label_column, *rows.drop) if name in present]
    found = read_table(table, id_column=rows.id_column, drop=ignored)
    missing = [name for name in rows.feature_names if name not in found.feature_names]
    if missing:
        raise ValueError(
            f"{table.name} has no column {missing[0]!r}, a feature of the model; add it"
        )
    order = [found.feature_names.index(name) for name in rows.feature_names]
    return replace(found, x=found.x[:, order], feature_names=rows.feature_names)


def is_sharded(model: str) -> bool:
    """Return whether a model was fitted by an engine: in memory, models are on disk alone."""
    return "://" in model or (Path(model) / "shards.json").exists()


def load_model(model: Path) -> tuple[JLGCNClassifier, TableNames]:
    """Load a fitted model and the names of its table."""
    from jlgcn.estimator import JLGCNClassifier

    if is_sharded(str(model)):
        raise ValueError(
            f'{model} was fitted by an engine, and has predictions alone: see "jlgcn predict"; for '
            "edges, explanations and pages fit a part of the rows in memory"
        )
    fitted = JLGCNClassifier.load(model)
    if fitted.table_ is None:
        raise ValueError(f'{model} has no names of rows and columns; fit it with "jlgcn fit"')
    return fitted, fitted.table_
