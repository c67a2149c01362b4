"""Commands for people's own tables: fit, predict, edges, explain, suggest, compare."""

from __future__ import annotations

import csv
import io
import logging
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jlgcn._files import write_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from jlgcn.estimator import JLGCNClassifier
    from jlgcn.estimator.document import TableNames
    from jlgcn.io.table_file import TableFile

# ESC and other controls, line ends of Unicode, changes of direction, halves of characters.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

Table = Annotated[Path, typer.Argument(metavar="TABLE", help="A CSV or Parquet file.")]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help='A folder that "fit" wrote.')]
IdOption = Annotated[
    str | None,
    typer.Option("--id", metavar="COLUMN", help="Names the rows; their number if not given."),
]
LabelOption = Annotated[
    str, typer.Option("--label", metavar="COLUMN", help="Classes; empty, or -1, where not known.")
]
EdgesOption = Annotated[
    Path | None,
    typer.Option(
        "--edges", metavar="FILE", help="Known edges: two columns of ids, and maybe weight."
    ),
]
DropOption = Annotated[
    list[str] | None,
    typer.Option("--drop", metavar="COLUMN", help="A column that is no feature; may be repeated."),
]
ScalerOption = Annotated[
    str,
    typer.Option(
        help='"words" for counts of words, "table" for measurements, "embeddings" for vectors of '
        'an encoder, SVD or PCA, "none" for what is scaled already; "auto" tells them apart.'
    ),
]


def fit(
    table: Table,
    label: LabelOption,
    out: Annotated[Path, typer.Option("--out", metavar="MODEL", help="Folder to write to.")],
    id_column: IdOption = None,
    edges: EdgesOption = None,
    drop: DropOption = None,
    scaler: ScalerOption = "auto",
) -> None:
    """Learn from a table with some labels, and known edges if there are any.

    jlgcn fit wines.csv --id name --label grape --edges sold_together.csv --out wines-model
    """
    from jlgcn.estimator import JLGCNClassifier
    from jlgcn.estimator.document import TableNames

    with plain_errors():
        found, labels = _labelled(table, id_column, label, drop)
        graph = None if edges is None else _graph(edges, found.ids)
        model = JLGCNClassifier(scaler=scaler).fit(_features(found), labels, graph)  # type: ignore[arg-type]
        model.table_ = TableNames(found.ids, id_column, label, drop or [], found.feature_names)
        model.save(out)
    typer.echo(
        f"{len(found.ids):,} rows, {len(found.feature_names):,} features (scaled as "
        f"{model.scaler_.kind}), {len(model.model_.train):,} labels of {len(model.classes_)} "
        f"classes; each row is joined with its {model.best_params_['n_neighbors']} nearest. "
        f"Written to {out}."
    )
    typer.echo(
        f'Next: "jlgcn report {out}", "jlgcn predict {out} TABLE", '
        f'"jlgcn edges {out} --out edges.graphml".'
    )


def predict(
    model: Model,
    table: Annotated[
        Path | None,
        typer.Argument(metavar="TABLE", help="New rows; without it, the rows of fit."),
    ] = None,
    edges: EdgesOption = None,
    out: Annotated[Path | None, typer.Option(help="A CSV file; printed if not given.")] = None,
) -> None:
    """Print the class of every row, and its probability.

    jlgcn predict wines-model new_wines.csv --out classes.csv

    Ids and classes that a spreadsheet would run as formulas get a single quote in front. Control
    characters are printed as escapes; a file has them as they are.
    """
    from jlgcn.io.export import csv_cell

    with plain_errors():
        fitted, rows = _load(model)
        if table is None:
            ids, probability = rows.ids, fitted.label_distributions_
        else:
            found = _new_rows(table, rows)
            ids = found.ids
            pairs = None if edges is None else _edges_to_old(edges, ids, rows.ids)
            probability = fitted.predict_proba(_features(found), pairs)
        lines = [
            (name, fitted.classes_[row.argmax()], f"{row.max():.4f}")
            for name, row in zip(ids, probability, strict=True)
        ]
        header = (rows.id_column or "row", rows.label_column, "probability")
        cells = [[csv_cell(value) for value in line] for line in (header, *lines)]
        if out is not None:
            write_file(out, _csv(cells, "\r\n"))
    if out is None:
        shown = [[printable(cell) for cell in line] for line in cells]
        typer.echo(_csv(shown, "\n"), nl=False)
    else:
        typer.echo(f"{len(lines):,} rows written to {out}")


def _csv(lines: list[list[str]], end: str) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator=end).writerows(lines)
    return text.getvalue()


