"""Commands for the user's own tables: fit, edges, suggest, compare."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jlgcn.cli.options import (
    AddressOption,
    DeviceOption,
    DropOption,
    EdgesOption,
    EngineOption,
    EpochsOption,
    IdOption,
    ItemEdgesOption,
    Items,
    LabelOption,
    OverwriteOption,
    ScalerOption,
    SolverOption,
    Table,
    WorkersOption,
)
from jlgcn.cli.scale import stages_shown
from jlgcn.cli.tables import (
    LayerOption,
    Model,
    TextOption,
    counted,
    features_of,
    load_model,
    plain_errors,
    printable,
    read_graph,
    read_labelled,
    texts_of,
)

if TYPE_CHECKING:
    from jlgcn.estimator import JLGCNClassifier


def fit(
    table: Items,
    label: LabelOption,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", metavar="MODEL", help="Folder to write to. Default: TABLE-model beside TABLE."
        ),
    ] = None,
    id_column: IdOption = None,
    edges: ItemEdgesOption = None,
    drop: DropOption = None,
    text: TextOption = None,
    scaler: ScalerOption = "auto",
    solver: SolverOption = "closed_form",
    preset: Annotated[
        str,
        typer.Option(
            help="Network: authors or paper (code or text of the paper), or decoupled (predict, "
            "then propagate on the learned graph; starts at the kNN graph of the features).",
            rich_help_panel="Network",
        ),
    ] = "authors",
    hidden: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Network: features between its layers. Default: the preset's.",
            rich_help_panel="Network",
        ),
    ] = None,
    epochs: EpochsOption = 200,
    validation: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Network: share of the labels of each class that training does not see and that "
            "select the epoch.",
            rich_help_panel="Network",
        ),
    ] = 0.2,
    backend: Annotated[
        str,
        typer.Option(
            help="Network: learned graphs of all pairs of rows (exact, dense) or of nearest "
            "neighbours (knn). auto: all pairs up to 5,000 rows on a CPU.",
            rich_help_panel="Network",
        ),
    ] = "auto",
    seed: Annotated[
        int,
        typer.Option(
            help="Network: seed of its start and of dropout.",
            rich_help_panel="Network",
        ),
    ] = 0,
    device: DeviceOption = "cpu",
    engine: EngineOption = None,
    workers: WorkersOption = None,
    address: AddressOption = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Fit a semi-supervised classifier to a table with some labels, and learn its graph.

    Example: jlgcn fit customers.csv --label segment

    Columns may be numbers, categories, text, dates, booleans, and have gaps (extra
    "table"). Ids are found, empty and constant columns dropped; what is odd is
    listed at once. The model has what was learned of the columns, and "jlgcn
    predict" reads new rows as they are. Of one column of text: jlgcn fit
    posts.csv --label topic --text body

    All rows are used, labelled or not. The model learns a metric and a kNN graph
    of the rows, adds known edges (--edges), and predicts every row.
    Hyperparameters are selected by cross-validation on the labels. Classifiers
    without the learned graph, logistic regression among them, are averaged with
    it, weighted by their held-out log-losses. The folder contains the features,
    to which new rows are attached.

    The paper's network instead: jlgcn fit wines.csv --id name --label grape
    --solver gradient --epochs 200 --out wines-network

    It learns a graph in each of two layers and trains metric and weights jointly
    by gradient descent; held-out labels select the epoch. Every command below
    reads both kinds of model.

    More rows than memory holds: jlgcn fit items/ --id name --label kind --edges
    edges/ --engine local --out items-model

    The same closed form on folders of Parquet files, shard by shard, by processes
    of this machine or by a Ray cluster (--engine ray); folders may be on S3, and
    edges name ids. The model has predictions of all rows, as Parquet, and "jlgcn
    predict" reads it. A command that was interrupted goes on when it is run again.
    A model that is there, of the same files and options, is not fitted twice; one
    of others is replaced with --overwrite alone.
    """
    if out is None:
        out = _model_of(table)
    if engine is not None:
        with plain_errors(), stages_shown():
            if solver != "closed_form" or device != "cpu":
                raise ValueError('an engine runs solver="closed_form" on CPUs; leave out --engine')
            _fit_shards(
                *(table, label, out, id_column, edges, drop, scaler),
                *(engine, workers, address, overwrite),
            )
        return
    with plain_errors():
        if (Path(out) / "shards.json").exists():
            raise FileExistsError(f"{out} holds a model by an engine; pass another --out")
        if "://" in table or Path(table).is_dir():
            raise ValueError(
                f"{table} is {'not on disk' if '://' in table else 'a folder'}: add --engine local"
            )
        if "://" in out:
            raise ValueError(f"{out} is not on disk: add --engine local, or pass a folder as --out")
        found, labels, id_column = read_labelled(Path(table), id_column, label, drop)
        from jlgcn.estimator import JLGCNClassifier  # after the file is known to be good
        from jlgcn.estimator.document import TableNames
        from jlgcn.estimator.encoding import feature_names

        graph = None if edges is None else read_graph(Path(edges), found.ids)
        model = JLGCNClassifier(
            solver=solver,  # type: ignore[arg-type]
            scaler=scaler,  # type: ignore[arg-type]
            preset=preset,  # type: ignore[arg-type]
            hidden_channels=hidden,
            max_iter=epochs,
            validation_fraction=validation,
            backend=backend,  # type: ignore[arg-type]
            random_state=seed,
            device=device,
            verbose=True,  # the progress of training
        )
        model.fit(features_of(found, text), labels, graph).set_params(verbose=False)
        used = found.feature_names if text is None else [text]
        model.table_ = TableNames(
            found.ids, id_column, label, drop or [], used, texts_of(found, model, text)
        )
        model.save(Path(out))
    num_rows, num_labels = len(found.ids), len(model.model_.train)
    rows = counted(num_rows, "row") + ("" if id_column is None else f" with ids in {id_column!r}")
    features = counted(len(feature_names(model)), "feature")
    if model.encoder_ is not None:
        features += " of " + (counted(len(used), "column") if text is None else repr(text))
    if model.scaler_.kind != "none":
        features += f" (scaled as {model.scaler_.kind})"
    typer.echo(
        f"{rows}, {features}, {num_labels:,} labels of {len(model.classes_)} classes; "
        f"{_summary(model)}. Written to {out}."
    )
    of_rows = f'"jlgcn predict {out} --out classes.csv" (these rows), '
    if num_labels == num_rows:
        typer.echo(
            f"All {num_rows:,} rows have a label: nothing is left to predict here; pass new rows "
            'to "jlgcn predict".'
        )
        of_rows = ""
    typer.echo(f'Next: "jlgcn report {out}", {of_rows}"jlgcn predict {out} TABLE" (new rows).')


