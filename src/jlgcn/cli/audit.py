"""The command that lists suspicious and missing edges."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jlgcn.cli.tables import Model, load_model, plain_errors, printable

if TYPE_CHECKING:
    from jlgcn.estimator.audit import Audit

_FORMATS = "it ends with .csv, .parquet or .graphml"
_FEATURES = 3  # printed features of an edge


def audit(
    model: Model,
    suspicious: Annotated[
        Path | None,
        typer.Option(help=f"Write all known edges, the most suspicious first; {_FORMATS}."),
    ] = None,
    missing: Annotated[
        Path | None,
        typer.Option(help=f"Write likely edges that are not known; {_FORMATS}."),
    ] = None,
    cleaned: Annotated[
        Path | None,
        typer.Option(
            help="Write the known graph without as many suspicious edges as are estimated to be "
            f"wrong, and with as many missing ones; {_FORMATS}."
        ),
    ] = None,
    top: Annotated[int, typer.Option(min=0, help="Edges of each kind to print.")] = 10,
) -> None:
    """Audit the known edges: which look wrong, which are missing, and why.

    Example: jlgcn audit wines-model --suspicious wrong.csv --missing likely.csv

    Needs a model that was fitted with --edges. An edge is scored with itself
    taken out of the graph, by learned distance, PageRank similarity and common
    neighbours; a logistic regression of known edges against random pairs weighs
    them, so no wrong edge has to be known. The columns are source, target and
    score: the probability, at even odds, that a known edge is a random pair, or
    that a missing one is an edge. Prints the features whose contributions to the
    score are largest.
    """
    from jlgcn.estimator.encoding import feature_names
    from jlgcn.io.export import write_edges

    with plain_errors():
        fitted, rows = load_model(model)
        found, names = fitted.audit(), feature_names(fitted)
        written = []
        for path, what in ((suspicious, "suspicious"), (missing, "missing"), (cleaned, "cleaned")):
            if path is None:
                continue
            edges = (
                found.cleaned() if what == "cleaned" else found.edge_list(missing=what == "missing")
            )
            attribute = "weight" if what == "cleaned" else "score"
            write_edges(edges, path, rows.ids, attribute=attribute)
            written.append(f"{len(edges):,} edges written to {path}")
        lines = [
            f"{len(found.suspicious.source):,} known edges, of which about {found.num_wrong:,} are "
            "no better than random pairs",
            *_table(found, names, top, missing=False),
            *_table(found, names, top, missing=True),
            *written,
        ]
    typer.echo("\n".join(lines))


def _table(found: Audit, names: list[str], top: int, *, missing: bool) -> list[str]:
    table = found.missing if missing else found.suspicious
    number = min(top, len(table.source))
    if number == 0:
        return []
    lines = ["missing edges:" if missing else "suspicious edges:"]
    for edge in range(number):
        features, neighbors = found.reasons(edge, missing=missing, number=_FEATURES)
        why = ", ".join(f"{printable(names[k])} {value:+.2g}" for k, value in features)
        ends = f"{printable(table.source[edge])} - {printable(table.target[edge])}"
        shared = len(neighbors)
        lines.append(
            f"  {table.score[edge]:.3f}  {ends}  ({why}; {shared} common "
            f"{'neighbour' if shared == 1 else 'neighbours'})"
        )
    return lines
