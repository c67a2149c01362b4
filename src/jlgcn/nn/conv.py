"""The JLGCN layer: learn a graph, add it to the graph of the layer before, normalise, convolve."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from jlgcn._validation import check_one_graph
from jlgcn.graphs import Graph, as_graph
from jlgcn.nn.features import Features, as_features, product
from jlgcn.nn.learner import Backend, GraphLearner
from jlgcn.nn.options import JLGCNOptions, Preset, resolve_options

#: With `concat`, initial scale of the weights of A f - f relative to the weights of f.
CONTRAST = 5.0


class Convolved(NamedTuple):
    r"""Result of :meth:`JLGCNConv.convolve`.

    Attributes:
        out: new features, (\*batch, N or M, out_channels).
        graph: the graph they were convolved with.
        degree: its degrees, (\*batch, N); None with `nodes`.
        carried: its product with the columns to carry, (\*batch, N, C), if there are any.
    """

    out: Tensor
    graph: Graph
    degree: Tensor | None
    carried: Tensor | None


class JLGCNConv(nn.Module):
    r"""Graph convolution that learns its graph jointly with its weights.

    Equations 10 and 11 of `Joint Graph and Feature Learning in Graph Convolutional Neural Networks
    <https://arxiv.org/abs/1909.04931>`_:

    .. math::
        F_l = A_l F_{l-1} W_l, \qquad A_l = \Lambda^{-1/2} (A_{l-1} + A^*_l) \Lambda^{-1/2}

    with the learned graph :math:`A^*_l` (`conv.learner`, a :class:`GraphLearner`) and the weights
    :math:`W_l` (`conv.lin`). With `concat`, equation 16, which separates a node's own features from
    the aggregated ones:

    .. math:: F_l = (F_{l-1} \,\|\, A_l F_{l-1}) W_l

    Args:
        in_channels (int ≥ 1): input features of a node.
        out_channels (int ≥ 1): output features of a node.
        rank (int ≥ 1, default 16): rank of the metric.
        concat (bool, default False): concatenate a node's own features with the aggregated ones.
            The weights are initialised as (f ‖ 5 (A f - f)) V with V drawn as usual, because A f is
            close to f.
        learns (bool, default True): False for a plain graph convolution, without a metric, on the
            graph it is called with.
        options (JLGCNOptions, "paper" or "authors", default "authors"): where text and code of the
            paper differ.
        backend ("auto", "exact", "knn" or "dense", default "auto"): representation of the learned
            graph, see :class:`GraphLearner`.
        num_neighbors (int ≥ 1, default 16): neighbours of a node for kNN.

    Shapes:
        - x: (\*batch, N, in_channels) to (\*batch, N, out_channels); a single matrix may be
          :class:`jlgcn.ops.SparseFeatures`
        - graph: any format of :func:`jlgcn.as_graph`, (\*batch, N, N); None for no edges

    Cost: one degree of the learned graph, and one product with it and with each graph of earlier
    layers, with min(in_channels, out_channels) + 1 columns.

    Example:
        >>> conv = JLGCNConv(8, 3)
        >>> x, graph = conv(torch.randn(5, 8), torch.tensor([[0, 1], [1, 0]]))
        >>> x.shape, graph.shape
        (torch.Size([5, 3]), torch.Size([5, 5]))
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        rank: int = 16,
        *,
        concat: bool = False,
        learns: bool = True,
        options: JLGCNOptions | Preset = "authors",
        backend: Backend = "auto",
        num_neighbors: int = 16,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.options = resolve_options(options)
        self.learns = learns
        if learns:
            self.learner = GraphLearner(
                in_channels,
                rank,
                metric_init=self.options.metric_init,
                backend=backend,
                num_neighbors=num_neighbors,
                median_distance=self.options.median_distance,
            )
            self.learner.health.is_normalized = self.options.normalize_learned
        self.concat = concat
        self.lin = nn.Linear(2 * in_channels if concat else in_channels, out_channels, bias=False)
        self.bias = (
            nn.Parameter(self.lin.weight.new_empty(out_channels)) if self.options.bias else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reinitialise metric, weights and bias."""
        if self.learns:
            self.learner.reset_parameters()
        self.lin.reset_parameters()
        if self.concat:
            # A f is close to f where neighbours are alike; the informative difference is small.
            # So (f ‖ A f) W is initialised as (f ‖ c (A f - f)) V, with V drawn as usual.
            with torch.no_grad():
                own, neighbors = self.lin.weight.split(self.in_channels, dim=1)
                neighbors.mul_(CONTRAST)
                own.sub_(neighbors)
        if self.bias is not None:
            bound = self.lin.in_features**-0.5
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(
        self,
        x: Features,  # (*batch, N, in_channels)
        graph: Any = None,  # noqa: ANN401
        valid: Tensor | None = None,  # (*batch, N), bool
    ) -> tuple[Tensor, Graph]:  # (*batch, N, out_channels)
        """Learn a graph, and convolve with its sum with the given one.

        Args:
            x: features.
            graph: given graph, or the graph of the layer before.
            valid: False marks padding of a batch; these nodes get no learned edges.

        Returns:
            New features, and the normalised graph they were convolved with.
        """
        x = as_features(x, self.lin.weight, self.in_channels)
        if self.learns:
            check_one_graph(
                graph,
                "pass to_dense_batch(x, data.batch) as x, and its mask as valid, and "
                "to_dense_adj(data.edge_index, data.batch) as graph",
            )
        given = as_graph(graph, x.shape[-2], dtype=x.dtype, device=x.device)
        out, total, *_ = self.convolve(x, given, self.learn(x, given, valid))
        return out, total

    def learn(
        self,
        x: Features,  # (*batch, N, in_channels)
        graph: Graph,
        valid: Tensor | None = None,  # (*batch, N), bool
    ) -> Graph | None:
        """Return the learned graph A*, or None for a layer that learns none."""
        return self.learner(x, graph, valid) if self.learns else None

    def convolve(
        self,
        x: Features,  # (*batch, N, in_channels)
        graph: Graph,
        learned: Graph | None,
        graph_degree: Tensor | None = None,  # (*batch, N)
        nodes: Tensor | None = None,  # (M,), int64
        carry: Tensor | None = None,  # (*batch, N, C)
    ) -> Convolved:
        """Add a learned graph to `graph`, normalise, convolve.

        Args:
            x: features.
            graph: graph of the layer before.
            learned: graph to add; None to convolve with `graph` unchanged.
            graph_degree: degrees of `graph`, if known.
            nodes: compute the new features of these nodes only, for a last layer.
            carry: more columns to multiply with the graph in the same product.

        Returns:
            New features, the graph they were convolved with, and its degrees. The product yields
            the degrees with one more column, which saves the next layer a pass over all pairs.
        """
        total = graph if learned is None else self._join(graph, learned, graph_degree)
        # A (F W) = (A F) W: the order with fewer columns in the product with the graph.
        own_weight, weight = self.lin.weight.split(
            [self.lin.in_features - self.in_channels, self.in_channels], dim=1
        )
        narrows = self.out_channels <= self.in_channels or not isinstance(x, Tensor)
        columns = product(x, weight) if narrows else x
        assert isinstance(columns, Tensor)
        # Under autocast back to float32: bfloat16 has no room for a degree.
        columns = columns.to(weight.dtype)
        total_degree: Tensor | None = None
        carried: Tensor | None = None
        if nodes is not None and carry is None:
            out = total.matmul(columns, nodes)
        else:
            more = [] if carry is None else [carry]
            more += [torch.ones_like(columns[..., :1])] if nodes is None else []
            smoothed = total.matmul(torch.cat([columns, *more], -1))
            width = columns.shape[-1]
            out = smoothed[..., :width]
            if carry is not None:
                carried = smoothed[..., width : width + carry.shape[-1]]
            if nodes is None:
                total_degree = smoothed[..., -1]
            else:
                out = out.index_select(-2, nodes)
        out = out if narrows else linear(out, weight)
        if self.concat:
            if nodes is None:
                own = product(x, own_weight)
            elif isinstance(x, Tensor):
                own = linear(x.index_select(-2, nodes), own_weight)
            else:
                own = product(x, own_weight).index_select(-2, nodes)
            out = out + own
        out = out if self.bias is None else out + self.bias
        return Convolved(out, total, total_degree, carried)

    def _join(self, graph: Graph, learned: Graph, graph_degree: Tensor | None) -> Graph:
        min_degree = self.options.min_degree
        if self.options.normalize_learned:
            learned = learned.normalized(min_degree=min_degree)
        degree = learned.degree()
        if not graph.has_no_edges:
            degree = degree + (graph.degree() if graph_degree is None else graph_degree)
        return (graph + learned).normalized(degree=degree, min_degree=min_degree)

    def extra_repr(self) -> str:
        """Describe the options that are not modules."""
        return f"{self.in_channels}, {self.out_channels}, {self.options}"
