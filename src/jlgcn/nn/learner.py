"""The graph learner: a Mahalanobis metric, and the Gaussian graph of features under it."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from jlgcn._memory import available_bytes, check_memory
from jlgcn._validation import check_batch
from jlgcn.graphs import DenseGraph, Graph, KernelGraph, SparseGraph, gaussian_knn_graph
from jlgcn.graphs.attached import AttachedGraph, attach_points
from jlgcn.nn.features import Features
from jlgcn.nn.health import GraphHealth
from jlgcn.nn.metric import MahalanobisMetric
from jlgcn.nn.neighbors import KeptNeighbors, NeighborSchedule
from jlgcn.nn.options import MetricInit
from jlgcn.ops.blocks import kernel_matrix
from jlgcn.ops.csr import Pattern, edge_squared_distance
from jlgcn.ops.knn import nearest_neighbors
from jlgcn.ops.precision import compute_dtype

logger = logging.getLogger(__name__)

Backend = Literal["auto", "exact", "knn", "dense"]
BACKENDS: tuple[Backend, ...] = ("auto", "exact", "knn", "dense")

#: Up to this many nodes "auto" learns exact graphs, by device; their cost is quadratic.
MAX_EXACT_NODES = {"cpu": 5_000, "cuda": 50_000}

#: Up to this many nodes "auto" stores graphs of a batch as dense: every layer reuses them.
MAX_DENSE_NODES = 512

# Share of the weight of exact neighbours below which `edges` searches again.
_MIN_RECALL = 0.9


class GraphLearner(MahalanobisMetric):
    r"""Learns a graph from features through a low-rank Mahalanobis metric.

    Equations 6 and 8 of `Joint Graph and Feature Learning in Graph Convolutional Neural Networks
    <https://arxiv.org/abs/1909.04931>`_:

    .. math:: a_{ij} = \exp(-\|R^\top (f_i - f_j)\|^2), \qquad M = R R^\top

    The metric M is never formed; :attr:`metric` is the linear map Rᵀ. With
    ``metric_init="euclidean"`` the low-rank part is added to the Euclidean distance, so that
    training starts at the fixed kNN graph,

    .. math:: a_{ij} = \exp(-\|f_i - f_j\|^2 / u - \|R^\top (f_i - f_j)\|^2)

    where u is the median squared distance to one of the 20 nearest neighbours, and R starts close
    to 0: under it, squared distances are in expectation 10⁻⁴ of the Euclidean ones, since at R = 0
    the gradient would be 0. R is then trained by gradients, by :meth:`regress_metric`, or both.

    Args:
        in_channels (int ≥ 1): features of a node, K in the paper.
        rank (int ≥ 1, default 16): columns of R, S in the paper.
        metric_init ("median", "random", "identity" or "euclidean", default "median"):
            initialisation of R.
            "median" draws it at random, and :meth:`calibrate` scales it to features, so that the
            graph is neither empty nor complete. "random" is the paper's, uniform in
            ±1/√in_channels; on rows of unit norm all distances are then close to 0, and the initial
            graph is a global average. "identity" is the Euclidean distance; rank must equal
            in_channels. "euclidean" is the sum above; :meth:`calibrate` measures u. Features should
            be scaled, as by :class:`jlgcn.closed_form.FeatureScaler`; sparse ones become dense.
        backend ("auto", "exact", "knn" or "dense", default "auto"): "exact" has an edge for every
            pair of nodes, "knn" for nearest neighbours only. "auto" is exact up to 5,000 nodes on a
            CPU (50,000 on a GPU) and kNN above, logs its choice once, and raises MemoryError if
            the edges do not fit into memory. "dense" is exact and stores all N × N weights: faster
            for ranks in the hundreds; "auto" uses it for batches of graphs of up to 512 nodes.
        num_neighbors (int ≥ 1, default 16): neighbours of a node for kNN and :meth:`edges`.
        median_distance (float > 0, default 1): median squared distance after :meth:`calibrate`,
            with "euclidean" to near neighbours; a smaller one gives a denser graph.

    Shapes:
        - x: (\*batch, N, in_channels); batches need an exact backend. A single matrix may be
          :class:`jlgcn.ops.SparseFeatures`.
        - returns a graph of shape (\*batch, N, N).

    Cost: N·in_channels·rank FLOP for the projection; products with the graph cost what
    :class:`jlgcn.KernelGraph` and :func:`jlgcn.gaussian_knn_graph` say, with "euclidean" for points
    of in_channels + rank coordinates.

    Example:
        >>> x = torch.randn(100, 8)
        >>> learner = GraphLearner(8, rank=4).calibrate(x)
        >>> learner(x)
        KernelGraph(100 × 100, float32, cpu)
    """

    def __init__(
        self,
        in_channels: int,
        rank: int = 16,
        *,
        metric_init: MetricInit = "median",
        backend: Backend = "auto",
        num_neighbors: int = 16,
        median_distance: float = 1.0,
    ) -> None:
        super().__init__(in_channels, rank, metric_init, median_distance)
        if backend not in BACKENDS:
            raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, but it is {backend!r}")
        self.backend: Backend = backend
        self.num_neighbors = num_neighbors
        self._has_chosen = False
        self.health = GraphHealth()
        #: Neighbour candidates, which a network may keep over training steps.
        self.neighbors = KeptNeighbors()
        self._schedule: NeighborSchedule | None = None  # of `edges`
        self._euclidean_of: tuple[Pattern, Tensor] | None = None
        self.reset_parameters()

    def forward(
        self,
        x: Features,  # (*batch, N, in_channels)
        graph: Graph | None = None,
        valid: Tensor | None = None,  # (*batch, N), bool
    ) -> Graph:
        """Return the learned graph.

        Args:
            x: features.
            graph: given graph; edges of a sparse one are candidate neighbours of kNN. If nodes
                were attached to it (:func:`jlgcn.graphs.attach`), the graph is learned from the
                other nodes, and the new ones are attached to it.
            valid: False marks padding, which gets no edges.
        """
        if graph is not None and not isinstance(graph, Graph):
            raise TypeError(
                f"graph must be a Graph, but it is a {type(graph).__name__}; call learner.edges(x, "
                "edge_index) for layers of PyTorch Geometric, or pass as_graph(edge_index, len(x))"
            )
        z = self.project(x)
        if graph is not None and graph.num_new > 0:
            given = graph if isinstance(graph, AttachedGraph) else None
            base = self._graph(z[: -graph.num_new], None if given is None else given.base)
            return attach_points(base, z, graph, self.num_neighbors)
        learned = self._graph(z, graph, valid)
        is_step = self.neighbors.mode != "checked"
        if valid is None and is_step and not torch.compiler.is_compiling():
            self.health.look(z, learned, graph)
        return learned

    def _graph(self, z: Tensor, graph: Graph | None, valid: Tensor | None = None) -> Graph:
        backend = self._choose_backend(z)
        if backend == "exact":
            return KernelGraph(z, valid=valid)
        if backend == "dense":
            if not torch.compiler.is_compiling():
                needed = dense_bytes(z.shape[:-1], z.element_size())
                check_memory(needed, z.device, 'backend="dense"', 'backend="exact"')
            weight = kernel_matrix(z)
            if valid is not None:
                weight = weight * valid.unsqueeze(-1) * valid.unsqueeze(-2)
            return DenseGraph(weight)
        if valid is not None:
            raise ValueError(
                'a padded batch needs an exact graph, but backend is "knn"; set backend="exact" or '
                '"dense"'
            )
        given = graph if isinstance(graph, SparseGraph) else None
        if self.neighbors.mode == "fresh" or torch.compiler.is_compiling():
            return gaussian_knn_graph(z, self.num_neighbors, given)
        return self.neighbors.graph(z, self.num_neighbors, given)

    def edges(
        self,
        x: Features,  # (N, in_channels)
        edge_index: Tensor | None = None,  # (2, E)
        batch: Tensor | None = None,  # (N,)
        *,
        keep: bool = False,
    ) -> tuple[Tensor, Tensor]:  # (2, E'), (E',)
        """Return learned edges and weights, as layers of PyTorch Geometric take them.

        Edges join each node with its `num_neighbors` nearest, with its neighbours in `edge_index`
        and with itself, in both directions. Weights are differentiable in `x` and in the metric:
        only layers that use `edge_weight`, as GCNConv does, train it. SAGEConv and GATConv do not.

        Args:
            x: features.
            edge_index: given edges, which get the learned weight.
            batch: graph of each node, ascending, as in PyG's `Batch`; edges stay within a graph.
            keep (bool, default False): keep neighbours from call to call, for training on the same
                features. At calls 1, 2, 4, 8 and then every 16 the weight of exact neighbours that
                they hold is measured on 256 rows; below 90 % they are searched again, as on other
                features. Not for a `batch`.

        Cost: one search for nearest neighbours per graph; none with `keep`, while they hold.

        Example:
            >>> x = torch.randn(9, 8)
            >>> edge_index, edge_weight = GraphLearner(8, num_neighbors=2).calibrate(x).edges(x)
            >>> edge_index.shape[1] == edge_weight.shape[0]
            True
        """
        if edge_index is not None:
            _check_edges(edge_index)
        if batch is not None:
            check_batch(batch, x.shape[0])
        z = self.project(x)
        if keep:
            learned = self._kept_edges(x, z, edge_index, batch)
            return learned.edge_index, learned.weight.to(x.dtype)
        candidates = []
        start = 0
        for size in [z.shape[0]] if batch is None else torch.bincount(batch).tolist():
            neighbors = nearest_neighbors(z[start : start + size], self.num_neighbors)
            row = torch.arange(size, device=z.device).repeat_interleave(neighbors.shape[1])
            found = torch.stack([row, neighbors.flatten()])
            candidates.append(found[:, found[1] >= 0] + start)
            start += size
        if edge_index is not None:
            candidates.append(edge_index)
        learned = SparseGraph.from_candidates(z, torch.cat(candidates, -1))
        return learned.edge_index, learned.weight.to(x.dtype)

    def _kept_edges(
        self, x: Features, z: Tensor, edge_index: Tensor | None, batch: Tensor | None
    ) -> SparseGraph:
        if batch is not None:
            raise ValueError("keep=True needs a single graph, but batch was passed; leave one out")
        if self._schedule is None:
            self._schedule = NeighborSchedule([self.neighbors], _MIN_RECALL)
        # Directed edges are allowed, as without `keep`.
        given = None if edge_index is None else SparseGraph.from_candidates(z.detach(), edge_index)
        is_due = self._schedule.is_due(x)
        with self._schedule.checking() if is_due else self._schedule.using("kept"):
            pattern = self.neighbors.candidates(z, self.num_neighbors, given)
        z = z.to(compute_dtype(z))
        if self.unit is None or (isinstance(x, Tensor) and x.requires_grad):
            distance = edge_squared_distance(pattern, z)
        else:  # the Euclidean part is a constant, and most of the cost
            if self._euclidean_of is None or self._euclidean_of[0] is not pattern:
                own = z[:, : self.in_channels].detach() * self.unit.sqrt()
                self._euclidean_of = pattern, edge_squared_distance(pattern, own)
            low_rank = edge_squared_distance(pattern, z[:, self.in_channels :])
            distance = self._euclidean_of[1] / self.unit + low_rank
        return SparseGraph.from_pattern(pattern, (-distance).exp())

    def chosen_backend(self, shape: Sequence[int], device: torch.device) -> Backend:
        r"""Return the backend for points of this shape, (\*batch, N, rank)."""
        if self.backend != "auto":
            return self.backend
        num_nodes = shape[-2]
        if len(shape) > 2:
            return "dense" if num_nodes <= MAX_DENSE_NODES else "exact"
        limit = MAX_EXACT_NODES.get(device.type, MAX_EXACT_NODES["cpu"])
        return "exact" if num_nodes <= limit else "knn"

    def _choose_backend(self, z: Tensor) -> Backend:
        chosen = self.chosen_backend(z.shape, z.device)
        # Once, for it reads what memory is left; and before anything is allocated.
        is_first = not self._has_chosen and not torch.compiler.is_compiling()
        if self.backend == "auto" and is_first:
            if chosen == "knn":
                self._check_room(z)
            self._has_chosen = True
            logger.info(
                'backend="auto" learns the %s graph of %d nodes on %s; set backend to choose',
                chosen,
                z.shape[-2],
                z.device.type,
            )
        return chosen

    def _check_room(self, z: Tensor) -> None:
        """Raise where points, edges (three indices, a weight) and gradients alone do not fit."""
        num_edges = len(z) * self.num_neighbors
        needed = 2 * z.numel() * z.element_size() + num_edges * (3 * 8 + 2 * z.element_size())
        available = available_bytes(z.device)
        if needed > available:
            raise MemoryError(
                f"the nearest neighbours of {len(z):,} nodes need at least {needed / 2**30:.1f} "
                f"GiB, but {available / 2**30:.1f} are available; set a smaller num_neighbors, or "
                "take JLGCNClassifier"
            )

    def extra_repr(self) -> str:
        """Describe the options that are not modules."""
        return (
            f"metric_init={self.metric_init!r}, backend={self.backend!r}, "
            f"num_neighbors={self.num_neighbors}"
        )


def _check_edges(edge_index: object) -> None:
    """Raise unless it has two rows; from_candidates checks the rest."""
    if not isinstance(edge_index, Tensor):
        name = type(edge_index).__name__
        raise TypeError(f"edge_index must be a Tensor, but it is a {name}; pass data.edge_index")
    shape = tuple(edge_index.shape)
    if len(shape) != 2 or shape[0] != 2:
        remedy = "pass edge_index.t()" if shape[1:] == (2,) else "pass batch=batch by its name"
        raise ValueError(f"edge_index must have the shape (2, edges), but it is {shape}; {remedy}")


def dense_bytes(shape: Sequence[int], itemsize: int) -> int:
    """Return the peak memory of ``backend="dense"`` in bytes, gradients included.

    Args:
        shape: batch dimensions, if any, and N.
        itemsize: bytes of a weight.

    Example:
        >>> dense_bytes((1000,), 4)
        16000000
    """
    # Distances and weights, and the gradient of each.
    return 4 * math.prod(shape) * shape[-1] * itemsize
