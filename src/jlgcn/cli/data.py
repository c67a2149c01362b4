"""Commands for the user's own tables: fit, predict, edges, explain, suggest, compare."""

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

# Control characters, Unicode line ends and directional overrides, lone surrogates.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

Table = Annotated[
    Path,
    typer.Argument(
        metavar="TABLE",
        help="CSV or Parquet file. Each column that no option names is a numeric feature.",
    ),
]
Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help='Folder of a fitted model, see "jlgcn fit".')
]
IdOption = Annotated[
    str | None,
    typer.Option("--id", metavar="COLUMN", help="Column of unique row ids. Default: row numbers."),
]
LabelOption = Annotated[
    str,
    typer.Option(
        "--label", metavar="COLUMN", help="Column of classes; empty, or -1, in unlabelled rows."
    ),
]
EdgesOption = Annotated[
    Path | None,
    typer.Option(
        "--edges",
        metavar="FILE",
        help='Known edges, CSV or Parquet: two columns of row ids, and optionally "weight".',
    ),
]
DropOption = Annotated[
    list[str] | None,
    typer.Option("--drop", metavar="COLUMN", help="Column that is not a feature; repeatable."),
]
ScalerOption = Annotated[
    str,
    typer.Option(
        metavar="KIND",
        help='Feature scaling: "words" (tf-idf of counts), "table" (standardised columns), '
        '"embeddings" or "none" (unchanged). "auto" detects words, tables and embeddings.',
    ),
]
LayerOption = Annotated[
    int, typer.Option(help="Layer of the learned graph, from 0; -1 is the last.")
]
DeviceOption = Annotated[
    str, typer.Option(help='PyTorch device, such as cpu or cuda:1, see "jlgcn doctor".')
]


def fit(
    table: Table,
    label: LabelOption,
    out: Annotated[Path, typer.Option("--out", metavar="MODEL", help="Folder to write to.")],
    id_column: IdOption = None,
    edges: EdgesOption = None,
    drop: DropOption = None,
    scaler: ScalerOption = "auto",
    device: DeviceOption = "cpu",
) -> None:
    """Fit a semi-supervised classifier to a table with some labels, and learn its graph.

    Example: jlgcn fit wines.csv --id name --label grape --out wines-model

    All rows are used, labelled or not. The model learns a metric and a kNN graph
    of the rows, adds known edges (--edges), and predicts every row.
    Hyperparameters are selected by leave-one-out cross-validation. The folder
    contains the features, to which new rows are attached.
    """
    from jlgcn.estimator import JLGCNClassifier
    from jlgcn.estimator.document import TableNames

    with plain_errors():
        found, labels = _labelled(table, id_column, label, drop)
        graph = None if edges is None else _graph(edges, found.ids)
        model = JLGCNClassifier(scaler=scaler, device=device)  # type: ignore[arg-type]
        model.fit(_features(found), labels, graph)
        model.table_ = TableNames(found.ids, id_column, label, drop or [], found.feature_names)
        model.save(out)
    typer.echo(
        f"{len(found.ids):,} rows, {len(found.feature_names):,} features (scaled as "
        f"{model.scaler_.kind}), {len(model.model_.train):,} labels of {len(model.classes_)} "
        f"classes; kNN graph with n_neighbors={model.best_params_['n_neighbors']}. Written to "
        f"{out}."
    )
    typer.echo(
        f'Next: "jlgcn report {out}", "jlgcn predict {out} TABLE", '
        f'"jlgcn edges {out} --out edges.graphml".'
    )


def predict(
    model: Model,
    table: Annotated[
        Path | None,
        typer.Argument(metavar="TABLE", help="New rows, CSV or Parquet. Default: the rows of fit."),
    ] = None,
    edges: EdgesOption = None,
    out: Annotated[
        Path | None, typer.Option(help="CSV file to write. Default: print to the terminal.")
    ] = None,
) -> None:
    """Predict the class of every row, with its probability.

    Example: jlgcn predict wines-model new_wines.csv --out classes.csv

    New rows are attached to the learned graph one by one (inductive); --edges
    adds known edges to rows of fit. Without TABLE, the transductive predictions
    of the rows of fit are written. Probabilities are not calibrated; "jlgcn
    report" measures how far they are off.

    Cells that a spreadsheet would run as a formula are prefixed with a single
    quote.
    """
    from jlgcn.io.export import csv_cell

    with plain_errors():
        fitted, rows = _load(model)
        if table is None:
            ids, probability = rows.ids, fitted.label_distributions_
        else:
            found = _new_rows(table, rows)
            ids = found.ids
            graph = None if edges is None else _cross_edges(edges, ids, rows.ids)
            probability = fitted.predict_proba(_features(found), graph)
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
    top_k: Annotated[
        int, typer.Option(min=1, help="Keep an edge if it is in the top k of either end.")
    ] = 10,
    layer: LayerOption = -1,
    out: Annotated[
        Path, typer.Option(help="File to write; it ends with .graphml (Gephi), .csv or .parquet.")
    ] = Path("edges.graphml"),
) -> None:
    """Export the top edges of the learned graph, with the table's ids and edge weights.

    Example: jlgcn edges wines-model --top-k 5 --out wines.graphml

    A weight is the kernel exp(-d²) of the learned distance d, between 0 and 1.
    Known edges are not exported.
    """
    from jlgcn.io.export import write_edges

    with plain_errors():
        fitted, rows = _load(model)
        found = fitted.edges(layer, top_k=top_k)
        write_edges(found, out, rows.ids)
    typer.echo(f"{len(found):,} edges of {found.num_nodes:,} rows written to {out}")


