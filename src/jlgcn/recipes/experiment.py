"""One experiment on a citation network: everything its result depends on, and how to run it."""

from __future__ import annotations

import dataclasses
import difflib
import typing
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import NoneType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from jlgcn.data import NodeData, drop_edges, drop_labels, load_planetoid, normalize_rows, subsample
from jlgcn.data.citation import Planetoid
from jlgcn.nn import JLGCN, PRESETS
from jlgcn.nn.learner import Backend
from jlgcn.nn.options import MetricInit, Preset
from jlgcn.train import TrainConfig, fit
from jlgcn.train.result import config_hash, read_result, write_graphs, write_result

Protocol = Literal["honest", "authors"]


@dataclass(frozen=True)
class Experiment:
    """A network for a citation network, and how to train it.

    Attributes:
        dataset: which citation network.
        num_others: nodes kept beside those of the split; None for all.
        edges_missing: share of the given edges that is removed first, by the seed.
        labels_missing: share of the training labels that is removed first, by the seed.
        model: the paper's network, or a baseline from PyTorch Geometric, to which nothing below
            applies but `protocol` and `train`.
        preset: the paper's text or its authors' code.
        hidden_channels: features between the layers.
        num_layers: number of layers.
        num_learned: how many layers, from the first, learn a graph; None for all.
        rank: rank of every metric; None for that of its input.
        metric_init: how metrics begin; None for as the preset says.
        train_metric: whether metrics are trained.
        graph_after_dropout: whether graphs see dropout; None for as the preset says.
        dropout: share of every layer's input that is dropped.
        input_dropout: the same for the first layer; None for `dropout`.
        backend: how learned graphs are held.
        num_neighbors: neighbours of a node where they are held as kNN.
        keep_graphs: keep the weights among the first so many nodes, in every layer, for a picture.
        protocol: "honest" looks at the test nodes once, after selection; "authors" traces them in
            every epoch as well, and reports the best apart.
        train: how to train.
    """

    dataset: Planetoid = "cora"
    num_others: int | None = None
    edges_missing: float = 0.0
    labels_missing: float = 0.0
    model: Literal["jlgcn", "gcn", "gat"] = "jlgcn"
    preset: Preset = "authors"
    hidden_channels: int = 16
    num_layers: int = 2
    num_learned: int | None = None
    rank: int | None = 16
    metric_init: MetricInit | None = None
    train_metric: bool = True
    graph_after_dropout: bool | None = None
    dropout: float = 0.5
    input_dropout: float | None = None
    backend: Backend = "exact"
    num_neighbors: int = 16
    keep_graphs: int = 0
    protocol: Protocol = "honest"
    train: TrainConfig = field(default_factory=TrainConfig)

    def configuration(self) -> dict[str, Any]:
        """Return all that the result depends on, as plain values."""
        return dataclasses.asdict(self)


def experiment_key(configuration: dict[str, Any]) -> str:
    """Return a short name for what was run, which does not change when experiments get new fields.

    The protocol does not count: tracing the test nodes changes nothing but what is reported.

    Example:
        >>> experiment_key({"dataset": "cora"}) == experiment_key(Experiment().configuration())
        True
    """
    defaults = Experiment().configuration()
    train = defaults["train"] | configuration.get("train", {})
    return config_hash(defaults | configuration | {"train": train, "protocol": None})


