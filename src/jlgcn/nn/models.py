"""The network of the paper for node classification."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from jlgcn._schema import Check, maybe, real, whole, word
from jlgcn._validation import check_one_graph
from jlgcn.graphs import Graph, as_graph
from jlgcn.nn.calibration import calibrate_learners
from jlgcn.nn.conv import JLGCNConv
from jlgcn.nn.features import Features, as_features, drop
from jlgcn.nn.health import warn_together
from jlgcn.nn.learner import BACKENDS, Backend, GraphLearner
from jlgcn.nn.losses import network_regularizer, probe_features, smoothness
from jlgcn.nn.neighbors import NeighborSchedule
from jlgcn.nn.options import OPTIONS_CHECK, JLGCNOptions, Preset, resolve_options
from jlgcn.nn.persistence import MAX_CHANNELS, MAX_LAYERS, SavedModule


class JLGCNOutput(NamedTuple):
    r"""Output of :class:`JLGCN`.

    Attributes:
        logits (Tensor): class scores, (\*batch, N, out_channels), or (\*batch, M, out_channels)
            with `nodes`.
        features (list of Tensor or SparseFeatures): input of every layer, as its graph learner saw
            it.
        learned (list of Graph): learned kernel A* of every layer that learns, not normalised.
        graphs (list of Graph): normalised graph that every layer convolved with.
        regularizer (Tensor or None): the regularizer, if :meth:`JLGCN.forward` computed it.
    """

    logits: Tensor
    features: list[Features]
    learned: list[Graph]
    graphs: list[Graph]
    regularizer: Tensor | None = None


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
        min_recall (float in [0, 1] or None, default 0.9): training keeps the neighbour candidates
            of kNN graphs, and only recomputes the weights, until the recall of a sample of rows
            falls below; see below. None searches in every pass.

    Shapes:
        - x: (\*batch, N, in_channels), or SparseFeatures, (N, in_channels)
        - graph: any format of :func:`jlgcn.as_graph`; None for no edges
        - nodes: (M,), int64; None for all

    Cost: layer l computes one or two degrees and l products with learned graphs; memory is O(N).
    With `nodes` the products of the last layer have M rows. kNN graphs also cost a search, in
    training only when it is needed: the rest of a step is linear in N.

    Kept neighbours (kNN, training mode with gradients): 1, 2, 4, 8, and then every 16 steps after a
    search, exact neighbours of 256 rows are compared with the candidates. Recall is the share that
    is kept, relative to that right after the search, in a pass without dropout, whose noise would
    exchange nearly all neighbours in every step; the weights of the step see dropout as options
    say. Other features or other given edges are noticed. Evaluation mode searches in every pass, so
    that its results depend on parameters and data alone. `neighbors.recall` has the last recall of
    every layer, and the logger of `jlgcn.nn.neighbors` reports each.

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
        "min_recall": maybe(real(0, 1)),
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
        min_recall: float | None = 0.9,
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
        if min_recall is not None and not 0 <= min_recall <= 1:
            raise ValueError(
                f"min_recall must be between 0 and 1, but it is {min_recall}; pass 0.9, or None to "
                "search in every pass"
            )
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.out_channels = out_channels
        self.num_layers = num_layers
        self.rank = rank
        self.backend: Backend = backend
        self.num_neighbors = num_neighbors
        self.min_recall = min_recall
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
        kept = [learner.neighbors for learner in self.learners]
        self.neighbors = NeighborSchedule(kept, 0.0 if min_recall is None else min_recall)

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
        x: Features,  # (*batch, N, in_channels)
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
        x: Features,  # (*batch, N, in_channels)
        graph: Any = None,  # noqa: ANN401
        nodes: Tensor | None = None,  # (M,), int64
        *,
        probes: int | None = None,
        generator: torch.Generator | None = None,
    ) -> JLGCNOutput:
        """Compute logits, and the features and graphs of every layer.

        Args:
            x: features.
            graph: given graph.
            nodes: compute the logits of these nodes only, as a loss needs them; None for all.
            probes: compute the regularizer with so many Hutchinson probes, if all learned graphs
                are sparse and it smooths the network's input on normalised graphs: its columns are
                then part of the layers' own products. :meth:`regularizer` returns it, or computes
                it where this does not apply.
            generator: source of the probes.
        """
        x = self._as_input(x)
        check_one_graph(graph)
        given = as_graph(graph, x.shape[-2], dtype=x.dtype, device=x.device)
        carry = None if probes is None else self._carry(x, probes, generator)
        if not self._keeps_neighbors(x, given):
            return self._propagate(x, given, nodes, carry, drops=self.training)
        if self.neighbors.is_due(x):
            with torch.no_grad(), self.neighbors.checking():
                self._propagate(x, given, nodes, None, drops=False)
        with self.neighbors.using("kept"):
            return self._propagate(x, given, nodes, carry, drops=True)

    def _keeps_neighbors(self, x: Features, given: Graph) -> bool:
        """Whether this is a training step on kNN graphs whose candidates are kept."""
        if not self.training or not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return False
        is_plain = len(x.shape) == 2 and given.num_new == 0
        return self.min_recall is not None and is_plain and self._learns_sparse(x)

    def _learns_sparse(self, x: Features) -> bool:
        return all(one.chosen_backend(x.shape, x.device) == "knn" for one in self.learners)

    def _carry(self, x: Features, probes: int, generator: torch.Generator | None) -> Tensor | None:
        """Return the probed features of all layers, or None if they cannot ride with products."""
        is_input = self.options.glr_normalized and self.options.glr_on == "input"
        if not is_input or probes >= x.shape[-1] or len(x.shape) > 2 or not self._learns_sparse(x):
            return None
        return torch.stack([probe_features(x, probes, generator) for _ in self.learners])

    def _propagate(
        self,
        x: Features,
        current: Graph,
        nodes: Tensor | None,
        carry: Tensor | None,  # (num_learned, N, probes)
        *,
        drops: bool,
    ) -> JLGCNOutput:
        degree: Tensor | None = None
        features: list[Features] = []
        learned_graphs: list[Graph] = []
        graphs: list[Graph] = []
        terms: list[Tensor] = []
        for index, conv in enumerate(self.convs):
            assert isinstance(conv, JLGCNConv)
            if index > 0:
                assert isinstance(x, Tensor)
                x = functional.leaky_relu(x, self.negative_slope)
            dropped = drop(x, self.dropout if index > 0 else self.input_dropout, drops)
            seen = dropped if self.options.graph_after_dropout else x
            learned = conv.learn(seen, current)
            own = carry[index] if carry is not None and learned is not None else None
            is_last = index == len(self.convs) - 1
            x, current, degree, smoothed = conv.convolve(
                dropped, current, learned, degree, nodes if is_last else None, own
            )
            features.append(seen)
            graphs.append(current)
            if learned is not None:
                learned_graphs.append(learned)
            if own is not None and smoothed is not None:
                terms.append(smoothness(own, smoothed))
        assert isinstance(x, Tensor)
        regularizer = torch.stack(terms).sum(0) if terms else None
        return JLGCNOutput(x, features, learned_graphs, graphs, regularizer)

    def regularizer(
        self,
        output: JLGCNOutput,
        x: Features,  # (*batch, N, in_channels)
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

        If the forward pass computed the value already, it is returned.
        """
        if output.regularizer is not None:
            return output.regularizer
        return network_regularizer(
            self.options,
            self._as_input(x),
            output.features,
            output.learned,
            output.graphs,
            probes=probes,
            generator=generator,
        )

    def _as_input(self, x: Features) -> Features:
        first = self.convs[0]
        assert isinstance(first, JLGCNConv)
        return as_features(x, first.lin.weight, first.in_channels)
