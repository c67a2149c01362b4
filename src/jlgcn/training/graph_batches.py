"""Batches of graphs, from clouds of one size, from a list of graphs, or from loaders."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from jlgcn.distributed.collectives import process_group
from jlgcn.training.graph_labels import read_labels
from jlgcn.training.loop import state_hash
from jlgcn.training.points import augment, choose_points, drop_points

Part = Literal["val", "test"]

#: Clouds of a batch of evaluation.
_EVALUATED = 64


@dataclass(frozen=True)
class Batching:
    """How clouds or graphs become batches.

    Attributes:
        batch_size: graphs of a step.
        num_points: points that are drawn of each cloud; None for all.
        augments: scale and shift training clouds at random.
    """

    batch_size: int
    num_points: int | None = None
    augments: bool = False


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """A batch, or the part of it that this process computes.

    Attributes:
        args: arguments of the network.
        y: class of each graph, (B,), int64.
        num_graphs: number of graphs in all processes together.
        num_nodes: nodes of each graph, an integer if all are of one size, else (B,).
    """

    args: tuple[Any, ...]
    y: Tensor
    num_graphs: int
    num_nodes: int | Tensor


class GraphSource(ABC):
    """Source of the batches of a training run."""

    #: Number of classes, if it is known before the first epoch.
    num_classes: int | None = None
    #: Whether the accuracy on test graphs can be measured.
    has_test_labels: bool

    @abstractmethod
    def sha256(self) -> str:
        """Return a hash of all graphs, labels and the split."""

    @abstractmethod
    def first(self) -> tuple[Any, ...]:
        """Return the network's arguments for some training graphs, without drawing anything."""

    @abstractmethod
    def train(self) -> Iterator[GraphBatch]:
        """Return the shuffled batches of an epoch; of each, the part of this process."""

    @abstractmethod
    def evaluate(self, part: Part) -> Iterator[GraphBatch]:
        """Return the batches of a part in order, whole, without drawing anything."""


class CloudSource(GraphSource):
    """Clouds of one size, without edges.

    Args:
        x: the clouds, (B, N, C).
        y: their classes, (B,).
        parts: indices of the clouds of "train", "val" and "test".
        how: how they become batches.
    """

    def __init__(self, x: Tensor, y: Tensor, parts: dict[str, Tensor], how: Batching) -> None:
        self.x, self.y, self.parts, self.how = x, y, parts, how
        check_batch(min(len(parts["train"]), how.batch_size))
        self.num_classes = int(y.max()) + 1
        self.has_test_labels = bool((y[parts["test"]] >= 0).any())

    def sha256(self) -> str:
        """Return a hash of all clouds, labels and the split."""
        return state_hash({"x": self.x, "y": self.y} | self.parts)

    def first(self) -> tuple[Any, ...]:
        """Return the first training clouds."""
        return (self._fixed(self.parts["train"][: self.how.batch_size]),)

    def train(self) -> Iterator[GraphBatch]:
        """Return the batches of an epoch, with other points in each."""
        own = _own_part()
        for clouds in _shuffled(self.parts["train"], self.how.batch_size):
            # Every process draws the whole batch, to keep random states equal, and takes its part.
            points = self.x[clouds]
            if self.how.num_points is not None:
                points = choose_points(points, self.how.num_points)
            points = augment(points) if self.how.augments else points
            yield GraphBatch((points[own],), self.y[clouds[own]], len(clouds), points.shape[1])

    def evaluate(self, part: Part) -> Iterator[GraphBatch]:
        """Return fixed points of each cloud of a part."""
        return self._split(self._fixed(self.parts[part]), part)

    def evaluate_missing(self, part: Part, share: float, seed: int) -> Iterator[GraphBatch]:
        """Return fixed points of each cloud of a part, without a share of them."""
        return self._split(drop_points(self._fixed(self.parts[part]), share, seed=seed), part)

    def _split(self, points: Tensor, part: Part) -> Iterator[GraphBatch]:
        labels = self.y[self.parts[part]].split(_EVALUATED)
        for some, y in zip(points.split(_EVALUATED), labels, strict=True):
            yield GraphBatch((some,), y, len(y), points.shape[1])

    def _fixed(self, clouds: Tensor) -> Tensor:
        """Return fixed points of each cloud, the same for all epochs, seeds and networks."""
        if self.how.num_points is None:
            return self.x[clouds]
        generator = torch.Generator(self.x.device).manual_seed(0)
        return choose_points(self.x[clouds], self.how.num_points, generator=generator)


@dataclass(frozen=True, eq=False)
class OneGraph:
    """Features and edges of a graph.

    Attributes:
        x: features, (N, C).
        edge_index: its edges, (2, E), or None.
        edge_weight: their weights, (E,), or None for 1.
    """

    x: Tensor
    edge_index: Tensor | None = None
    edge_weight: Tensor | None = None

    def sha256(self) -> str:
        """Return a hash of all tensors."""
        return state_hash(
            {name: tensor for name, tensor in vars(self).items() if tensor is not None}
        )