def with_settings(experiment: Experiment, settings: dict[str, str]) -> Experiment:
    """Return an experiment with some fields, or fields of its training, set from text.

    Example:
        >>> with_settings(Experiment(), {"epochs": "3"}).train.epochs
        3
    """
    own = {f.name for f in dataclasses.fields(experiment)} - {"train"}
    training = {f.name for f in dataclasses.fields(TrainConfig)}
    for name, text in settings.items():
        if name in own:
            experiment = replace(experiment, **{name: _parse(Experiment, name, text)})
        elif name in training:
            changed = replace(experiment.train, **{name: _parse(TrainConfig, name, text)})
            experiment = replace(experiment, train=changed)
        else:
            near = difflib.get_close_matches(name, own | training, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            choices = ", ".join(sorted(own | training))
            raise ValueError(f"there is no setting {name!r}{hint} Settings are: {choices}")
    return experiment


def load(
    experiment: Experiment, seed: int, root: Path | None = None, *, download: bool = False
) -> NodeData:
    """Return the data of an experiment, without what it asks to be missing."""
    data = load_planetoid(experiment.dataset, root, download=download)
    if experiment.num_others is not None:
        data = subsample(data, experiment.num_others)
    if experiment.edges_missing > 0:
        kept_edges = drop_edges(data.edge_index, experiment.edges_missing, seed=seed)
        data = replace(data, edge_index=kept_edges)
    if experiment.labels_missing > 0:
        kept = drop_labels(data.train, data.y, experiment.labels_missing, seed=seed)
        data = replace(data, train=kept)
    return data


def make_model(experiment: Experiment, in_channels: int, num_classes: int) -> nn.Module:
    """Return the network of an experiment, drawn from the current random state."""
    if experiment.model != "jlgcn":
        from jlgcn.nn.baselines import GAT, GCN

        baseline = GCN if experiment.model == "gcn" else GAT
        return baseline(in_channels, num_classes)
    options = PRESETS[experiment.preset]
    if experiment.metric_init is not None:
        options = replace(options, metric_init=experiment.metric_init)
    if experiment.graph_after_dropout is not None:
        options = replace(options, graph_after_dropout=experiment.graph_after_dropout)
    model = JLGCN(
        in_channels,
        experiment.hidden_channels,
        num_classes,
        experiment.num_layers,
        experiment.rank,
        num_learned=experiment.num_learned,
        dropout=experiment.dropout,
        input_dropout=experiment.input_dropout,
        options=options,
        backend=experiment.backend,
        num_neighbors=experiment.num_neighbors,
    )
    for learner in model.learners:
        learner.metric.requires_grad_(experiment.train_metric)
    return model


def run_seed(
    experiment: Experiment,
    seed: int,
    *,
    recipe: str,
    variant: str,
    out: Path,
    root: Path | None = None,
    data: NodeData | None = None,
    download: bool = False,
    resume: bool = False,
    progress: bool = False,
    checkpoint_seconds: float = 120.0,
) -> dict[str, Any]:
    """Run one seed of an experiment and return its result.

    A finished one is not run again, in whichever recipe it was: tables share experiments.

    Args:
        experiment: what to run.
        seed: of everything random.
        recipe: the recipe it belongs to.
        variant: which of the recipe's variants it is.
        out: folder of runs; this one is in ``<recipe>/<configuration>/seed-<n>`` below it.
        root: folder of the data; None for JLGCN_DATA.
        data: a graph to run on in place of the experiment's own.
        download: fetch data files that are not there.
        resume: go on from the checkpoint of an interrupted run, instead of refusing.
        progress: show a bar.
        checkpoint_seconds: time between two checkpoints.
    """
    configuration = experiment.configuration()
    place = Path(config_hash(configuration)) / f"seed-{seed}"
    folder = out / recipe / place
    for other in (folder, *sorted(out.glob(f"*/*/{place}"))):
        finished = read_result(other)
        if finished is not None:
            return finished
    checkpoints = folder / "checkpoints"
    if checkpoints.exists() and not resume:
        raise FileExistsError(
            f"{folder} has checkpoints of an interrupted run; add --resume to go on from them, or "
            "delete the folder to begin anew"
        )
    data = load(experiment, seed, root, download=download) if data is None else data
    x, graph = normalize_rows(data.x), data.graph()
    model, fitted = fit(
        lambda: make_model(experiment, x.shape[1], data.num_classes),
        data,
        x,
        graph,
        experiment.train,
        seed=seed,
        trace_test=experiment.protocol == "authors",
        checkpoints=checkpoints,
        checkpoint_seconds=checkpoint_seconds,
        progress=progress,
        label=f"{recipe} {variant} seed {seed}",
    )
    if experiment.keep_graphs > 0:
        assert isinstance(model, JLGCN)
        write_graphs(folder, first_weights(model, x, data, experiment.keep_graphs))
    return write_result(
        folder,
        fitted,
        recipe=recipe,
        variant=variant,
        protocol=experiment.protocol,
        configuration=configuration,
        seed=seed,
        data_sha256=data.sha256,
    )


@torch.no_grad()
def first_weights(
    model: JLGCN, x: Tensor, data: NodeData, num_nodes: int
) -> dict[str, list[list[float]]]:
    """Return the weights among the first nodes of the given graph and of each layer's graph."""
    nodes = torch.arange(num_nodes)
    given = data.graph()
    graphs = {"given": given}
    graphs |= {
        f"layer {index}": graph for index, graph in enumerate(model(x, given).graphs, start=1)
    }
    return {name: graph.rows(nodes)[:, :num_nodes].tolist() for name, graph in graphs.items()}


def _parse(owner: type, name: str, text: str) -> Any:  # noqa: ANN401
    """Read a value of the type that a field of a dataclass has."""
    annotation = typing.get_type_hints(owner)[name]
    kinds = typing.get_args(annotation) if typing.get_origin(annotation) is not Literal else ()
    kinds = kinds or (annotation,)
    if NoneType in kinds and text.lower() == "none":
        return None
    kind = next(k for k in kinds if k is not NoneType)
    if typing.get_origin(kind) is Literal:
        choices = typing.get_args(kind)
        if text not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}, but it is {text!r}")
        return text
    parsers: dict[Any, Callable[[str], Any]] = {int: int, float: float, bool: _parse_bool}
    try:
        return parsers[kind](text)
    except ValueError:
        none = " or none" if NoneType in kinds else ""
        raise ValueError(f"{name} must be {kind.__name__}{none}, but it is {text!r}") from None


def _parse_bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower() == "true"
