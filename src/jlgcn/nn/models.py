"""The network of the paper for node classification."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from jlgcn._schema import Check, maybe, real, whole, word
from jlgcn._validation import as_input
from jlgcn.graphs import Graph, as_graph
from jlgcn.nn.calibration import calibrate_learners
from jlgcn.nn.conv import JLGCNConv
from jlgcn.nn.health import warn_together
from jlgcn.nn.learner import BACKENDS, Backend, GraphLearner
from jlgcn.nn.losses import network_regularizer
from jlgcn.nn.options import OPTIONS_CHECK, JLGCNOptions, Preset, resolve_options
from jlgcn.nn.persistence import MAX_CHANNELS, MAX_LAYERS, SavedModule
from jlgcn.ops.dropout import dropout


class JLGCNOutput(NamedTuple):
    r"""Output of :class:`JLGCN`.

    Attributes:
        logits (Tensor): class scores, (\*batch, N, out_channels), or (\*batch, M, out_channels)
            with `nodes`.
        features (list of Tensor): input of every layer, as its graph learner saw it.
        learned (list of Graph): learned kernel A* of every layer that learns, not normalised.
        graphs (list of Graph): normalised graph that every layer convolved with.
    """

    logits: Tensor
    features: list[Tensor]
    learned: list[Graph]
    graphs: list[Graph]


class JLGCN(SavedModule):
    r"""Graph convolutional network with jointly learned graphs, for node classification.

    Section 5 of `Joint Graph and Feature Learning in Graph Convolutional Neural Networks
    <https://arxiv.org/abs/1909.04931>`_: layers of :class:`JLGCNConv` with leaky ReLU between them
    and dropout before each. Every layer learns a graph from its input, adds it to the graph of the
    layer before, and passes the normalised sum to the next.

    Args:
        in_channels (int ≥ 1): features of a node.
        hidden_channels (int ≥ 1): features between layers.
        out_channels (int ≥ 1): classes.
        num_layers (int ≥ 1, default 2): number of layers.
        rank (int ≥ 1 or None, default 16): rank of every metric; None for full rank, which
            ``metric_init="identity"`` needs.
        num_learned (int in [1, num_layers] or None, default None): number of layers, from the
            first, that learn a graph; later layers convolve with the last one. None for all.
        dropout (float in [0, 1], default 0.5): dropout probability of the input of a layer.
        input_dropout (float in [0, 1] or None, default None): dropout probability of the input of
            the first layer; None for `dropout`.
        negative_slope (float, default 0.2): slope of the leaky ReLU below 0.
        options (JLGCNOptions, "paper" or "authors", default "authors"): where text and code of the
            paper differ.
        backend ("auto", "exact", "knn" or "dense", default "auto"): representation of learned
            graphs, see :class:`GraphLearner`.
        num_neighbors (int ≥ 1, default 16): neighbours of a node for kNN.

    Shapes:
        - x: (\*batch, N, in_channels)
        - graph: any format of :func:`jlgcn.as_graph`; None for no edges
        - nodes: (M,), int64; None for all

    Cost: layer l computes one or two degrees and l products with learned graphs; memory is O(N).
    With `nodes` the products of the last layer have M rows.

    Example:
        >>> model = JLGCN(8, 16, 3).eval()
        >>> out = model(torch.randn(5, 8), torch.tensor([[0, 1], [1, 0]]))
        >>> out.logits.shape, len(out.graphs)
        (torch.Size([5, 3]), 2)

    Nodes that come after training stand behind the old ones (:func:`jlgcn.graphs.attach`); here new
    node 0 has an edge to old node 3, new node 1 has none:

        >>> from jlgcn.graphs import attach
        >>> graph = attach(as_graph(None, 5), 2, torch.tensor([[0], [3]]))
        >>> model(torch.randn(5 + 2, 8), graph).logits[5:].shape
        torch.Size([2, 3])
    """

    _ARGUMENTS: ClassVar[dict[str, Check]] = {
        "in_channels": whole(1, MAX_CHANNELS),
        "hidden_channels": whole(1, MAX_CHANNELS),
        "out_channels": whole(1, MAX_CHANNELS),
        "num_layers": whole(1, MAX_LAYERS),
        "rank": maybe(whole(1, MAX_CHANNELS)),
        "num_learned": whole(1, MAX_LAYERS),
        "dropout": real(0, 1),
        "input_dropout": real(0, 1),
        "negative_slope": real(-1e300, 1e300),
        "options": OPTIONS_CHECK,
        "backend": word(*BACKENDS),
        "num_neighbors": whole(1, MAX_CHANNELS),
    }

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
            raise ValueError(
                f"num_layers must be at least 1, but it is {num_layers}; pass 2 or more"
            )
        if num_learned is not None and not 1 <= num_learned <= num_layers:
            raise ValueError(
                f"num_learned must be between 1 and {num_layers}, the number of layers, but it is "
                f"{num_learned}"
            )
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.out_channels = out_channels
        self.num_layers = num_layers
        self.rank = rank
        self.backend: Backend = backend
        self.num_neighbors = num_neighbors
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
        """Reinitialise the metrics and weights of all layers."""
        for conv in self.convs:
            assert isinstance(conv, JLGCNConv)
            conv.reset_parameters()

    @property
    def learners(self) -> list[GraphLearner]:
        """Graph learners of the layers that learn."""
        return [module for module in self.modules() if isinstance(module, GraphLearner)]

    def calibrate(
        self,
        x: Tensor,  # (*batch, N, in_channels)
        graph: Any = None,  # noqa: ANN401
    ) -> Self:
        """Scale the metrics of ``metric_init="median"`` to these features.

        :func:`jlgcn.training.fit_nodes` calls it; in your own training loop, call it once before.

        Args:
            x: features.
            graph: given graph.

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
        """Compute logits, and the features and graphs of every layer.

        Args:
            x: features.
            graph: given graph.
            nodes: compute the logits of these nodes only, as a loss needs them; None for all.
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
        """Return the graph Laplacian regularizer, summed over the layers that learn.

        Args:
            output: output of :meth:`forward`.
            x: input of the network.
            probes: number of Hutchinson probes, see :func:`jlgcn.nn.laplacian_regularizer`; None
                for the exact value.
            generator: their source.
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
