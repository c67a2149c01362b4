"""The paper's idea with today's means: predict, then propagate on given and learned graph."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from jlgcn._schema import Check, maybe, real, whole
from jlgcn._validation import check_one_graph
from jlgcn.graphs import Graph, SparseGraph, as_graph, personalized_pagerank
from jlgcn.graphs.attached import AttachedGraph, SparseRows
from jlgcn.graphs.candidates import Candidates
from jlgcn.nn.features import Features, as_features, drop, product, rows_of
from jlgcn.nn.models import JLGCNOutput
from jlgcn.nn.persistence import MAX_CHANNELS, SavedModule
from jlgcn.ops.csr import edge_squared_distance, symmetric_pattern
from jlgcn.ops.metric import regress_metric
from jlgcn.ops.svd import principal_directions

# Mean weighted degree of the learned graph beside given edges, and without any.
_DEGREE, _DEGREE_ALONE = 1.0, 7.0
# Error of the PageRank diffusion, relative to its first iterate.
_TOLERANCE = 1e-2


class DecoupledJLGCN(SavedModule):
    r"""Node classifier that predicts from features, then propagates on the learned graph (APPNP).

    Keeps the idea of `Tang et al. <https://arxiv.org/abs/1909.04931>`_, a graph that is learned
    jointly with the classifier and added to the given one. Stacked convolutions are replaced by
    personalized PageRank (`APPNP <https://arxiv.org/abs/1810.05997>`_), and a metric that starts at
    random by the Euclidean distance plus a low-rank part that starts at 0,

    .. math::
        a_{ij} = \exp(-\|f_i - f_j\|^2 / u - \|R^\top (f_i - f_j)\|^2), \qquad
        Y = \alpha \big(I - (1 - \alpha) \hat A\big)^{-1} \mathrm{MLP}(F)

    for the k nearest candidates of each node; u is the median squared distance to a near neighbour,
    and :math:`\hat A` normalises A_0 + s A* + I. Training starts at the fixed kNN graph.
    Personalized PageRank minimises a fidelity term plus the graph Laplacian regularizer of Y.
    :func:`jlgcn.training.fit_nodes` with a :class:`jlgcn.training.DecoupledConfig` also regresses R
    on the predicted classes of all nodes, and makes predictions under several dropout masks
    consistent (`GRAND <https://arxiv.org/abs/2005.11079>`_).

    Features should be scaled, as by :class:`jlgcn.closed_form.FeatureScaler`.

    Args:
        in_channels (int ≥ 1): features of a node.
        hidden_channels (int ≥ 1): hidden units of the MLP.
        out_channels (int ≥ 1): classes; also the rank of R.
        num_neighbors (int ≥ 1, default 20): k.
        num_candidates (int ≥ 1, default 100): Euclidean nearest neighbours that the metric ranks.
        restart (float in (0, 1], default 0.1): restart probability α.
        learned_degree (float ≥ 0 or None, default None): mean weighted degree of s A*. None is 1
            with given edges, 7 without any.
        dropout (float in [0, 1], default 0.5): dropout probability of features and hidden units.
        node_dropout (float in [0, 1], default 0.5): share of the nodes whose features are dropped
            as a whole in a training pass, before propagation.

    Shapes:
        - x: (N, in_channels), dense or :class:`jlgcn.ops.SparseFeatures`
        - graph: any format of :func:`jlgcn.as_graph` with edges; None for no edges
        - nodes: (M,), int64; None for all

    Cost: one search for candidates for each new `x`; then about 12 products of the graph with
    out_channels columns, and N·num_candidates·out_channels FLOP whenever R has changed. Memory
    12·N·num_candidates bytes.

    Example:
        >>> model = DecoupledJLGCN(8, 16, 3, num_neighbors=2).eval()
        >>> model(torch.randn(5, 8), torch.tensor([[0, 1], [1, 0]])).logits.shape
        torch.Size([5, 3])
    """

    _ARGUMENTS: ClassVar[dict[str, Check]] = {
        "in_channels": whole(1, MAX_CHANNELS),
        "hidden_channels": whole(1, MAX_CHANNELS),
        "out_channels": whole(1, MAX_CHANNELS),
        "num_neighbors": whole(1, MAX_CHANNELS),
        "num_candidates": whole(1, MAX_CHANNELS),
        "restart": real(0, 1, above=True),
        "learned_degree": maybe(real(0, 1e300)),
        "dropout": real(0, 1),
        "node_dropout": real(0, 1),
    }

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        num_neighbors: int = 20,
        num_candidates: int = 100,
        restart: float = 0.1,
        learned_degree: float | None = None,
        dropout: float = 0.5,
        node_dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.out_channels = out_channels
        self.num_neighbors = num_neighbors
        self.num_candidates = num_candidates
        self.restart = restart
        self.learned_degree = learned_degree
        self.dropout = dropout
        self.node_dropout = node_dropout
        for name, check in self._ARGUMENTS.items():
            check(getattr(self, name), name)
        self.first = nn.Linear(in_channels, hidden_channels)
        self.last = nn.Linear(hidden_channels, out_channels)
        self.metric = nn.Linear(in_channels, out_channels, bias=False)  # Rᵀ
        self.reset_parameters()
        self._neighborhood: _Neighborhood | None = None

    def reset_parameters(self) -> None:
        """Reinitialise the MLP; R becomes 0, the Euclidean metric."""
        nn.init.xavier_uniform_(self.first.weight)
        nn.init.zeros_(self.first.bias)
        self.last.reset_parameters()
        nn.init.zeros_(self.metric.weight)

    def forward(
        self,
        x: Features,  # (N, in_channels)
        graph: Any = None,  # noqa: ANN401
        nodes: Tensor | None = None,  # (M,), int64
    ) -> JLGCNOutput:
        """Compute logits, the learned kernel and the graph that predictions were propagated on.

        Args:
            x: features; of old nodes, then of new ones, if nodes are attached to `graph`
                (:func:`jlgcn.graphs.attach`). Each new node is attached by itself.
            graph: given graph.
            nodes: compute the logits of these nodes only; None for all.
        """
        x = as_features(x, self.first.weight, self.in_channels)
        attached = graph if isinstance(graph, AttachedGraph) else None
        old, given = x, graph
        if attached is not None:
            old, given = rows_of(x, 0, attached.base.num_nodes), attached.base
        learned, joined, scale = self._near(old, given).graphs(
            self.metric.weight.mT, self.num_neighbors
        )
        total = joined.normalized()
        logits = self.propagate(self.predict(old), total)
        if attached is not None:
            rows = attached.new
            if not isinstance(rows, SparseRows):
                raise ValueError(
                    "new nodes need a list of edges, but they have a kernel; attach them by "
                    "jlgcn.graphs.attach"
                )
            new = rows_of(x, attached.base.num_nodes, attached.num_nodes)
            edges = torch.stack([rows.row, rows.col]), rows.weight
            fitted = _Fitted(self._near(old, given).candidates, joined.degree(), scale, logits)
            logits = torch.cat([logits, self._attach(new, fitted, edges)])
        logits = logits if nodes is None else logits[nodes]
        return JLGCNOutput(logits, [old], [learned], [total])

    @torch.no_grad()
    def classify_new(
        self,
        x: Features,  # (N, in_channels)
        graph: Any,  # noqa: ANN401
        logits: Tensor,  # (N, out_channels)
        new: Features,  # (M, in_channels)
        edges: tuple[Tensor, Tensor] | None = None,  # (2, E), int64, and (E,)
    ) -> Tensor:  # (M, out_channels)
        """Return the logits of new nodes (inductive), with those of old nodes fixed.

        As :meth:`forward` with attached nodes, but old nodes are not propagated again, and their
        candidates are kept for the next call with the same objects `x` and `graph`.

        Args:
            x: features of the old nodes.
            graph: their given graph.
            logits: their logits.
            new: features of the new nodes; each is attached by itself.
            edges: given edges, new node first, and their weights.

        Cost: a search for the candidates of the new nodes; at the first call, of all old ones, too.
        """
        x, new = (as_features(part, self.first.weight, self.in_channels) for part in (x, new))
        near = self._near(x, graph)
        _, joined, scale = near.graphs(self.metric.weight.mT, self.num_neighbors)
        return self._attach(new, _Fitted(near.candidates, joined.degree(), scale, logits), edges)

    def _attach(
        self, x: Features, fitted: _Fitted, edges: tuple[Tensor, Tensor] | None
    ) -> Tensor:  # (M, out_channels)
        """Return the logits of new nodes: each one's own PageRank equation, with old ones fixed."""
        row, col, weight = fitted.candidates.attach(
            x, self.metric.weight.mT, fitted.scale, edges, num_neighbors=self.num_neighbors
        )
        own = weight.new_ones(x.shape[0]).index_add(0, row, weight)
        weight = weight * (own[row] * fitted.degree[col]).rsqrt()
        walk = 1 - self.restart
        sums = SparseRows(row, col, weight, x.shape[0]).matmul(fitted.logits)
        h = self.restart * self.predict(x) + walk * sums
        return h / (1 - walk / own).unsqueeze(-1)

    def learn(
        self,
        x: Features,  # (N, in_channels)
        graph: Any = None,  # noqa: ANN401
    ) -> tuple[SparseGraph, Graph]:
        """Return the learned kernel A*, and the normalised sum with the given graph."""
        near = self._near(as_features(x, self.first.weight, self.in_channels), graph)
        learned, joined, _ = near.graphs(self.metric.weight.mT, self.num_neighbors)
        return learned, joined.normalized()

    def predict(
        self,
        x: Features,  # (N, in_channels)
    ) -> Tensor:  # (N, out_channels)
        """Return the logits of the MLP, before propagation."""
        h = product(drop(x, self.dropout, self.training), self.first.weight)
        if self.training and self.node_dropout > 0:
            keeps = torch.rand(h.shape[0], 1, device=h.device) >= self.node_dropout
            h = h * (keeps / max(1 - self.node_dropout, 1e-6))
        h = functional.relu(h + self.first.bias)
        logits: Tensor = self.last(drop(h, self.dropout, self.training))
        return logits

    def propagate(self, logits: Tensor, graph: Graph) -> Tensor:
        """Return logits after personalized PageRank on a normalised graph."""
        return personalized_pagerank(graph, logits, self.restart, tolerance=_TOLERANCE)

    def regularizer(self, logits: Tensor, graph: Graph) -> Tensor:  # ()
        r"""Return the graph Laplacian regularizer of class probabilities, tr(Pᵀ(I - Â)P) / N."""
        p = logits.softmax(-1)
        return (p * (p - graph @ p)).sum(-1).mean()

    @torch.no_grad()
    def regress_metric(
        self,
        x: Features,  # (N, in_channels)
        graph: Any,  # noqa: ANN401
        probability: Tensor,  # (N, out_channels)
        *,
        variance: float = 0.1,
    ) -> Self:
        """Set R to the ridge regression of class probabilities on the features of all nodes.

        Args:
            x: features.
            graph: given graph.
            probability: class probabilities; of training nodes, 1 for their class.
            variance (float ≥ 0, default 0.1): variance of the features under R, in units of the
                Euclidean distance to a near neighbour.

        Returns:
            The network itself.

        Cost: one randomized SVD for each new `x`, and 2·N·256² FLOP.
        """
        near = self._near(as_features(x, self.first.weight, self.in_channels), graph)
        metric = near.directions @ regress_metric(near.components, probability, variance)
        self.metric.weight.copy_(metric.mT)
        return self

    def distance_unit(
        self,
        x: Features,  # (N, in_channels)
        graph: Any = None,  # noqa: ANN401
    ) -> float:
        """Return u, the median squared distance to a near neighbour, which is the unit of weights.

        Cost: one search for candidates for each new `x`.
        """
        x = as_features(x, self.first.weight, self.in_channels)
        return self._near(x, graph).candidates.unit

    def forget(self) -> Self:
        """Free the memory of the candidates, which the next pass searches again."""
        self._neighborhood = None
        return self

    def _near(self, x: Features, graph: Any) -> _Neighborhood:  # noqa: ANN401
        near = self._neighborhood
        if near is None or near.x is not x or near.of is not graph:
            check_one_graph(graph)
            given = as_graph(graph, x.shape[0], dtype=x.dtype, device=x.device)
            if not isinstance(given, SparseGraph):
                raise ValueError(
                    "DecoupledJLGCN needs the edges of a sparse graph, but it is "
                    f"{given}; pass an edge_index, or None"
                )
            near = _Neighborhood(x, graph, given, self.num_candidates, self.learned_degree)
            self._neighborhood = near
        return near

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_neighborhood": None}