def explain(
    model: Model,
    first: Annotated[str, typer.Argument(metavar="I", help="Id of a row of fit.")],
    second: Annotated[
        str | None,
        typer.Argument(metavar="J", help="Id of another row. Default: explain the class of I."),
    ] = None,
    layer: LayerOption = -1,
    top: Annotated[int, typer.Option(min=1, help="Number of features, or neighbours.")] = 10,
) -> None:
    """Explain an edge by its features, or a predicted class by the neighbours of a row.

    Example of an edge: jlgcn explain wines-model barolo-1971 barolo-1978

    Example of a class: jlgcn explain wines-model barolo-1971

    Both are exact: contributions sum to the learned squared distance, or to the
    class score, the logit relative to the mean over classes.
    """
    with plain_errors():
        fitted, rows = _load(model)
        if second is None:
            if layer != -1:
                raise ValueError(
                    "--layer selects the metric of an edge, so it needs a second row, J; a class "
                    "is explained in the last layer"
                )
            lines = _explain_class(fitted, rows, _row_number(model, rows, first), top)
        else:
            i, j = (_row_number(model, rows, name) for name in (first, second))
            lines = _explain_edge(fitted, rows, i, j, layer, top)
    typer.echo("\n".join(lines))


def _row_number(model: Path, rows: TableNames, name: str) -> int:
    if name not in rows.ids:
        raise ValueError(f"{model} has no row {name!r}; name a row of the fitted table")
    number: int = rows.ids.index(name)
    return number


def _explain_edge(
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


def _explain_class(fitted: JLGCNClassifier, rows: TableNames, i: int, top: int) -> list[str]:
    found = fitted.explain_node(i)
    best = int(found.scores.argmax())
    learned, given = found.learned[:, best], found.given[:, best]
    lines = [
        f"{printable(fitted.classes_[best])}: score {float(found.scores[best]):+.3g} relative to "
        "the mean of all classes, of which",
        f"  {float(found.bias[best]):+.3g} bias",
        f"  {float(found.own[best]):+.3g} own features",
        f"  {float(learned.sum()):+.3g} learned edges",
        f"  {float(given.sum()):+.3g} given edges",
        "largest contributions of neighbours:",
    ]
    order = (learned + given).abs().argsort(descending=True)[:top].tolist()
    names = [printable(rows.ids[int(found.neighbors[k])]) for k in order]
    width = max((len(name) for name in names), default=0)
    for k, name in zip(order, names, strict=True):
        parts = (("learned", found.learned), ("given", found.given))
        kinds = " and ".join(kind for kind, part in parts if part[k].any())
        predicted = printable(fitted.transduction_[int(found.neighbors[k])])
        score = float(learned[k] + given[k])
        lines.append(f"  {name:<{width}} {score:+.3g} ({kinds} edge; predicted {predicted})")
    return lines


def suggest(
    model: Model,
    number: Annotated[int, typer.Option("-n", "--number", min=1, help="Number of rows.")] = 10,
) -> None:
    """Suggest the rows to label next (active learning), the most informative first.

    Example: jlgcn suggest wines-model -n 5

    Prints ids of the unlabelled rows whose labels reduce the variance of all
    predictions most (V-optimal design). Label all of them, then fit again.
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
    splits: Annotated[int, typer.Option(min=2, help="Number of random splits.")] = 10,
    device: DeviceOption = "cpu",
) -> None:
    """Measure whether a graph helps on a table: an ablation with held-out labels.

    Example: jlgcn compare wines.csv --id name --label grape --edges
    sold_together.csv

    In each split a fifth of the labels is held out. Prints the accuracy, with 95
    % intervals, of logistic regression, of the model with the given, the learned
    and both graphs, and of two controls (no learned metric, shuffled graph), and
    recommends one. Takes 4 to 6 fits a split.
    """
    from jlgcn.estimator import JLGCNClassifier
    from jlgcn.estimator.comparison import compare as compare_variants

    with plain_errors():
        found, labels = _labelled(table, id_column, label, drop)
        graph = None if edges is None else _graph(edges, found.ids)
        estimator = JLGCNClassifier(scaler=scaler, device=device)  # type: ignore[arg-type]
        compared = compare_variants(
            _features(found), labels, graph, estimator=estimator, n_splits=splits, progress=True
        )
    typer.echo(str(compared))


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
    # A file does not tell numbers from text: validate numbers as Python's arrays are.
    labels[~read_labels(numbers).is_known] = None
    return found, labels


def _features(found: TableFile) -> np.ndarray:
    import numpy as np

    if found.num_missing:
        row, column = (int(index[0]) for index in np.isnan(found.x).nonzero())
        raise ValueError(
            f"features must be complete, but {found.num_missing:,} numbers are missing, the first "
            f"in column {found.feature_names[column]!r} of row {found.ids[row]!r}; impute them, or "
            "leave out their columns with --drop"
        )
    return found.x


def _graph(path: Path, ids: list[str]) -> Any:  # noqa: ANN401
    from jlgcn.io.table_file import read_edges

    edge_index, weight = read_edges(path, ids)
    if edge_index.shape[1] == 0:
        raise ValueError(
            f"no edge in {path.name} names two rows of the table; use the ids of the column --id"
        )
    return edge_index if weight is None else (edge_index, weight)


def _cross_edges(path: Path, new: list[str], fitted: list[str]) -> tuple[np.ndarray, np.ndarray]:
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


def _new_rows(table: Path, rows: TableNames) -> TableFile:
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


def _load(model: Path) -> tuple[JLGCNClassifier, TableNames]:
    from jlgcn.estimator import JLGCNClassifier

    fitted = JLGCNClassifier.load(model)
    if fitted.table_ is None:
        raise ValueError(f'{model} has no names of rows and columns; fit it with "jlgcn fit"')
    return fitted, fitted.table_
