"""What the commands share: tables and models of the user read with plain errors."""

from __future__ import annotations

import logging
import re
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from jlgcn.estimator import JLGCNClassifier
    from jlgcn.estimator.document import TableNames
    from jlgcn.io.table_file import TableFile

logger = logging.getLogger(__name__)

# Control characters, Unicode line ends and directional overrides, lone surrogates.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

# Classes for each label above which labels look like names or measurements.
_MAX_CLASS_SHARE = 0.5

# Letters of a row that a person reads.
_ROW_LETTERS = 160

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


def counted(number: int, what: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def printable(name: object) -> str:
    """Return text that is safe to print: control characters are escaped."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), str(name))


def _printable_lines(message: object) -> str:
    return "\n".join(printable(line) for line in str(message).split("\n"))


TextOption = Annotated[
    str | None,
    typer.Option(
        "--text",
        metavar="COLUMN",
        help="Learn from this column of text alone (tf-idf of its words). Default: all columns.",
    ),
]


def check_file(table: Path) -> None:
    """Raise if there is no such file, before PyTorch is imported, which takes seconds."""
    if not table.exists():
        raise FileNotFoundError(f"{table} does not exist; pass the path of a CSV or Parquet file")


def read_labelled(
    table: Path, id_column: str | None, label: str, drop: list[str] | None
) -> tuple[TableFile, np.ndarray, str | None]:
    """Read a table, its labels, None in unlabelled rows, and the name of its column of ids.

    Without `id_column`, the first column whose entries look like ids, and differ, names the rows.
    """
    check_file(table)
    import numpy as np

    from jlgcn.io.table_file import read_table

    found = read_table(table, id_column=id_column, label_column=label, drop=drop or ())
    from jlgcn.estimator.labels import read_labels

    if id_column is None:
        found, id_column = _with_ids(found)
    assert found.labels is not None
    labels = np.array(found.labels, dtype=object)
    try:
        # A file does not tell numbers from text: validate numbers as Python's arrays are.
        numbers = np.array([np.nan if name is None else float(name) for name in found.labels])
    except ValueError:
        numbers = labels
    labels[~read_labels(numbers).is_known] = None
    _check_labels(labels.tolist(), label, found.name)
    return found, labels, id_column


def _check_labels(labels: list[str | None], label: str, file: str) -> None:
    """Raise if fewer than two classes have a label; warn of labels that are hardly classes."""
    counts = Counter(name for name in labels if name is not None)
    if not counts:
        raise ValueError(
            f"column {label!r} of {file} is empty; write the class of some rows into it"
        )
    if len(counts) == 1:
        raise ValueError(
            f"all labels in column {label!r} of {file} are of one class, {next(iter(counts))!r}, "
            "so there is nothing to learn; label rows of another class, too"
        )
    if len(counts) > _MAX_CLASS_SHARE * counts.total():
        logger.warning(
            "%s labels in %r are of %s classes: is this the column of classes?",
            f"{counts.total():,}",
            label,
            f"{len(counts):,}",
        )


def _with_ids(found: TableFile) -> tuple[TableFile, str | None]:
    """Name the rows by a column of ids, rather of text than a counter, and drop other such ones."""
    from jlgcn.estimator.table_learning import looks_like_ids
    from jlgcn.io.frames import Words, read_column

    like_ids = {}
    for name in found.feature_names:
        column = read_column(found.frame.column(name))
        if looks_like_ids(name, column):
            texts = found.texts(name)
            if "" not in texts and len(set(texts)) == len(texts):
                like_ids[name] = isinstance(column, Words)
    if not like_ids or len(like_ids) == len(found.feature_names):
        return found, None
    chosen = max(like_ids, key=like_ids.__getitem__)
    others = [name for name in like_ids if name != chosen]
    if others:
        logger.warning(
            "dropped, as ids of rows are in %r: %s", chosen, ", ".join(map(repr, others))
        )
    frame = found.frame.drop_columns(list(like_ids))
    return replace(found, ids=found.texts(chosen), frame=frame), chosen


def features_of(found: TableFile, text: str | None = None) -> Any:  # noqa: ANN401
    """Return what to learn from: texts, numbers, or the columns as they are."""
    from jlgcn.io.frames import is_numeric_frame

    if text is not None:
        if text not in found.feature_names:
            from jlgcn.io.table_file import no_column

            raise no_column(found.name, text, found.feature_names, " (asked for as text)")
        return found.texts(text)
    return found.x if is_numeric_frame(found.frame) else found.frame


def texts_of(
    found: TableFile, fitted: JLGCNClassifier, text: str | None = None
) -> list[str] | None:
    """Return what a person reads of each row: its text, or the cells of a raw table; cut off."""
    from jlgcn.estimator.encoding import column_names, sum_by_name
    from jlgcn.estimator.table_columns import Dropped, TextColumn
    from jlgcn.estimator.table_encoder import TableEncoder
    from jlgcn.io.frames import GAPS

    if text is not None:
        return [_shortened(entry) for entry in found.texts(text)]
    if not isinstance(fitted.encoder_, TableEncoder):
        return None
    used = [column for column in fitted.encoder_.columns_ if not isinstance(column, Dropped)]
    # Sentences first, then by what was learned of a column.
    layer = fitted.model_.num_column_layers - 1
    importance = fitted.model_.feature_importance(layer).cpu()
    parts, names = sum_by_name(importance, column_names(fitted))
    weight = dict(zip(names, parts.tolist(), strict=True))
    used.sort(key=lambda column: -weight[column.name])
    used.sort(key=lambda column: not (isinstance(column, TextColumn) and column.cut == "words"))
    columns = [(column.name, found.texts(column.name)) for column in used]
    rows = []
    for k in range(len(found.ids)):
        row = ""
        for name, texts in columns:
            if len(row) > _ROW_LETTERS:
                break
            if texts[k] not in GAPS:
                row += f"{' · ' if row else ''}{name}: {texts[k][:_ROW_LETTERS]}"
        rows.append(_shortened(row))
    return rows


def _shortened(text: str) -> str:
    words = " ".join(text[: 2 * _ROW_LETTERS].split())
    return words if len(words) <= _ROW_LETTERS else f"{words[: _ROW_LETTERS - 1]}…"


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


def read_new_rows(table: Path, fitted: JLGCNClassifier) -> tuple[list[str], Any]:
    """Return ids and features of new rows, in the columns of the fitted table."""
    import numpy as np

    from jlgcn.estimator.table_columns import Dropped
    from jlgcn.estimator.table_encoder import TableEncoder
    from jlgcn.estimator.text_encoder import TextEncoder
    from jlgcn.io.table_file import column_names, read_table

    rows = fitted.table_
    assert rows is not None
    present = set(column_names(table))
    ignored = [name for name in (rows.label_column, *rows.drop) if name in present]
    found = read_table(
        table, id_column=rows.id_column if rows.id_column in present else None, drop=ignored
    )
    if rows.id_column in present and (known := set(rows.ids).intersection(found.ids)):
        logger.warning(
            "%s of %s in %s have the id of a row of fit; if they are these rows, leave out TABLE "
            "for their predictions",
            f"{len(known):,}",
            counted(len(found.ids), "row"),
            table.name,
        )
    used = rows.feature_names
    if isinstance(fitted.encoder_, TableEncoder):
        used = [each.name for each in fitted.encoder_.columns_ if not isinstance(each, Dropped)]
    if missing := [repr(name) for name in used if name not in found.feature_names]:
        what = "column" if len(missing) == 1 else "columns"
        raise ValueError(
            f"{table.name} lacks the {what} {', '.join(missing)}, which the model uses; add "
            f"{'it' if len(missing) == 1 else 'them'}"
        )
    if isinstance(fitted.encoder_, TextEncoder):
        return found.ids, features_of(found, rows.feature_names[0])
    if fitted.encoder_ is not None:
        return found.ids, found.frame
    x = replace(found, frame=found.frame.select(rows.feature_names)).x
    if np.isnan(x).any():
        row, column = (int(index[0]) for index in np.isnan(x).nonzero())
        raise ValueError(
            "features must be complete, as in fit, but there are gaps: "
            f"{counted(int(np.isnan(x).sum()), 'number')}, the first in column "
            f"{rows.feature_names[column]!r} of row {found.ids[row]!r}; fill them in, or leave out "
            "such rows"
        )
    return found.ids, x


def is_sharded(model: str) -> bool:
    """Return whether a model was fitted by an engine: in memory, models are on disk alone."""
    # A path takes a slash out of s3://.
    return re.match(r"\w\w+:/", model) is not None or (Path(model) / "shards.json").exists()


def check_folder(model: Path) -> None:
    """Raise if there is no folder of a model that was fitted in memory."""
    if is_sharded(str(model)):
        raise ValueError(
            f"{model} was fitted by an engine, which has no report, edges or explanations; its "
            f"predictions are in {model}/predictions. For the others, fit a part of the rows in "
            "memory"
        )
    wrote = 'the folder that "jlgcn fit" wrote, see --out'
    if model.is_file():
        raise ValueError(f"{model} is a file, but the model comes first; pass {wrote}")
    if not model.exists():
        raise FileNotFoundError(f"there is no folder {model}; pass {wrote}")
    if not (model / "model.json").exists():
        raise FileNotFoundError(f"{model} holds no model: model.json is missing; pass {wrote}")


def load_model(model: Path) -> tuple[JLGCNClassifier, TableNames]:
    """Load a fitted model and the names of its table."""
    check_folder(model)
    from jlgcn.estimator import JLGCNClassifier

    fitted = JLGCNClassifier.load(model)
    if fitted.table_ is None:
        raise ValueError(f'{model} has no names of rows and columns; fit it with "jlgcn fit"')
    return fitted, fitted.table_