def edges(
    model: Model,
    top_k: Annotated[int, typer.Option(min=1, help="Heaviest edges of each row.")] = 10,
    layer: Annotated[int, typer.Option(help="Which learned graph; the last if not given.")] = -1,
    out: Annotated[
        Path, typer.Option(help="A file that ends with .graphml, .csv or .parquet.")
    ] = Path("edges.graphml"),
) -> None:
    """Write the learned graph to a file, with the table's own ids.

    jlgcn edges wines-model --top-k 5 --out wines.graphml
    """
    from jlgcn.io.export import write_edges

    with plain_errors():
        fitted, rows = _load(model)
        found = fitted.edges(layer, top_k=top_k)
        write_edges(found, out, rows.ids)
    typer.echo(f"{len(found):,} edges of {found.num_nodes:,} rows written to {out}")


def explain(
    model: Model,
    first: Annotated[str, typer.Argument(metavar="I", help="Id of a row.")],
    second: Annotated[
        str | None,
        typer.Argument(metavar="J", help="Id of another; without it, row I's prediction."),
    ] = None,
    layer: Annotated[int, typer.Option(help="Which learned graph; the last if not given.")] = -1,
    top: Annotated[int, typer.Option(min=1, help="How many features, or rows, to show.")] = 10,
) -> None:
    """Say which features make two rows near or far, or which rows decide a row's class.

    jlgcn explain wines-model barolo-1971 barolo-1978

    jlgcn explain wines-model barolo-1971
    """
    with plain_errors():
        fitted, rows = _load(model)
        if second is None:
            if layer != -1:
                raise ValueError(
                    "--layer chooses the graph that joins two rows; name the second one, J, too"
                )
            lines = _why_a_class(fitted, rows, _place(model, rows, first), top)
        else:
            i, j = _place(model, rows, first), _place(model, rows, second)
            lines = _why_an_edge(fitted, rows, i, j, layer, top)
    typer.echo("\n".join(lines))


def _place(model: Path, rows: TableNames, name: str) -> int:
    try:
        place: int = rows.ids.index(name)
    except ValueError:
        raise ValueError(
            f"{model} has no row {name!r}; rows are those of the fitted table"
        ) from None
    return place


def _why_an_edge(
    fitted: JLGCNClassifier, rows: TableNames, i: int, j: int, layer: int, top: int
) -> list[str]:
    found = fitted.explain_edge(i, j, layer)
    order = found.features.abs().argsort(descending=True)[:top].tolist()
    names = [printable(rows.feature_names[k]) for k in order]
    width = max(len(name) for name in names)
    lines = [f"weight {found.weight:.4g}: squared distance {found.squared_distance:.4g}, of which"]
    for k, name in zip(order, names, strict=True):
        part = float(found.features[k])
        share = 100 * part / max(found.squared_distance, 1e-300)
        lines.append(f"  {name:<{width}} {part:+.4g} ({share:+.0f} %)")
    return lines


def _why_a_class(fitted: JLGCNClassifier, rows: TableNames, i: int, top: int) -> list[str]:
    found = fitted.explain_node(i)
    best = int(found.scores.argmax())
    lines = [
        f"{printable(fitted.classes_[best])}, with a score of {float(found.scores[best]):+.3g} "
        "against the mean of all classes, of which",
        f"  {float(found.bias[best]):+.3g} any row has",
        f"  {float(found.own[best]):+.3g} its own features add",
        f"  {float(found.learned[:, best].sum()):+.3g} come over learned edges",
        f"  {float(found.given[:, best].sum()):+.3g} come over given edges",
        "from these rows most:",
    ]
    moved = (found.learned + found.given)[:, best]
    order = moved.abs().argsort(descending=True)[:top].tolist()
    names = [printable(rows.ids[int(found.neighbors[k])]) for k in order]
    width = max((len(name) for name in names), default=0)
    for k, name in zip(order, names, strict=True):
        kinds = [
            kind
            for kind, part in (("learned", found.learned), ("given", found.given))
            if part[k].any()
        ]
        of = printable(fitted.transduction_[int(found.neighbors[k])])
        lines.append(f"  {name:<{width}} {float(moved[k]):+.3g} ({' and '.join(kinds)}; {of})")
    return lines


def suggest(
    model: Model,
    number: Annotated[int, typer.Option("-n", "--number", min=1, help="How many rows.")] = 10,
) -> None:
    """Print the rows whose labels would help most, the best first.

    jlgcn suggest wines-model -n 5
    """
    with plain_errors():
        fitted, rows = _load(model)
        suggested = fitted.suggest_labels(number)
    for row in suggested.tolist():
        typer.echo(printable(rows.ids[row]))