class _Fitted(NamedTuple):
    """What new nodes are attached to: old nodes' degrees and logits, and the graph's scale."""

    candidates: Candidates
    degree: Tensor
    scale: float
    logits: Tensor


class _Neighborhood:
    """Candidates of some features and a given graph, and the graph that a metric selects.

    The selection is a function of the metric alone: it is renewed whenever the metric has changed.
    """

    def __init__(
        self,
        x: Features,
        of: Any,  # noqa: ANN401
        given: SparseGraph,
        num_candidates: int,
        learned_degree: float | None,
    ) -> None:
        self.x, self.of = x, of
        has_edges = not given.has_no_edges
        default = _DEGREE if has_edges else _DEGREE_ALONE
        self.degree = default if learned_degree is None else learned_degree
        with torch.no_grad():
            self.candidates = Candidates.find(x, num_candidates, given if has_edges else None)
        self._directions: Tensor | None = None
        self._components: Tensor | None = None
        self._metric: Tensor | None = None

    @property
    def directions(self) -> Tensor:  # (in_channels, D)
        """Principal directions of the features."""
        if self._directions is None:
            self._directions = principal_directions(self.x, 256, 1.0)
        return self._directions

    @property
    def components(self) -> Tensor:  # (N, D)
        """Principal components of the features."""
        if self._components is None:
            self._components = self.x @ self.directions
        return self._components

    def graphs(self, metric: Tensor, num_neighbors: int) -> tuple[SparseGraph, SparseGraph, float]:
        """Return the learned kernel, its sum with the given graph and self-loops, and its scale.

        Weights are differentiable in R, the scale is a constant.
        """
        if self._metric is None or not torch.equal(self._metric, metric):
            self._select(metric.detach(), num_neighbors)
        z = self.x @ metric
        weight = (-(self._euclidean + edge_squared_distance(self._pattern, z))).exp()
        # Not differentiated: it would take back every gradient that moves all weights alike.
        total = float(weight.detach().sum())
        scale = self.degree * self.x.shape[0] / total if total > 0 else 1.0
        entries = self._fixed.index_add(0, self._place, scale * weight)
        learned = SparseGraph.from_pattern(self._pattern, weight)
        return learned, SparseGraph.from_pattern(self._joined, entries), scale

    @torch.no_grad()
    def _select(self, metric: Tensor, num_neighbors: int) -> None:
        candidates, num_nodes = self.candidates, self.x.shape[0]
        pattern, self._euclidean = candidates.select(metric, num_neighbors)
        self._metric = metric.clone()
        self._pattern = pattern
        loops = torch.arange(num_nodes, device=pattern.row.device)
        row, col, weight = loops, loops, self._euclidean.new_ones(num_nodes)
        if candidates.given is not None:
            edges = candidates.given.pattern
            row, col = torch.cat([row, edges.row]), torch.cat([col, edges.col])
            weight = torch.cat([weight, candidates.given.weight.to(weight.dtype)])
        self._joined = symmetric_pattern(
            torch.cat([pattern.row, row]), torch.cat([pattern.col, col]), num_nodes
        )
        self._place = self._joined.find(pattern.row, pattern.col)
        self._fixed = weight.new_zeros(self._joined.num_edges)
        self._fixed.index_add_(0, self._joined.find(row, col), weight)