class ListSource(GraphSource):
    """Graphs of different sizes: a list, or a data set that reads or transforms them when asked.

    Args:
        graphs: the graphs.
        y: their classes, (B,).
        parts: indices of the graphs of "train", "val" and "test", on the CPU.
        how: how they become batches.
        like: a parameter of the network, for its device and dtype.
    """

    def __init__(
        self,
        graphs: Sequence[Any],
        y: Tensor,
        parts: dict[str, Tensor],
        how: Batching,
        like: Tensor,
    ) -> None:
        self.graphs, self.y, self.parts, self.how, self.like = graphs, y, parts, how, like
        check_batch(min(len(parts["train"]), how.batch_size))
        self.num_classes = int(y.max()) + 1
        self.has_test_labels = bool((y[parts["test"]] >= 0).any())

    def sha256(self) -> str:
        """Return a hash of all graphs, labels and the split."""
        split = state_hash({"y": self.y} | self.parts)
        return _hash_of_items(self.graphs, split)

    def first(self) -> tuple[Any, ...]:
        """Return the first training graphs."""
        with _keeping_random_state(self.like.device):
            return self._batch(self.parts["train"][: self.how.batch_size], slice(None)).args

    def train(self) -> Iterator[GraphBatch]:
        """Return the batches of an epoch."""
        for index in _shuffled(self.parts["train"], self.how.batch_size):
            yield self._batch(index, _own_part())

    def evaluate(self, part: Part) -> Iterator[GraphBatch]:
        """Return the batches of a part."""
        for index in self.parts[part].split(self.how.batch_size):
            with _keeping_random_state(self.like.device):
                batch = self._batch(index, slice(None))
            yield batch

    def _batch(self, index: Tensor, own: slice) -> GraphBatch:
        items = [self.graphs[i] for i in index.tolist()]  # all, to keep random states equal
        return _collated([read_graph(item) for item in items][own], self.y[index], own, self.like)


class LoaderSource(GraphSource):
    """Batches of loaders: PyTorch Geometric's, or pairs of clouds, (B, N, C), and classes.

    Args:
        loaders: loaders of "train", "val" and, if there is one, "test".
        like: a parameter of the network, for its device and dtype.
    """

    def __init__(self, loaders: dict[str, DataLoader[Any]], like: Tensor) -> None:
        self.loaders, self.like = loaders, like
        self.has_test_labels = "test" in loaders

    def sha256(self) -> str:
        """Return a hash of all data sets, and of the sizes of batches."""
        parts = (
            _hash_of_items(loader.dataset, f"{name} {loader.batch_size}")
            for name, loader in self.loaders.items()
        )
        return hashlib.sha256("".join(parts).encode()).hexdigest()

    def first(self) -> tuple[Any, ...]:
        """Return the first training batch."""
        with _keeping_random_state(self.like.device):
            first = self._read(next(iter(self.loaders["train"])), slice(None), "train")
        check_batch(first.num_graphs)
        return first.args

    def train(self) -> Iterator[GraphBatch]:
        """Return the batches of an epoch."""
        for found in self.loaders["train"]:
            batch = self._read(found, _own_part(), "train")
            if batch.num_graphs >= _fewest():
                yield batch

    def evaluate(self, part: Part) -> Iterator[GraphBatch]:
        """Return the batches of a part."""
        if part in self.loaders:
            with _keeping_random_state(self.like.device):  # a loader draws a seed for its workers
                batches = iter(self.loaders[part])
            for found in batches:
                yield self._read(found, slice(None), part)

    def _read(self, found: Any, own: slice, part: str) -> GraphBatch:  # noqa: ANN401
        if isinstance(found, (tuple, list)) and len(found) == 2:
            points, y = (torch.as_tensor(each).to(self.like.device) for each in found)
            points = _as_dtype(points, self.like)
            y = read_labels(y, len(points), part=part)
            return GraphBatch((points[own],), y[own], len(y), points.shape[1])
        if not hasattr(found, "to_data_list"):
            raise TypeError(
                "a loader must return batches of torch_geometric.loader.DataLoader, or pairs of "
                f"clouds and classes, but it returned a {type(found).__name__}; use that loader"
            )
        y = read_labels(getattr(found, "y", None), found.num_graphs, part=part)
        graphs = [read_graph(graph) for graph in found.to_data_list()]
        return _collated(graphs[own], y, own, self.like)