def _model_of(table: str) -> str:
    """Return the folder of the model of a table, beside it."""
    path = Path(table)
    if path.name in ("", ".."):  # "." has a name only once it is resolved
        path = path.resolve()
    if "://" in table or not path.name:
        raise typer.BadParameter("pass --out, a folder to write the model to")
    return str(path.with_name(f"{path.name.partition('.')[0]}-model"))


def _fit_shards(
    items: str,
    label: str,
    out: str,
    id_column: str | None,
    edges: str | None,
    drop: list[str] | None,
    scaler: str,
    engine: str,
    workers: int | None,
    address: str | None,
    overwrite: bool,
) -> None:
    """Fit by an engine, and say what was learned."""
    from jlgcn.engine import ShardedModel
    from jlgcn.engine.store import below

    model = ShardedModel.fit(
        items,
        label=label,
        out=out,
        edges=edges,
        id_column=id_column,
        drop=drop or (),
        scaler=scaler,  # type: ignore[arg-type]
        engine=engine,  # type: ignore[arg-type]
        num_workers=workers,
        address=address,
        overwrite=overwrite,
    )
    found = model.document
    typer.echo(
        f"{model.num_rows:,} rows, {found['num_labels']:,} labels of {len(found['classes'])} "
        f"classes (features scaled as {found['scaler']['kind']}); kNN graph with n_neighbors="
        f"{found['options']['n_neighbors']}; {found['evidence']}. Predictions are in "
        f"{below(out, 'predictions')}."
    )
    typer.echo(f'Next: "jlgcn predict {out} NEW --out SCORES".')


