"""The graph learner: a Mahalanobis metric, and the Gaussian graph of features under it."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from jlgcn._memory import available_bytes, check_memory
from jlgcn.graphs import DenseGraph, Graph, KernelGraph, SparseGraph, gaussian_knn_graph
from jlgcn.graphs.attached import AttachedGraph, attach_points
from jlgcn.graphs.explanation import EdgeExplanation, decompose_distance, mean_contributions
from jlgcn.nn.features import Features, as_features, product, project
from jlgcn.nn.health import GraphHealth, sampled_distances
from jlgcn.nn.neighbors import KeptNeighbors
from jlgcn.nn.options import METRIC_INITS, MetricInit
from jlgcn.ops.blocks import kernel_matrix
from jlgcn.ops.knn import nearest_neighbors
from jlgcn.ops.precision import no_autocast

logger = logging.getLogger(__name__)

Backend = Literal["auto", "exact", "knn", "dense"]
BACKENDS: tuple[Backend, ...] = ("auto", "exact", "knn", "dense")

#: Up to this many nodes "auto" learns exact graphs, by device; their cost is quadratic.
MAX_EXACT_NODES = {"cpu": 5_000, "cuda": 50_000}

#: Up to this many nodes "auto" stores graphs of a batch as dense: every layer reuses them.
MAX_DENSE_NODES = 512


class GraphLearner(nn.Module):
    r"""Learns a graph from features through a low-rank Mahalanobis metric.

    Equations 6 and 8 of `Joint Graph and Feature Learning in Graph Convolutional Neural Networks
    <https://arxiv.org/abs/1909.04931>`_:

    .. math:: a_{ij} = \exp(-\|R^\top (f_i - f_j)\|^2), \qquad M = R R^\top

    The metric M is never formed; :attr:`metric` is the linear map Rᵀ.

    Args:
        in_channels (int ≥ 1): features of a node, K in the paper.
        rank (int ≥ 1, default 16): columns of R, S in the paper.
        metric_init ("median", "random" or "identity", default "median"): initialisation of R.
            "median" draws it at random, and :meth:`calibrate` scales it to features, so that the
            graph is neither empty nor complete. "random" is the paper's, uniform in
            ±1/√in_channels; on rows of unit norm all distances are then close to 0, and the initial
            graph is a global average. "identity" is the Euclidean distance; rank must equal
            in_channels.
        backend ("auto", "exact", "knn" or "dense", default "auto"): "exact" has an edge for every
            pair of nodes, "knn" for nearest neighbours only. "auto" is exact up to 5,000 nodes on a
            CPU (50,000 on a GPU) and kNN above, logs its choice once, and raises MemoryError if
            the edges do not fit into memory. "dense" is exact and stores all N × N weights: faster
            for ranks in the hundreds; "auto" uses it for batches of graphs of up to 512 nodes.
        num_neighbors (int ≥ 1, default 16): neighbours of a node for kNN and :meth:`edges`.
        median_distance (float > 0, default 1): median squared distance after :meth:`calibrate`; a
            smaller one gives a denser graph.

    Shapes:
        - x: (\*batch, N, in_channels); batches need an exact backend. A single matrix may be
          :class:`jlgcn.ops.SparseFeatures`.
        - returns a graph of shape (\*batch, N, N).

    Cost: N·in_channels·rank FLOP for the projection; products with the graph cost what
    :class:`jlgcn.KernelGraph` and :func:`jlgcn.gaussian_knn_graph` say.

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
        super().__init__()
        if not 0 < median_distance < math.inf:
            raise ValueError(f"median_distance must be above 0, but it is {median_distance}; try 1")
        if metric_init not in METRIC_INITS:
            choices = ", ".join(METRIC_INITS)
            raise ValueError(f"metric_init must be one of {choices}, but it is {metric_init!r}")
        if backend not in BACKENDS:
            raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, but it is {backend!r}")
        if metric_init == "identity" and rank != in_channels:
            raise ValueError(
                f"an identity metric needs rank = in_channels, but rank is {rank} and in_channels "
                f'is {in_channels}; set rank={in_channels}, or use metric_init="median"'
            )
        self.in_channels = in_channels
        self.rank = rank
        self.metric_init: MetricInit = metric_init
        self.backend: Backend = backend
        self.num_neighbors = num_neighbors
        self.median_distance = median_distance
        self.metric = nn.Linear(in_channels, rank, bias=False)
        # Whether "median" was calibrated: a buffer, saved with the scaled weights, and a Python
        # flag, which a forward pass reads without synchronising with the device.
        self.is_scaled: Tensor
        self.is_calibrated: bool
        self.register_buffer("is_scaled", self.metric.weight.new_ones((), dtype=torch.bool))
        self._has_chosen = False
        self.health = GraphHealth()
        #: Neighbour candidates, which a network may keep over training steps.
        self.neighbors = KeptNeighbors()
        #: All-gather of features, if processes share the rows; None in a single process.
        self.gather_rows: Callable[[Tensor], Tensor] | None = None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reinitialise the metric; with "median" it must be calibrated again."""
        if self.metric_init == "identity":
            nn.init.eye_(self.metric.weight)
        else:
            bound = self.in_channels**-0.5
            nn.init.uniform_(self.metric.weight, -bound, bound)
        self.is_scaled.fill_(self.metric_init != "median")
        self.is_calibrated = self.metric_init != "median"

    @torch.no_grad()
    def calibrate(
        self,
        x: Features,  # (*batch, N, in_channels)
        valid: Tensor | None = None,  # (*batch, N), bool
    ) -> Self:
        """Scale the metric of ``metric_init="median"`` to features.

        Afterwards the median squared distance over evenly spaced pairs of rows is
        `median_distance`. No effect on other metrics, or on one that is calibrated already.
        :meth:`jlgcn.nn.JLGCN.calibrate` and :func:`jlgcn.training.fit_nodes` call it for every
        layer.

        Args:
            x: features; of a batch, the first graph is used.
            valid: False marks padding.

        Returns:
            The learner itself.

        Cost: one projection, and ten thousand distances.
        """
        if self.is_calibrated:
            return self
        x = as_features(x, self.metric.weight, self.in_channels)
        if self.gather_rows is not None and isinstance(x, Tensor):
            x = self.gather_rows(x.detach())
        rows = product(x, self.metric.weight).reshape(-1, x.shape[-2], self.rank)[0]
        if valid is not None:
            rows = rows[valid.reshape(-1, x.shape[-2])[0]]
        distance = sampled_distances(rows)
        median = torch.cat(distance).median() if distance else rows.new_zeros(())
        if float(median) > 0:
            self.metric.weight.mul_((self.median_distance / median).sqrt())
        self.is_scaled.fill_(True)
        self.is_calibrated = True
        return self

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
        z = self.project(x)
        if graph is not None and graph.num_new > 0:
            given = graph if isinstance(graph, AttachedGraph) else None
            base = self._graph(z[: -graph.num_new], None if given is None else given.base)
            return attach_points(base, z, graph, self.num_neighbors)
        learned = self._graph(z, graph, valid)
        is_step = self.neighbors.mode != "checked"
        if valid is None and is_step and not torch.compiler.is_compiling():
            self.health.look(z, learned)
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
    ) -> tuple[Tensor, Tensor]:  # (2, E'), (E',)
        """Return learned edges and weights, as layers of PyTorch Geometric take them.

        Edges join each node with its `num_neighbors` nearest, with its neighbours in `edge_index`
        and with itself, in both directions. Weights are differentiable in `x` and in the metric.

        Args:
            x: features.
            edge_index: given edges, which get the learned weight.
            batch: graph of each node, ascending, as in PyG's `Batch`; edges stay within a graph.

        Cost: one search for nearest neighbours per graph.

        Example:
            >>> x = torch.randn(9, 8)
            >>> edge_index, edge_weight = GraphLearner(8, num_neighbors=2).calibrate(x).edges(x)
            >>> edge_index.shape[1] == edge_weight.shape[0]
            True
        """
        z = self.project(x)
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

    def project(
        self,
        x: Features,  # (*batch, N, in_channels)
    ) -> Tensor:  # (*batch, N, rank)
        """Project features to z = Rᵀf, whose Euclidean distances are the learned ones.

        Features far from the origin are centred first, so that distances do not cancel.
        """
        x = as_features(x, self.metric.weight, self.in_channels)
        if not self.is_calibrated:
            raise RuntimeError(
                'metric_init="median" scales the metric to features, but calibrate was not called; '
                'call calibrate(x) before the first forward, or set metric_init="random"'
            )
        may_centre = self.gather_rows is None and not torch.compiler.is_compiling()
        with no_autocast(x.device):  # distances of points that bfloat16 rounded would be wrong
            return project(x, self.metric.weight, may_centre=may_centre)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        super()._load_from_state_dict(*args, **kwargs)
        self.is_calibrated = bool(self.is_scaled)

    @torch.no_grad()
    def explain_edge(
        self,
        first: Tensor,  # (in_channels,)
        second: Tensor,  # (in_channels,)
    ) -> EdgeExplanation:
        r"""Decompose the learned distance of two nodes exactly, by direction and by feature.

        With δ = f_i - f_j and M = RRᵀ,

        .. math::
            \|R^\top \delta\|^2 = \sum_s (R^\top \delta)_s^2 = \sum_k \delta_k (M \delta)_k

        A feature in which the nodes agree contributes nothing.

        Args:
            first: features of one node, scaled as in training.
            second: features of the other.

        Cost: 4·in_channels·rank FLOP, in float64.

        Example:
            >>> learner = GraphLearner(2, 2, metric_init="identity")
            >>> learner.explain_edge(torch.tensor([0.0, 1.0]), torch.tensor([2.0, 1.0])).features
            tensor([4., 0.], dtype=torch.float64)
        """
        for name, row in (("first", first), ("second", second)):
            if row.shape != (self.in_channels,):
                raise ValueError(
                    f"{name} must be the {self.in_channels} features of one node, but its shape is "
                    f"{tuple(row.shape)}"
                )
        return decompose_distance(first, second, self.metric.weight.T)

    @torch.no_grad()
    def feature_importance(
        self,
        x: Features,  # (N, in_channels)
    ) -> Tensor:  # (in_channels,)
        r"""Return the mean contribution of each feature to the squared distance of two nodes.

        The mean of :meth:`explain_edge` over all ordered pairs, with Σ the features' covariance:

        .. math::
            \frac{1}{N^2} \sum_{ij} \delta_k (M \delta)_k = 2\, (M \Sigma)_{kk}

        The contributions sum to the mean squared distance.

        Args:
            x: features of all nodes, scaled as in training.

        Cost: 4·N·in_channels·rank FLOP; no pair is visited.

        Example:
            >>> learner = GraphLearner(2, 2, metric_init="identity")
            >>> learner.feature_importance(torch.tensor([[0.0, 7.0], [2.0, 7.0]]))
            tensor([2., 0.], dtype=torch.float64)
        """
        return mean_contributions(x, self.metric.weight.T)

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