def read_graph(item: Any) -> OneGraph:  # noqa: ANN401
    """Return features and edges of a graph: `x`, else `pos`, of a `Data`; or a tensor of features.

    Example:
        >>> read_graph(torch.zeros(5, 3)).x.shape
        torch.Size([5, 3])
    """
    if not hasattr(item, "edge_index") and not hasattr(item, "pos"):
        return OneGraph(torch.as_tensor(item))
    x = getattr(item, "x", None)
    x = getattr(item, "pos", None) if x is None else x
    if x is None:
        raise ValueError(
            "a graph needs features, but it has neither x nor pos; set x, for example to the "
            "degrees of its nodes (torch_geometric.transforms.OneHotDegree)"
        )
    return OneGraph(x, getattr(item, "edge_index", None), getattr(item, "edge_weight", None))


def _collated(graphs: list[OneGraph], y: Tensor, own: slice, like: Tensor) -> GraphBatch:
    """Return graphs as one batch; `y` is of all processes, and `own` the part of this one."""
    device = like.device
    sizes = torch.tensor([len(graph.x) for graph in graphs], device=device)
    x = _as_dtype(torch.cat([graph.x for graph in graphs]).to(device), like)
    batch = torch.arange(len(graphs), device=device).repeat_interleave(sizes)
    edges: Tensor | tuple[Tensor, Tensor] | None = None
    if any(graph.edge_index is not None for graph in graphs):
        starts, start = [], 0
        for graph in graphs:
            starts.append(start)
            start += len(graph.x)
        found = [(g, begin) for g, begin in zip(graphs, starts, strict=True) if _has_edges(g)]
        none = [torch.empty(2, 0, dtype=torch.int64, device="cpu")]
        indices = [g.edge_index + begin for g, begin in found if g.edge_index is not None]
        edges = torch.cat(indices or none, -1).to(device)
        if any(graph.edge_weight is not None for graph in graphs):
            weights = [_weights(graph, like) for graph, _ in found]
            edges = (edges, torch.cat(weights or [like.new_empty(0)]).to(like))
    return GraphBatch((x, edges, batch), y[own].to(device), len(y), sizes)


def _has_edges(graph: OneGraph) -> bool:
    return graph.edge_index is not None and graph.edge_index.numel() > 0


def _weights(graph: OneGraph, like: Tensor) -> Tensor:
    assert graph.edge_index is not None
    if graph.edge_weight is not None:
        return graph.edge_weight.to(like.dtype)
    return torch.ones(graph.edge_index.shape[1], dtype=like.dtype, device=graph.edge_index.device)


def _as_dtype(x: Tensor, like: Tensor) -> Tensor:
    """Convert floating-point features; whole numbers may be indices of an embedding."""
    return x.to(like.dtype) if x.dtype.is_floating_point else x


def _own_part() -> slice:
    rank, num_processes = process_group()
    return slice(rank, None, num_processes)


def _fewest() -> int:
    """Batch normalisation needs two graphs, and every process at least one."""
    return max(2, process_group()[1])


def _shuffled(index: Tensor, batch_size: int) -> Iterator[Tensor]:
    order = index[torch.randperm(len(index), device=index.device)]
    for batch in order.split(batch_size):
        if len(batch) >= _fewest():
            yield batch


def check_batch(num_graphs: int) -> None:
    """Raise if the largest batch is too small."""
    if num_graphs < _fewest():
        raise ValueError(
            f"a batch needs {_fewest()} graphs, for batch normalisation and for each process, but "
            f"the largest has {num_graphs}; use a larger batch_size, or more training graphs"
        )


def _keeping_random_state(device: torch.device) -> Any:  # noqa: ANN401
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])


def _hash_of_items(graphs: Any, more: str) -> str:  # noqa: ANN401
    """Return a hash of the graphs of a list or data set, before any transform."""
    digest = hashlib.sha256(more.encode())
    if not hasattr(graphs, "__len__"):
        raise TypeError(
            "checkpoints need graphs that can be counted, to tell whose they are, but the loader "
            f"reads a {type(graphs).__name__}; use a map-style data set, or no checkpoints"
        )
    parts = getattr(graphs, "datasets", None)  # of a ConcatDataset
    if parts is not None:
        for part in parts:
            digest.update(_hash_of_items(part, "").encode())
        return digest.hexdigest()
    if hasattr(graphs, "get") and hasattr(graphs, "indices"):
        items = (graphs.get(i) for i in graphs.indices())  # PyTorch Geometric's Dataset
        digest.update(repr(getattr(graphs, "transform", None)).encode())
    else:
        items = (graphs[i] for i in range(len(graphs)))
    with torch.random.fork_rng(devices=[]):  # of random transforms
        torch.manual_seed(0)
        for item in items:
            pair = item if isinstance(item, (tuple, list)) else (item, getattr(item, "y", None))
            digest.update(read_graph(pair[0]).sha256().encode())
            if pair[1] is not None:
                digest.update(state_hash({"y": torch.as_tensor(pair[1])}).encode())
    return digest.hexdigest()
