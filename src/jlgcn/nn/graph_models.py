"""The network of the paper for graph classification: point clouds, molecules, small graphs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Self, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from jlgcn._devices import is_check_due
from jlgcn._memory import check_memory
from jlgcn._schema import Check, either, flag, list_of, maybe, real, whole, word
from jlgcn._validation import as_input, check_batch, check_edge_index, check_finite, check_weight
from jlgcn.graphs import DenseGraph, Graph, as_graph
from jlgcn.nn.batch_norm import BatchNorm
from jlgcn.nn.calibration import calibrate_learners
from jlgcn.nn.conv import JLGCNConv
from jlgcn.nn.health import warn_together
from jlgcn.nn.learner import BACKENDS, Backend, GraphLearner
from jlgcn.nn.losses import network_regularizer
from jlgcn.nn.options import OPTIONS_CHECK, JLGCNOptions, Preset, resolve_options
from jlgcn.nn.persistence import MAX_CHANNELS, MAX_LAYERS, SavedModule

Pooling = Literal["max", "mean"]


class GraphLevelOutput(NamedTuple):
    """Output of :class:`GraphLevelJLGCN`.

    Attributes:
        logits (Tensor): class scores, (B, out_channels).
        pooled (Tensor): features of each graph after pooling, (B, hidden_channels[-1]).
        features (list of Tensor): input of every layer, (B, N, ·); 0 at padding.
        learned (list of Graph): learned kernel A* of every layer that learns, not normalised.
        graphs (list of Graph): normalised graph that every layer convolved with.
    """

    logits: Tensor
    pooled: Tensor
    features: list[Tensor]
    learned: list[Graph]
    graphs: list[Graph]


class GraphLevelJLGCN(SavedModule):
    r"""Graph convolutional network with jointly learned graphs, for graph classification.

    Sections 4.2 and 5.2 of `Joint Graph and Feature Learning in Graph Convolutional Neural Networks
    <https://arxiv.org/abs/1909.04931>`_: layers of :class:`JLGCNConv` with concatenation, batch
    normalisation and leaky ReLU; global pooling; a fully connected head with dropout.

    Args:
        in_channels (int ≥ 1): features of a node; 3 for points.
        out_channels (int ≥ 1): classes.
        hidden_channels (sequence of int, default (64, 128, 1024)): output features of every layer.
        head_channels (sequence of int, default (512, 256)): hidden widths of the head.
        rank (int ≥ 1, sequence of them or None, default 16): rank of every metric, or of each
            layer's; None for full rank.
        concat (bool, default True): concatenate a node's own features with the aggregated ones
            (equation 16), in every layer.
        num_learned (int in [0, layers] or None, default None): number of layers, from the first,
            that learn a graph. None for all; 0 for a network on given, already normalised graphs.
        pooling ("max" or "mean", default "max"): global pooling over the nodes of a graph.
        dropout (float in [0, 1], default 0.5): dropout probability of the head's hidden layers.
        negative_slope (float, default 0.2): slope of the leaky ReLU below 0.
        options (JLGCNOptions, "paper" or "authors", default "authors"): where text and code of the
            paper differ. The authors' code for graphs was never published; "paper" is the text.
        backend ("auto", "exact", "knn" or "dense", default "auto"): representation of learned
            graphs, see :class:`GraphLearner`.

    Shapes:
        - x: (B, N, in_channels), graphs of the same size, or
        - x: (nodes of all graphs, in_channels) with `batch`, as in PyTorch Geometric's `Batch`.

    Cost: B·N²·(rank + channels) FLOP per layer and product; memory O(B·N²) for up to 512 nodes,
    whose graphs are dense, O(B·N) above. Padding costs one synchronisation with an accelerator per
    forward pass.

    Example:
        >>> model = GraphLevelJLGCN(3, 10, hidden_channels=(16, 32)).eval()
        >>> model(torch.randn(4, 100, 3)).logits.shape
        torch.Size([4, 10])
    """

    _ARGUMENTS: ClassVar[dict[str, Check]] = {
        "in_channels": whole(1, MAX_CHANNELS),
        "out_channels": whole(1, MAX_CHANNELS),
        "hidden_channels": list_of(whole(1, MAX_CHANNELS), MAX_LAYERS, min_length=1),
        "head_channels": list_of(whole(1, MAX_CHANNELS), MAX_LAYERS),
        "rank": maybe(either(whole(1, MAX_CHANNELS), list_of(whole(1, MAX_CHANNELS), MAX_LAYERS))),
        "concat": flag,
        "num_learned": whole(0, MAX_LAYERS),
        "pooling": word(*get_args(Pooling)),
        "dropout": real(0, 1),
        "negative_slope": real(-1e300, 1e300),
        "options": OPTIONS_CHECK,
        "backend": word(*BACKENDS),
    }

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        hidden_channels: Sequence[int] = (64, 128, 1024),
        head_channels: Sequence[int] = (512, 256),
        rank: int | Sequence[int] | None = 16,
        *,
        concat: bool = True,
        num_learned: int | None = None,
        pooling: Pooling = "max",
        dropout: float = 0.5,
        negative_slope: float = 0.2,
        options: JLGCNOptions | Preset = "authors",
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        num_layers = len(hidden_channels)
        if num_learned is not None and not 0 <= num_learned <= num_layers:
            raise ValueError(
                f"num_learned must be between 0 and {num_layers}, the number of layers, but it is "
                f"{num_learned}"
            )
        widths = [in_channels, *hidden_channels]
        if rank is None:
            ranks = widths[:-1]
        else:
            ranks = list(rank) if isinstance(rank, Sequence) else [rank] * num_layers
        if len(ranks) != num_layers:
            raise ValueError(
                f"rank must be a number, or one for each of {num_layers} layers, but it has "
                f"{len(ranks)}; pass as many as hidden_channels"
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.hidden_channels = tuple(hidden_channels)
        self.head_channels = tuple(head_channels)
        self.rank = tuple(ranks) if isinstance(rank, Sequence) else rank
        self.concat = concat
        self.dropout = dropout
        self.backend: Backend = backend
        self.options = resolve_options(options)
        self.num_learned = num_layers if num_learned is None else num_learned
        self.pooling: Pooling = pooling
        self.negative_slope = negative_slope
        self.convs = nn.ModuleList(
            JLGCNConv(
                before,
                after,
                ranks[index],
                concat=concat,
                learns=index < self.num_learned,
                options=self.options,
                backend=backend,
            )
            for index, (before, after) in enumerate(itertools.pairwise(widths))
        )
        warn_together([learner.health for learner in self.learners])
        self.norms = nn.ModuleList(BatchNorm(width) for width in hidden_channels)
        head: list[nn.Module] = []
        for before, after in itertools.pairwise([hidden_channels[-1], *head_channels]):
            head += [
                nn.Linear(before, after, bias=False),
                BatchNorm(after),
                nn.LeakyReLU(negative_slope),
                nn.Dropout(dropout),
            ]
        last = head_channels[-1] if head_channels else hidden_channels[-1]
        self.head = nn.Sequential(*head, nn.Linear(last, out_channels))

    @property
    def learners(self) -> list[GraphLearner]:
        """Graph learners of the layers that learn."""
        return [module for module in self.modules() if isinstance(module, GraphLearner)]

    def calibrate(
        self,
        x: Tensor,  # (B, N, in_channels), or (nodes of all graphs, in_channels)
        graph: Any = None,  # noqa: ANN401
        batch: Tensor | None = None,  # (nodes of all graphs,), int64
        valid: Tensor | None = None,  # (B, N), bool
    ) -> Self:
        """Scale the metrics of ``metric_init="median"`` to these graphs.

        :func:`jlgcn.training.fit_graphs` calls it; in your own training loop, call it once before.

        Args:
            x: features of some training graphs.
            graph: given graphs, as in :meth:`forward`.
            batch: graph of each node, as in :meth:`forward`.
            valid: False marks padding, as in :meth:`forward`.

        Returns:
            The network itself.
        """
        calibrate_learners(self, lambda: self(x, graph, batch, valid))
        return self

    def forward(
        self,
        x: Tensor,  # (B, N, in_channels), or (nodes of all graphs, in_channels)
        graph: Any = None,  # noqa: ANN401
        batch: Tensor | None = None,  # (nodes of all graphs,), int64
        valid: Tensor | None = None,  # (B, N), bool
    ) -> GraphLevelOutput:
        """Compute logits, and the features and graphs of every layer.

        Args:
            x: features.
            graph: given graphs, (B, N, N); with `batch`, an edge_index over the nodes of all
                graphs, or a pair of it and edge weights.
            batch: graph of each node, ascending, for graphs of different sizes.
            valid: False marks padding, if x is padded already.
        """
        first = self.convs[0]
        assert isinstance(first, JLGCNConv)
        x = as_input(x, first.lin.weight, first.in_channels)
        if self.num_learned == 0 and is_check_due(x.device, "input"):  # learners check their own
            check_finite(x)
        if batch is not None:
            x, valid, graph = pad_graphs(x, batch, graph)
        real = None
        if valid is not None:
            # Once for all layers: the number of real nodes is a size, and the host waits for it.
            real = valid.flatten().nonzero().squeeze(-1)
            if len(real) == valid.numel():
                real = valid = None
        current = as_graph(graph, x.shape[-2], dtype=x.dtype, device=x.device)
        degree: Tensor | None = None
        features: list[Tensor] = []
        learned_graphs: list[Graph] = []
        graphs: list[Graph] = []
        for conv, norm in zip(self.convs, self.norms, strict=True):
            assert isinstance(conv, JLGCNConv)
            features.append(x)
            learned = conv.learn(x, current, valid)
            x, current, degree, _ = conv.convolve(x, current, learned, degree)
            graphs.append(current)
            if learned is not None:
                learned_graphs.append(learned)
            x = leaky_relu(_normalize(norm, x, real), self.negative_slope)
        pooled = _pool(x, valid, self.pooling)
        return GraphLevelOutput(self.head(pooled), pooled, features, learned_graphs, graphs)

    def regularizer(
        self,
        output: GraphLevelOutput,
        *,
        probes: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:  # (B,)
        """Return the graph Laplacian regularizer of every graph, summed over layers that learn.

        Args:
            output: output of :meth:`forward`.
            probes: number of Hutchinson probes, see :func:`jlgcn.nn.laplacian_regularizer`; None
                for the exact value.
            generator: their source.
        """
        return network_regularizer(
            self.options,
            output.features[0],
            output.features,
            output.learned,
            output.graphs,
            probes=probes,
            generator=generator,
        )


def pad_graphs(
    x: Tensor,  # (nodes of all graphs, C)
    batch: Tensor,  # (nodes of all graphs,), int64, ascending
    edges: Tensor | tuple[Tensor, Tensor] | None = None,  # (2, E), or with weights, (E,)
) -> tuple[Tensor, Tensor, DenseGraph | None]:  # (B, N, C), (B, N)
    """Pad graphs of different sizes to the largest size, and mark the real nodes.

    Args:
        x: features.
        batch: graph of each node.
        edges: edge_index of edges between nodes of the same graph, both directions, or a pair of
            it and weights; 1 by default.

    Cost: memory B·N·C, and B·N² with edges, where N is the size of the largest graph.

    Example:
        >>> x, valid, _ = pad_graphs(torch.ones(3, 1), torch.tensor([0, 0, 1]))
        >>> valid
        tensor([[ True,  True],
                [ True, False]])
    """
    check_batch(batch, x.shape[0])
    count = torch.bincount(batch)
    fewest, size = (int(bound) for bound in count.aminmax())
    if fewest == 0:
        empty = int((count == 0).nonzero()[0])
        raise ValueError(f"graph {empty} has no nodes; leave it out and renumber the graphs")
    num_graphs = count.shape[0]
    start = count.cumsum(0) - count
    position = torch.arange(x.shape[0], device=x.device) - start[batch]
    padded = x.new_zeros(num_graphs, size, x.shape[1])
    padded[batch, position] = x
    valid = torch.zeros(num_graphs, size, dtype=torch.bool, device=x.device)
    valid[batch, position] = True
    if edges is None:
        return padded, valid, None
    edge_index, edge_weight = (edges, None) if isinstance(edges, Tensor) else edges
    check_edge_index(edge_index, x.shape[0])
    row, col = edge_index
    if bool((batch[row] != batch[col]).any()):
        raise ValueError("edge_index joins nodes of different graphs; make one Batch of all graphs")
    needed = num_graphs * size * size * x.element_size()
    check_memory(needed, x.device, "a batch of dense graphs", "a smaller batch of smaller graphs")
    weight = x.new_zeros(num_graphs, size, size)
    if edge_weight is None:
        weight[batch[row], position[row], position[col]] = 1
    else:
        check_weight(edge_weight, edge_index)
        places = (batch[row], position[row], position[col])
        weight.index_put_(places, edge_weight.to(x.dtype), accumulate=True)
    return padded, valid, DenseGraph(torch.maximum(weight, weight.mT))


def _normalize(
    norm: nn.Module,
    x: Tensor,  # (B, N, C)
    real: Tensor | None,  # (real nodes,), int64, in the order of x.flatten(0, -2); None for all
) -> Tensor:  # (B, N, C)
    """Normalise the features of all real nodes; those of padding become 0."""
    flat = x.flatten(0, -2)
    if real is None:
        out: Tensor = norm(flat)
    else:
        out = torch.zeros_like(flat).index_put((real,), norm(flat[real]))
    return out.view(x.shape)


def _pool(x: Tensor, valid: Tensor | None, pooling: Pooling) -> Tensor:
    if pooling == "max":
        if valid is not None:
            x = x.masked_fill(~valid.unsqueeze(-1), -torch.inf)
        return x.max(-2).values
    if valid is None:
        return x.mean(-2)
    return x.sum(-2) / valid.sum(-1, keepdim=True)