def _summary(model: JLGCNClassifier) -> str:
    """Return what was learned, in a few words."""
    if model.solver == "closed_form":
        neighbors = model.best_params_["n_neighbors"]
        evidence = model.model_.evidence
        tested = "" if evidence.without_graph is None else '; "jlgcn compare" tests this'
        return f"kNN graph with n_neighbors={neighbors}; {evidence}{tested}"
    epoch, fitted = model.best_params_["epoch"], model.model_
    accuracy = model.history_[epoch]["val_accuracy"]
    return (
        f"network with {fitted.backend} graphs, epoch {epoch + 1} of {len(model.history_)} "
        f"selected by {len(fitted.validation)} labels (accuracy {accuracy:.2f})"
    )


def edges(
    model: Model,
    top_k: Annotated[
        int, typer.Option(min=1, help="Keep an edge if it is in the top k of either end.")
    ] = 10,
    layer: LayerOption = None,
    out: Annotated[
        Path, typer.Option(help="File to write; it ends with .graphml (Gephi), .csv or .parquet.")
    ] = Path("edges.graphml"),
) -> None:
    """Export the top edges of the learned graph, with the table's ids and edge weights.

    Example: jlgcn edges wines-model --top-k 5 --out wines.graphml

    A weight is the kernel exp(-d²) of the learned distance d, between 0 and 1.
    Known edges are not exported. A network has a graph in each layer; exported
    are the edges of each row to its nearest rows.
    """
    from jlgcn.io.export import write_edges

    with plain_errors():
        fitted, rows = load_model(model)
        found = fitted.edges(layer, top_k=top_k)
        write_edges(found, out, rows.ids)
    typer.echo(
        f"{counted(len(found), 'edge')} of {counted(found.num_nodes, 'row')} written to {out}"
    )


def suggest(
    model: Model,
    number: Annotated[int, typer.Option("-n", "--number", min=1, help="Number of rows.")] = 10,
) -> None:
    """Suggest the rows to label next (active learning), the most informative first.

    Example: jlgcn suggest wines-model -n 5

    Prints the unlabelled rows whose labels reduce the variance of all predictions
    most (V-optimal design; of a network, of its last layer): their ids and, behind
    a tab, the beginning of their text or cells, the most important columns first,
    cut at the width of a terminal. Label all of them, then fit again.
    """
    with plain_errors():
        fitted, rows = load_model(model)
        suggested = fitted.suggest_labels(number)
    for row in suggested.tolist():
        text = "" if rows.texts is None else f"\t{printable(rows.texts[row])}"
        line = f"{printable(rows.ids[row])}{text}"
        if sys.stdout.isatty():
            line = line.expandtabs()[: shutil.get_terminal_size().columns]
        typer.echo(line)


def compare(
    table: Table,
    label: LabelOption,
    id_column: IdOption = None,
    edges: EdgesOption = None,
    drop: DropOption = None,
    text: TextOption = None,
    scaler: ScalerOption = "auto",
    splits: Annotated[int, typer.Option(min=2, help="Number of random splits.")] = 10,
    network: Annotated[
        bool,
        typer.Option(
            "--network",
            help="Compare the paper's network, too: minutes, not seconds.",
            rich_help_panel="Network",
        ),
    ] = False,
    epochs: EpochsOption = 200,
    device: DeviceOption = "cpu",
) -> None:
    """Measure whether a graph helps on a table: ablation and rivals on held-out labels.

    Example: jlgcn compare wines.csv --id name --label grape --edges
    sold_together.csv

    In each split a fifth of the labels is held out. Prints accuracy with its 95 %
    interval, balanced accuracy and log-loss of the model with the given, the
    learned and both graphs, of two controls (no learned metric, shuffled graph),
    and of rivals tuned on the same labels: logistic regression, label spreading,
    and PageRank features of a fixed graph; with --network, of the paper's network,
    too. Recommends one. Takes 3 to 5 fits a split,
    30 to 50 in all by default.
    """
    with plain_errors():
        found, labels, _ = read_labelled(table, id_column, label, drop)
        from jlgcn.estimator import JLGCNClassifier  # after the file is known to be good
        from jlgcn.estimator.comparison import compare as compare_variants

        graph = None if edges is None else read_graph(edges, found.ids)
        estimator = JLGCNClassifier(
            scaler=scaler,  # type: ignore[arg-type]
            max_iter=epochs,
            device=device,
        )
        compared = compare_variants(
            features_of(found, text),
            labels,
            graph,
            estimator=estimator,
            n_splits=splits,
            network=network,
            progress=True,
        )
    typer.echo(str(compared))
