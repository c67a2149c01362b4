"""The paper's network for the nodes of one graph."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from jlgcn._validation import as_input
from jlgcn.graphs import Graph, as_graph
from jlgcn.nn.calibration import calibrate_learners
from jlgcn.nn.conv import JLGCNConv
from jlgcn.nn.health import warn_together
from jlgcn.nn.learner import Backend, GraphLearner
from jlgcn.nn.losses import network_regularizer
from jlgcn.nn.options import JLGCNOptions, Preset, resolve_options
from jlgcn.ops.dropout import dropout


class JLGCNOutput(NamedTuple):
    r"""What the network makes of a graph and features.

    Attributes:
        logits: scores of the classes, (\*batch, N, out_channels), or of the nodes asked for only.
        features: input of every layer as its graph saw it, and nothing behind the last.
        learned: the kernel A* of every layer that learned one, not normalised.
        graphs: the graph that every layer convolved with.
    """

    logits: Tensor
    features: list[Tensor]
    learned: list[Graph]
    graphs: list[Graph]


class JLGCN(nn.Module):
    r"""Joint learning of graphs and features, for the classes of nodes.

    Section 5 of `Joint Graph and Feature Learning in Graph Convolutional Neural Networks
    <https://arxiv.org/abs/1909.04931>`_: layers of :class:`JLGCNConv`, leaky ReLU between them,
    dropout before each. Every layer learns a graph from its own input and hands the sum on.

    Args:
        in_channels: features of a node.
        hidden_channels: features between layers.
        out_channels: classes.
        num_layers: number of layers.
        rank: rank of every layer's metric; None for that of its input, as an identity needs.
        num_learned: how many layers, from the first, learn a graph; those behind them convolve
            with the last one. None for all.
        dropout: share of a layer's input that is set to 0 in training.
        input_dropout: the same for the first layer's input; None for `dropout`.
        negative_slope: slope of the leaky ReLU below 0.
        options: "paper", "authors" or :class:`JLGCNOptions`.
        backend: how learned graphs are held: "exact", "knn", "dense" or "auto", see
            :class:`GraphLearner`.
        num_neighbors: neighbours of a node where they are held as kNN.

    Shapes:
        - x: (\*batch, N, in_channels)
        - graph: anything that :func:`jlgcn.as_graph` reads; None for no graph
        - nodes: (M,), int64; None for all

    Cost: layer l takes one or two degrees and l products with learned graphs; memory grows with N.
    With `nodes` the last layer's products are of M rows only.

    Example:
        >>> model = JLGCN(8, 16, 3).eval()
        >>> out = model(torch.randn(5, 8), torch.tensor([[0, 1], [1, 0]]))
        >>> out.logits.shape, len(out.graphs)
        (torch.Size([5, 3]), 2)
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 2,
        rank: int | None = 16,
        *,
        num_learned: int | None = None,
        dropout: float = 0.5,
        input_dropout: float | None = None,
        negative_slope: float = 0.2,
        options: JLGCNOptions | Preset = "authors",
        backend: Backend = "auto",
        num_neighbors: int = 16,
    ) -> None:
        super().__init__()
        if num_layers < 1:
            raise ValueError(f"num_layers must be at least 1, but it is {num_layers}")
        if num_learned is not None and not 1 <= num_learned <= num_layers:
            raise ValueError(
                f"num_learned must be between 1 and {num_layers}, the number of layers, but it is "
                f"{num_learned}"
            )
        self.options = resolve_options(options)
        self.num_learned = num_layers if num_learned is None else num_learned
        self.dropout = dropout
        self.input_dropout = dropout if input_dropout is None else input_dropout
        self.negative_slope = negative_slope
        widths = [in_channels] + [hidden_channels] * (num_layers - 1) + [out_channels]
        self.convs = nn.ModuleList(
            JLGCNConv(
                before,
                after,
                before if rank is None else rank,
                learns=index < self.num_learned,
                options=self.options,
                backend=backend,
                num_neighbors=num_neighbors,
            )
            for index, (before, after) in enumerate(itertools.pairwise(widths))
        )
        warn_together([learner.health for learner in self.learners])

    def reset_parameters(self) -> None:
        """Draw all metrics and weights anew."""
        for conv in self.convs:
            assert isinstance(conv, JLGCNConv)
            conv.reset_parameters()

    @property
    def learners(self) -> list[GraphLearner]:
        """The graph learner of every layer that has one."""
        return [module for module in self.modules() if isinstance(module, GraphLearner)]

    def calibrate(
        self,
        x: Tensor,  # (*batch, N, in_channels)
        graph: Any = None,  # noqa: ANN401
    ) -> Self:
        """Scale metrics that start at the median (``metric_init="median"``) to these features.

        :func:`jlgcn.training.fit_nodes` calls it; call it yourself before another training loop.

        Args:
            x: features.
            graph: the given graph.

        Returns:
            The network itself.
        """
        calibrate_learners(self, lambda: self(x, graph))
        return self

    def forward(
        self,
        x: Tensor,  # (*batch, N, in_channels)
        graph: Any = None,  # noqa: ANN401
        nodes: Tensor | None = None,  # (M,), int64
    ) -> JLGCNOutput:
        """Return logits, and the features and graphs of every layer.

        Args:
            x: features.
            graph: the given graph.
            nodes: the nodes whose logits are wanted, as a loss or an accuracy needs a few; None
                for all.
        """
        x = self._as_input(x)
        current = as_graph(graph, x.shape[-2], dtype=x.dtype, device=x.device)
        degree: Tensor | None = None
        features: list[Tensor] = []
        learned_graphs: list[Graph] = []
        graphs: list[Graph] = []
        for index, conv in enumerate(self.convs):
            assert isinstance(conv, JLGCNConv)
            if index > 0:
                x = functional.leaky_relu(x, self.negative_slope)
            share = self.dropout if index > 0 else self.input_dropout
            dropped = dropout(x, share, self.training)
            seen = dropped if self.options.graph_after_dropout else x
            learned = conv.learn(seen, current)
            is_last = index == len(self.convs) - 1
            x, current, degree = conv.convolve(
                dropped, current, learned, degree, nodes if is_last else None
            )
            features.append(seen)
            graphs.append(current)
            if learned is not None:
                learned_graphs.append(learned)
        return JLGCNOutput(x, features, learned_graphs, graphs)

    def regularizer(
        self,
        output: JLGCNOutput,
        x: Tensor,  # (*batch, N, in_channels)
        *,
        probes: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return the graph Laplacian regularizer of all layers that learn, as options define it.

        Args:
            output: what :meth:`forward` returned.
            x: the network's input.
            probes: random directions in place of wide features, see
                :func:`jlgcn.nn.laplacian_regularizer`.
            generator: where they are drawn from.
        """
        return network_regularizer(
            self.options,
            self._as_input(x),
            output.features,
            output.learned,
            output.graphs,
            probes=probes,
            generator=generator,
        )

    def _as_input(self, x: Tensor) -> Tensor:
        first = self.convs[0]
        assert isinstance(first, JLGCNConv)
        return as_input(x, first.lin.weight, first.in_channels)
