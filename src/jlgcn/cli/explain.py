"""The command that explains an edge, or a predicted class."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jlgcn.cli.tables import LayerOption, Model, load_model, plain_errors, printable

if TYPE_CHECKING:
    from jlgcn.estimator import JLGCNClassifier
    from jlgcn.estimator.document import TableNames


def explain(
    model: Model,
    first: Annotated[str, typer.Argument(metavar="I", help="Id of a row of fit.")],
    second: Annotated[
        str | None,
        typer.Argument(metavar="J", help="Id of another row. Default: explain the class of I."),
    ] = None,
    layer: LayerOption = None,
    top: Annotated[int, typer.Option(min=1, help="Number of features, or neighbours.")] = 10,
) -> None:
    """Explain an edge by its features, or a predicted class by the neighbours of a row.

    Example of an edge: jlgcn explain wines-model barolo-1971 barolo-1978

    Example of a class: jlgcn explain wines-model barolo-1971

    Both are exact: contributions sum to the learned squared distance, or to the
    class score, the logit relative to the mean over classes. Features of one
    column, such as categories or the components of a text, are summed. A network (fit
    --solver gradient) explains edges only. After its first layer, --layer
    explains by hidden features.
    """
    with plain_errors():
        fitted, rows = load_model(model)
        if second is None:
            if layer is not None:
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
        known = f"rows are numbered from 0 to {len(rows.ids) - 1}"
        if rows.id_column is not None:
            known = f"rows are named by {rows.id_column!r}, such as {rows.ids[0]}"
        raise ValueError(f"{model} has no row {name!r}; {known}")
    number: int = rows.ids.index(name)
    return number


def _explain_edge(
    fitted: JLGCNClassifier, rows: TableNames, i: int, j: int, layer: int | None, top: int
) -> list[str]:
    from jlgcn.estimator.encoding import column_names, sum_by_name
    from jlgcn.estimator.solvers import names_of_features

    found = fitted.explain_edge(i, j, layer)
    features = names_of_features(fitted.model_, layer, column_names(fitted))
    parts, columns = sum_by_name(found.features, features)
    order = parts.abs().argsort(descending=True)[:top].tolist()
    names = [printable(columns[k]) for k in order]
    width = max(len(name) for name in names)
    lines = [f"weight {found.weight:.4g}: squared distance {found.squared_distance:.4g}, of which"]
    for k, name in zip(order, names, strict=True):
        part = float(parts[k])
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