def compare(
    table: Table,
    label: LabelOption,
    id_column: IdOption = None,
    edges: EdgesOption = None,
    drop: DropOption = None,
    scaler: ScalerOption = "auto",
    splits: Annotated[int, typer.Option(min=2, help="How often labels are hidden.")] = 10,
) -> None:
    """Find out, before anything else, whether a graph helps with a table.

    jlgcn compare wines.csv --id name --label grape --edges sold_together.csv
    """
    from jlgcn.estimator import JLGCNClassifier
    from jlgcn.estimator.comparison import compare as compare_ways

    with plain_errors():
        found, labels = _labelled(table, id_column, label, drop)
        graph = None if edges is None else _graph(edges, found.ids)
        estimator = JLGCNClassifier(scaler=scaler)  # type: ignore[arg-type]
        compared = compare_ways(
            _features(found), labels, graph, estimator=estimator, n_splits=splits, progress=True
        )
    typer.echo(str(compared))


@contextmanager
def plain_errors() -> Iterator[None]:
    """Show warnings of the readers, and end with a line instead of a trace."""
    import warnings

    from jlgcn.errors import OneWayEdgesWarning

    def show(message: Warning | str, *where: object, **more: object) -> None:
        typer.echo(f"jlgcn: {_printable_lines(message)}", err=True)

    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("once", UserWarning)
            # A file lists each edge once, as it should.
            warnings.simplefilter("ignore", OneWayEdgesWarning)
            warnings.showwarning = show
            yield
    except (ValueError, OSError, ModuleNotFoundError) as error:
        typer.echo(f"jlgcn: {_printable_lines(error)}", err=True)
        raise typer.Exit(2) from None


def printable(name: object) -> str:
    """Return a name as text that cannot steer a terminal: control characters become escapes."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), str(name))


def _printable_lines(message: object) -> str:
    """Return a message, which may quote a file, as printable lines."""
    return "\n".join(printable(line) for line in str(message).split("\n"))


def _labelled(
    table: Path, id_column: str | None, label: str, drop: list[str] | None
) -> tuple[TableFile, np.ndarray]:
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
    # In a file, numbers and text look alike: numbers must be classes here as they must in Python.
    labels[~read_labels(numbers).is_known] = None
    return found, labels


def _features(found: TableFile) -> np.ndarray:
    import numpy as np

    if found.num_missing:
        row, column = (int(index[0]) for index in np.isnan(found.x).nonzero())
        raise ValueError(
            f"{found.num_missing:,} numbers are missing, the first in column "
            f"{found.feature_names[column]!r} of row {found.ids[row]!r}; fill them in first, or "
            "leave out their columns with --drop"
        )
    return found.x


def _graph(path: Path, ids: list[str]) -> Any:  # noqa: ANN401
    from jlgcn.io.table_file import read_edges

    edge_index, weight = read_edges(path, ids)
    if edge_index.shape[1] == 0:
        raise ValueError(
            f"no edge in {path.name} names two rows of the table; are they the same ids?"
        )
    return edge_index if weight is None else (edge_index, weight)


def _edges_to_old(path: Path, new: list[str], old: list[str]) -> np.ndarray:
    """Return the edges of a file that join a new row with an old one."""
    import numpy as np

    from jlgcn.io.table_file import read_edges

    is_new = set(new)
    others = [index for index, name in enumerate(old) if name not in is_new]
    found = read_edges(path, [*new, *(old[index] for index in others)])[0].numpy()
    found = np.concatenate([found, found[::-1]], axis=1)
    across = found[:, (found[0] < len(new)) & (found[1] >= len(new))]
    return np.stack([across[0], np.array(others, dtype=np.int64)[across[1] - len(new)]])


def _new_rows(table: Path, rows: TableNames) -> TableFile:
    """Read new rows, with the columns of the fitted table in its order."""
    from dataclasses import replace

    from jlgcn.io.table_file import column_names, read_table

    present = set(column_names(table))
    ignored = [name for name in (rows.label_column, *rows.drop) if name in present]
    found = read_table(table, id_column=rows.id_column, drop=ignored)
    missing = [name for name in rows.feature_names if name not in found.feature_names]
    if missing:
        raise ValueError(
            f"{table.name} has no column {missing[0]!r}, which the model was fitted with"
        )
    order = [found.feature_names.index(name) for name in rows.feature_names]
    return replace(found, x=found.x[:, order], feature_names=rows.feature_names)


def _load(model: Path) -> tuple[JLGCNClassifier, TableNames]:
    from jlgcn.estimator import JLGCNClassifier

    fitted = JLGCNClassifier.load(model)
    if fitted.table_ is None:
        raise ValueError(f'{model} does not name its rows; fit it with "jlgcn fit", which does')
    return fitted, fitted.table_
