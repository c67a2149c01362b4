"""The graph learning module: a metric, and the graph it makes of features."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from jlgcn._memory import check_memory
from jlgcn._validation import as_input, check_projection
from jlgcn.graphs import (
    AttachedGraph,
    DenseGraph,
    Graph,
    KernelGraph,
    KernelRows,
    SparseGraph,
    SparseRows,
    gaussian_knn_graph,
)
from jlgcn.graphs.regime import (
    MACHINE,
    least_whole_graph,
    plan_whole_graph,
    whole_graph_regime,
)
from jlgcn.nn.health import GraphHealth, spread_distances
from jlgcn.nn.options import METRIC_INITS, MetricInit
from jlgcn.ops.blocks import kernel_matrix
from jlgcn.ops.knn import nearest_neighbors

logger = logging.getLogger(__name__)

Backend = Literal["auto", "exact", "knn", "dense"]
BACKENDS: tuple[Backend, ...] = ("auto", "exact", "knn", "dense")

#: Up to this many nodes "auto" holds the graphs of a batch: they are used again in every layer.
MAX_DENSE_NODES = 512


class GraphLearner(nn.Module):
    r"""Learns a graph from features through a low-rank Mahalanobis metric.

    Equations 6 and 8 of `Joint Graph and Feature Learning in Graph Convolutional Neural Networks
    <https://arxiv.org/abs/1909.04931>`_:

    .. math:: a_{ij} = \exp(-\|R^\top (f_i - f_j)\|^2), \qquad M = R R^\top

    The metric M is never formed; :attr:`metric` is the linear map Rᵀ.

    Args:
        in_channels: features of a node, K in the paper.
        rank: columns of R, S in the paper.
        metric_init: "median" draws R at random and scales it, at the first call, so that the median
            squared distance of its input's rows is `median_distance`: then the graph is neither
            empty nor complete.
            "random" is the paper's, uniform in ±1/√in_channels; on rows of unit length all
            distances are nearly 0 then, and the graph begins as one big average. "identity" is the
            Euclidean distance and needs rank = in_channels.
        backend: "exact" joins every pair of nodes, "knn" the nearest only; "auto" is exact up to
            5,000 nodes on a CPU (50,000 on a GPU) and kNN above, logs its choice once, and refuses
            what memory cannot hold (:func:`jlgcn.graphs.regime.least_whole_graph`). "dense" is
            exact too and holds all N × N weights: faster where rank is in the hundreds, and what
            "auto" does with batches of graphs of up to 512 nodes.
        num_neighbors: neighbours of a node for kNN and for :meth:`edges`.
        median_distance: where "median" begins; less for a wider graph, more for a sparser one.

    Shapes:
        - x: (\*batch, N, in_channels); batches need an exact backend.
        - returns a graph of shape (\*batch, N, N).

    Cost: N·in_channels·rank FLOP for the metric; the graph costs when it is used, see
    :class:`jlgcn.KernelGraph` and :func:`jlgcn.gaussian_knn_graph`.

    Example:
        >>> learner = GraphLearner(8, rank=4)
        >>> learner(torch.randn(100, 8))
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
            raise ValueError(f"median_distance must be above 0, but it is {median_distance}")
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
        # Whether "median" has seen features; saved with the weights, which are scaled from then on.
        self.is_scaled: Tensor
        self.register_buffer("is_scaled", torch.tensor(metric_init != "median"))
        self._has_chosen = False
        self.health = GraphHealth()
        #: Whether other processes have further rows, whose points must have the same origin.
        self.shares_rows = False
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the metric anew."""
        if self.metric_init == "identity":
            nn.init.eye_(self.metric.weight)
        else:
            bound = self.in_channels**-0.5
            nn.init.uniform_(self.metric.weight, -bound, bound)
        self.is_scaled.fill_(self.metric_init != "median")
        self._must_scale = self.metric_init == "median"

    def forward(
        self,
        x: Tensor,  # (*batch, N, in_channels)
        graph: Graph | None = None,
        valid: Tensor | None = None,  # (*batch, N), bool
    ) -> Graph:
        """Return the learned graph.

        Args:
            x: features.
            graph: a given graph; the edges of a sparse one become candidates of kNN. Where nodes
                were attached to it (:func:`jlgcn.graphs.attach`), the learned graph is that of the
                others, and the new nodes are attached to it too.
            valid: False marks nodes that only pad a batch to a common size; they get no edges.
        """
        z = self.project(x, valid)
        if graph is not None and graph.num_new > 0:
            return self._attached(z, graph)
        learned = self._graph(z, graph, valid)
        if valid is None and not torch.compiler.is_compiling():
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
            raise ValueError('padding needs an exact graph; set backend="exact" or "dense"')
        return gaussian_knn_graph(
            z, self.num_neighbors, graph if isinstance(graph, SparseGraph) else None
        )

    def _attached(self, z: Tensor, graph: Graph) -> AttachedGraph:
        """Return the learned graph of the old nodes, with the new ones attached by their points."""
        old, new = z[: -graph.num_new], z[-graph.num_new :]
        given = graph if isinstance(graph, AttachedGraph) else None
        base = self._graph(old, None if given is None else given.base)
        own = torch.ones_like(new[:, 0])  # as every node has with itself
        if not isinstance(base, SparseGraph):
            return AttachedGraph(base, KernelRows(new, old), own)
        neighbors = nearest_neighbors(old, self.num_neighbors, queries=new)
        row = torch.arange(len(new), device=z.device).repeat_interleave(neighbors.shape[1])
        pairs = torch.stack([row, neighbors.flatten()])
        pairs = pairs[:, pairs[1] >= 0]
        if given is not None and isinstance(given.new, SparseRows):
            pairs = torch.cat([pairs, torch.stack([given.new.row, given.new.col])], -1)
        row, col = torch.unique(pairs, dim=1)
        weight = (-(new[row] - old[col]).square().sum(-1)).exp()
        return AttachedGraph(base, SparseRows(row, col, weight, len(new)), own)

    def edges(
        self,
        x: Tensor,  # (N, in_channels)
        edge_index: Tensor | None = None,  # (2, E)
        batch: Tensor | None = None,  # (N,)
    ) -> tuple[Tensor, Tensor]:  # (2, E'), (E',)
        """Return learned edges and weights for any layer of PyTorch Geometric.

        Each node is joined with its `num_neighbors` nearest, with its neighbours in `edge_index`
        and with itself; both directions are listed. The weights are differentiable in `x` and in
        the metric.

        Args:
            x: features.
            edge_index: given edges; they are joined with the learned weight.
            batch: the graph that each node belongs to, ascending, as in PyG's `Batch`; nodes of
                different graphs are not joined.

        Example:
            >>> edge_index, edge_weight = GraphLearner(8, num_neighbors=2).edges(torch.randn(9, 8))
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
        x: Tensor,  # (*batch, N, in_channels)
        valid: Tensor | None = None,  # (*batch, N), bool
        offset: Tensor | None = None,  # (in_channels,)
    ) -> Tensor:  # (*batch, N, rank)
        """Return z = Rᵀf, the points between which distances are measured.

        Distances do not depend on where points are measured from, but digits do: with None that is
        the mean of the rows, where they lie far away. Who projects rows part by part passes one
        `offset` for all parts.
        """
        x = as_input(x, self.metric.weight, self.in_channels)
        if self._must_scale:
            self._scale_metric(x, valid)
        if offset is not None:
            z: Tensor = self.metric(x - offset)
            check_projection(z, x)
            return z
        z = self.metric(x)
        check_projection(z, x)
        if not torch.compiler.is_compiling() and not self.shares_rows and _is_far_away(z):
            # Only differences count, and those of large numbers have lost their digits.
            z = self.metric(x - x.mean(-2, keepdim=True))
        return z

    @torch.no_grad()
    def _scale_metric(self, x: Tensor, valid: Tensor | None) -> None:
        # One graph of a batch stands for all.
        rows = self.metric(x).reshape(-1, x.shape[-2], self.rank)[0]
        if valid is not None:
            rows = rows[valid.reshape(-1, x.shape[-2])[0]]
        distance = spread_distances(rows)
        median = torch.cat(distance).median() if distance else rows.new_zeros(())
        if float(median) > 0:
            self.metric.weight.mul_((self.median_distance / median).sqrt())
        self.is_scaled.fill_(True)
        self._must_scale = False

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        super()._load_from_state_dict(*args, **kwargs)
        self._must_scale = not bool(self.is_scaled)

    def _choose_backend(self, z: Tensor) -> Backend:
        if self.backend != "auto":
            return self.backend
        num_nodes, device = z.shape[-2], z.device
        chosen: Backend = whole_graph_regime(num_nodes, device)
        if z.dim() > 2:
            chosen = "dense" if num_nodes <= MAX_DENSE_NODES else "exact"
        # Once, for it reads what memory is left; and before anything is allocated.
        if not self._has_chosen and not torch.compiler.is_compiling():
            if z.dim() == 2:
                self._check_room(z)
            self._has_chosen = True
            logger.info(
                'backend="auto" learns the %s graph of %d nodes on %s; set backend to choose',
                chosen,
                num_nodes,
                device.type,
            )
        return chosen

    def _check_room(self, z: Tensor) -> None:
        """Refuse what no machine could hold in the memory there is; warn of what is estimated."""
        least_whole_graph(
            *z.shape,
            num_neighbors=self.num_neighbors,
            itemsize=z.element_size(),
            device=z.device,
        ).check()
        step = plan_whole_graph(len(z), num_neighbors=self.num_neighbors, device=z.device)
        if not step.fits:
            logger.warning(
                "a training step on the %s graph of %d nodes may take about %.2f GiB, as measured "
                "on %s, but %.2f GiB are available on %s",
                step.regime,
                len(z),
                step.bytes / 2**30,
                MACHINE,
                step.available / 2**30,
                z.device.type,
            )

    def extra_repr(self) -> str:
        """Describe the options that are not modules."""
        return (
            f"metric_init={self.metric_init!r}, backend={self.backend!r}, "
            f"num_neighbors={self.num_neighbors}"
        )


def dense_bytes(shape: Sequence[int], itemsize: int) -> int:
    """Return what ``backend="dense"`` takes at its peak, with gradients.

    Args:
        shape: of the nodes, the batch before it if any.
        itemsize: bytes of a weight.

    Example:
        >>> dense_bytes((1000,), 4)
        16000000
    """
    # Distances, weights, the gradient of the weights and that of the distances.
    return 4 * math.prod(shape) * shape[-1] * itemsize


@torch.no_grad()
def _is_far_away(z: Tensor) -> bool:
    """Whether points are a hundred times further from the origin than from each other."""
    mean = z.mean(-2)
    spread = (z - mean.unsqueeze(-2)).square().sum(-1).mean(-1)
    return bool((mean.square().sum(-1) > 1e4 * spread).any()) and z.shape[-2] > 1
