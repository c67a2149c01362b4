"""The JLGCN layer: learn a graph, add it to the graph so far, normalise, convolve."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from jlgcn._validation import as_input
from jlgcn.graphs import Graph, as_graph
from jlgcn.nn.learner import Backend, GraphLearner
from jlgcn.nn.options import JLGCNOptions, Preset, resolve_options

#: How much larger the weights of A f - f begin than those of f, where both are concatenated.
CONTRAST = 5.0


class JLGCNConv(nn.Module):
    r"""One layer that learns its graph and its features together.

    Equations 10 and 11 of `Joint Graph and Feature Learning in Graph Convolutional Neural Networks
    <https://arxiv.org/abs/1909.04931>`_:

    .. math::
        F_l = A_l F_{l-1} W_l, \qquad A_l = \Lambda^{-1/2} (A_{l-1} + A^*_l) \Lambda^{-1/2}

    with the learned graph :math:`A^*_l` of :class:`GraphLearner`, here `conv.learner`, and
    :math:`W_l`, here `conv.lin`; or, with `concat`, which gives a node's own features a weight of
    their own where no graph is given, equation 16:

    .. math:: F_l = (F_{l-1} \,\|\, A_l F_{l-1}) W_l

    Args:
        in_channels: features of a node before the layer.
        out_channels: features of a node after it.
        rank: rank of the metric.
        concat: concatenate a node's own features with those of its neighbours. The weights begin as
            (f ‖ 5 (A f - f)) V with V drawn as usual, for A f alone is nearly f.
        learns: False for a layer without a metric, which convolves with the graph as it comes.
        options: "paper", "authors" or :class:`JLGCNOptions`.
        backend: how the learned graph is held, see :class:`GraphLearner`.
        num_neighbors: neighbours of a node where it is held as kNN.

    Shapes:
        - x: (\*batch, N, in_channels) to (\*batch, N, out_channels)
        - graph: anything that :func:`jlgcn.as_graph` reads, (\*batch, N, N); None for no graph

    Cost: one degree and one product of the learned graph, and one product of each graph before it,
    with min(in_channels, out_channels) columns.

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
        self.concat = concat
        self.lin = nn.Linear(2 * in_channels if concat else in_channels, out_channels, bias=False)
        self.bias = (
            nn.Parameter(self.lin.weight.new_empty(out_channels)) if self.options.bias else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the metric and the weights anew."""
        if self.learns:
            self.learner.reset_parameters()
        self.lin.reset_parameters()
        if self.concat:
            # A f is nearly f where neighbours are alike, and what tells more is their difference,
            # which is small. So (f ‖ A f) W begins as (f ‖ c (A f - f)) V, with V drawn as usual.
            with torch.no_grad():
                own, neighbors = self.lin.weight.split(self.in_channels, dim=1)
                neighbors.mul_(CONTRAST)
                own.sub_(neighbors)
        if self.bias is not None:
            bound = self.lin.in_features**-0.5
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(
        self,
        x: Tensor,  # (*batch, N, in_channels)
        graph: Any = None,  # noqa: ANN401
        valid: Tensor | None = None,  # (*batch, N), bool
    ) -> tuple[Tensor, Graph]:  # (*batch, N, out_channels)
        """Return new features, and the graph they were convolved with for the next layer."""
        x = as_input(x, self.lin.weight, self.in_channels)
        given = as_graph(graph, x.shape[-2], dtype=x.dtype, device=x.device)
        out, total, _ = self.convolve(x, given, self.learn(x, given, valid))
        return out, total

    def learn(
        self,
        x: Tensor,  # (*batch, N, in_channels)
        graph: Graph,
        valid: Tensor | None = None,  # (*batch, N), bool
    ) -> Graph | None:
        """Return the graph that the layer learns from features, or None where it learns none."""
        return self.learner(x, graph, valid) if self.learns else None

    def convolve(
        self,
        x: Tensor,  # (*batch, N, in_channels)
        graph: Graph,
        learned: Graph | None,
        graph_degree: Tensor | None = None,  # (*batch, N)
        nodes: Tensor | None = None,  # (M,), int64
    ) -> tuple[Tensor, Graph, Tensor | None]:  # (*batch, N or M, out_channels), …, (*batch, N)
        """Add a learned graph to `graph`, normalise, convolve: the layer without its learning.

        Args:
            x: features.
            graph: the graph so far.
            learned: the graph to add; None to convolve with `graph` as it is.
            graph_degree: degrees of `graph`, where they are known.
            nodes: where only these nodes' new features are wanted, because no layer follows.

        Returns:
            New features, the graph they were convolved with, and its degrees, which come with the
            product for one more column and spare the next layer a pass over all pairs; with
            `nodes`, no degrees.
        """
        total = graph if learned is None else self._joined(graph, learned, graph_degree)
        # The same product in either order; the graph's part costs as many columns as it is given.
        own_weight, weight = self.lin.weight.split(
            [self.lin.in_features - self.in_channels, self.in_channels], dim=1
        )
        narrows = self.out_channels <= self.in_channels
        columns = linear(x, weight) if narrows else x
        total_degree: Tensor | None = None
        if nodes is None:
            product = total.matmul(torch.cat([columns, torch.ones_like(columns[..., :1])], -1))
            out, total_degree = product[..., :-1], product[..., -1]
        else:
            out = total.matmul(columns, nodes)
        out = out if narrows else linear(out, weight)
        if self.concat:
            out = out + linear(x if nodes is None else x.index_select(-2, nodes), own_weight)
        return out if self.bias is None else out + self.bias, total, total_degree

    def _joined(self, graph: Graph, learned: Graph, graph_degree: Tensor | None) -> Graph:
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
