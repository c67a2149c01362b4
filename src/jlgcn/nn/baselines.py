"""The networks JLGCN is compared with, made of layers of PyTorch Geometric.

A layer's weights are PyTorch Geometric's, and the product with the graph is ours, which sends no
message along each edge; tests compare both.

All networks take features as a tensor, or as :class:`jlgcn.ops.SparseFeatures` where they are
words: their first product is then one with the entries alone.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import elu, leaky_relu, relu

from jlgcn._optional import require
from jlgcn.graphs import Graph, ScaledGraph, SparseGraph
from jlgcn.ops import Pattern, SparseFeatures, csr_matmul
from jlgcn.ops.dropout import dropout

if TYPE_CHECKING:
    from torch_geometric.nn import GATConv


class GCN(nn.Module):
    r"""Two layers of PyTorch Geometric's `GCNConv`, as its paper trains them on citations.

    `Semi-Supervised Classification with Graph Convolutional Networks
    <https://arxiv.org/abs/1609.02907>`_: ReLU between the layers, dropout before each.

    Args:
        in_channels: features of a node.
        out_channels: classes.
        hidden_channels: features between the layers.
        dropout: share of a layer's input that is set to 0 in training.

    Shapes:
        - x: (N, in_channels) to (N, out_channels)
        - graph: a :class:`jlgcn.SparseGraph`; self-loops are added. Not differentiable in its
          weights.

    Cost: 2·E·(hidden_channels + out_channels) FLOP for E edges, and N·in_channels·hidden_channels.

    Example:
        >>> import torch
        >>> graph = SparseGraph(torch.tensor([[0, 1], [1, 0]]))
        >>> GCN(8, 3)(torch.randn(2, 8), graph).shape
        torch.Size([2, 3])
    """

    def __init__(
        self, in_channels: int, out_channels: int, hidden_channels: int = 16, dropout: float = 0.5
    ) -> None:
        super().__init__()
        layers = require("torch_geometric.nn", "pyg", "the GCN baseline")
        self.dropout = dropout
        self.first = layers.GCNConv(in_channels, hidden_channels)
        self.second = layers.GCNConv(hidden_channels, out_channels)

    def forward(self, x: Tensor | SparseFeatures, graph: Graph) -> Tensor:
        """Return logits."""
        average = _normalized(graph)
        y = _product(_dropped(x, self.dropout, self.training), self.first.lin.weight)
        y = relu(average @ y + self.first.bias)
        y = self.second.lin(dropout(y, self.dropout, self.training))
        logits: Tensor = average @ y + self.second.bias
        return logits


class GAT(nn.Module):
    r"""Two layers of PyTorch Geometric's `GATConv`, as its paper trains them on citations.

    `Graph Attention Networks <https://arxiv.org/abs/1710.10903>`_: heads side by side, ELU, and one
    head for the classes; dropout before each layer and on its attention.

    Args:
        in_channels: features of a node.
        out_channels: classes.
        hidden_channels: features of a head.
        num_heads: heads of the first layer.
        dropout: share of a layer's input, and of its attention, that is set to 0 in training.

    Shapes: as :class:`GCN`; weights of edges are not used.

    Cost: 4·E·num_heads·hidden_channels FLOP for E edges, and as much as :class:`GCN` for nodes,
    times the number of heads.

    Example:
        >>> import torch
        >>> graph = SparseGraph(torch.tensor([[0, 1], [1, 0]]))
        >>> GAT(8, 3)(torch.randn(2, 8), graph).shape
        torch.Size([2, 3])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        hidden_channels: int = 8,
        num_heads: int = 8,
        dropout: float = 0.6,
    ) -> None:
        super().__init__()
        layers = require("torch_geometric.nn", "pyg", "the GAT baseline")
        self.dropout = dropout
        self.first = layers.GATConv(in_channels, hidden_channels, num_heads, dropout=dropout)
        self.second = layers.GATConv(hidden_channels * num_heads, out_channels, dropout=dropout)

    def forward(self, x: Tensor | SparseFeatures, graph: Graph) -> Tensor:
        """Return logits."""
        pattern = _normalized(graph).pattern
        y = _product(_dropped(x, self.dropout, self.training), self.first.lin.weight)
        y = elu(self._attend(self.first, y, pattern))
        y = self.second.lin(dropout(y, self.dropout, self.training))
        return self._attend(self.second, y, pattern)

    def _attend(self, layer: GATConv, y: Tensor, pattern: Pattern) -> Tensor:
        """Return a layer's output: each head averages its features of neighbours by attention."""
        heads = y.view(len(y), layer.heads, layer.out_channels)
        score = (heads * layer.att_dst).sum(-1).index_select(0, pattern.row)
        score = score + (heads * layer.att_src).sum(-1).index_select(0, pattern.col)
        score = leaky_relu(score, layer.negative_slope)  # (E, heads)
        # Of each node's scores the highest becomes 0, so that no exponential overflows.
        highest = torch.segment_reduce(score.detach(), "max", offsets=pattern.crow)
        weight = (score - highest.index_select(0, pattern.row)).exp()
        total = torch.zeros_like(highest).index_add(0, pattern.row, weight)
        kept = dropout(weight, self.dropout, self.training).mT.contiguous()
        sums = [csr_matmul(pattern, *pair) for pair in zip(kept, heads.unbind(1), strict=True)]
        averages = torch.stack(sums, 1) / total.unsqueeze(-1)
        out: Tensor = averages.flatten(1) + layer.bias
        return out


class MLP(nn.Module):
    """Layers of neurons that see features alone; with one layer, logistic regression.

    Args:
        in_channels: features of a node.
        out_channels: classes.
        hidden_channels: features between layers.
        num_layers: how many layers.
        dropout: share of a layer's input that is set to 0 in training.

    Shapes:
        - x: (N, in_channels) to (N, out_channels)
        - graph: not looked at

    Cost: 2·N FLOP for each weight.

    Example:
        >>> import torch
        >>> MLP(8, 3, num_layers=1)(torch.randn(2, 8)).shape
        torch.Size([2, 3])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        hidden_channels: int = 64,
        num_layers: int = 2,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        widths = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        self.dropout = dropout
        self.lins = nn.ModuleList(nn.Linear(*pair) for pair in itertools.pairwise(widths))

    def forward(self, x: Tensor | SparseFeatures, graph: Graph | None = None) -> Tensor:
        """Return logits."""
        first, *others = self.lins
        assert isinstance(first, nn.Linear)
        y = _product(_dropped(x, self.dropout, self.training), first.weight) + first.bias
        for lin in others:
            y = lin(dropout(relu(y), self.dropout, self.training))
        return y


class APPNP(nn.Module):
    r"""A perceptron whose predictions are spread, as PyTorch Geometric's `APPNP` spreads them.

    `Predict then Propagate <https://arxiv.org/abs/1810.05997>`_: :math:`Z \leftarrow (1 - \alpha)
    \hat A Z + \alpha H`, again and again.

    Args:
        in_channels: features of a node.
        out_channels: classes.
        hidden_channels: features between the perceptron's two layers.
        num_steps: how often predictions are spread.
        restart: how much of the perceptron's own predictions returns at every step, α.
        dropout: share of a layer's input, and of the edges at every step, that is dropped in
            training.

    Shapes: as :class:`GCN`.

    Cost: 2·num_steps·E·out_channels FLOP for E edges, beside the perceptron.

    Example:
        >>> import torch
        >>> graph = SparseGraph(torch.tensor([[0, 1], [1, 0]]))
        >>> APPNP(8, 3)(torch.randn(2, 8), graph).shape
        torch.Size([2, 3])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        hidden_channels: int = 64,
        num_steps: int = 10,
        restart: float = 0.1,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.mlp = MLP(in_channels, out_channels, hidden_channels, dropout=dropout)
        self.num_steps = num_steps
        self.restart = restart
        self.dropout = dropout

    def forward(self, x: Tensor | SparseFeatures, graph: Graph) -> Tensor:
        """Return logits."""
        average = _normalized(graph)
        start: Tensor = self.mlp(x)
        logits = start
        for _ in range(self.num_steps):
            kept = dropout(average.weight, self.dropout, self.training)
            step = csr_matmul(average.pattern, kept, logits)
            logits = (1 - self.restart) * step + self.restart * start
        return logits


class GCNII(nn.Module):
    r"""Many layers of PyTorch Geometric's `GCN2Conv`.

    `Simple and Deep Graph Convolutional Networks <https://arxiv.org/abs/2007.02133>`_: every layer
    returns to the first one's features by a share α, and departs from the identity by
    log(θ / l + 1) in layer l.

    Args:
        in_channels: features of a node.
        out_channels: classes.
        hidden_channels: features between the layers.
        num_layers: how many graph layers.
        restart: α.
        strength: θ.
        dropout: share of a layer's input that is set to 0 in training.

    Shapes: as :class:`GCN`.

    Cost: 2·num_layers·(E + N·hidden_channels)·hidden_channels FLOP for E edges.

    Example:
        >>> import torch
        >>> graph = SparseGraph(torch.tensor([[0, 1], [1, 0]]))
        >>> GCNII(8, 3, num_layers=4)(torch.randn(2, 8), graph).shape
        torch.Size([2, 3])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        hidden_channels: int = 64,
        num_layers: int = 64,
        restart: float = 0.1,
        strength: float = 0.5,
        dropout: float = 0.6,
    ) -> None:
        super().__init__()
        layers = require("torch_geometric.nn", "pyg", "the GCNII baseline")
        self.restart = restart
        self.strength = strength
        self.dropout = dropout
        self.first = nn.Linear(in_channels, hidden_channels)
        self.convs = nn.ModuleList(
            layers.GCN2Conv(hidden_channels, restart, strength, layer)
            for layer in range(1, num_layers + 1)
        )
        self.last = nn.Linear(hidden_channels, out_channels)

    def forward(self, x: Tensor | SparseFeatures, graph: Graph) -> Tensor:
        """Return logits."""
        average = _normalized(graph)
        first = _product(_dropped(x, self.dropout, self.training), self.first.weight)
        start = y = relu(first + self.first.bias)
        for layer, conv in enumerate(self.convs, start=1):
            assert isinstance(conv.weight1, Tensor)
            y = average @ dropout(y, self.dropout, self.training)
            y = (1 - self.restart) * y + self.restart * start
            share = math.log(self.strength / layer + 1)
            y = relu(torch.addmm(y, y, conv.weight1, beta=1 - share, alpha=share))
        logits: Tensor = self.last(dropout(y, self.dropout, self.training))
        return logits


def _sparse(graph: Graph) -> SparseGraph:
    if not isinstance(graph, SparseGraph):
        raise ValueError(
            f"the baselines need the edges of a SparseGraph, but the graph is a "
            f"{type(graph).__name__}; pass as_graph(edge_index)"
        )
    return graph


# A graph is normalised once and not in every step.
_NORMALIZED: WeakKeyDictionary[SparseGraph, SparseGraph] = WeakKeyDictionary()


def _normalized(graph: Graph) -> SparseGraph:
    """Return D^-1/2 (A + I) D^-1/2, where nodes that have a self-loop get no further one."""
    given = _sparse(graph)
    found = _NORMALIZED.get(given)
    if found is None:
        # What is kept may be asked for again in training, where tensors of inference are refused.
        with torch.inference_mode(mode=False), torch.no_grad():
            found = _normalize(given)
        _NORMALIZED[given] = found
    return found


def _normalize(graph: SparseGraph) -> SparseGraph:
    row, col = graph.edge_index
    has_loop = torch.zeros(graph.num_nodes, dtype=torch.bool, device=row.device)
    has_loop[row[row == col]] = True
    loops = (~has_loop).nonzero().squeeze(-1).expand(2, -1)
    weight = torch.cat([graph.weight, graph.weight.new_ones(loops.shape[1])])
    whole = SparseGraph(torch.cat([graph.edge_index, loops], -1), weight, graph.num_nodes)
    scaled = whole.normalized()
    assert isinstance(scaled, ScaledGraph)
    row, col = whole.edge_index
    weight = whole.weight * scaled.scale[row] * scaled.scale[col]
    return SparseGraph.from_pattern(whole.pattern, weight)


def _dropped(x: Tensor | SparseFeatures, p: float, training: bool) -> Tensor | SparseFeatures:
    return dropout(x, p, training) if isinstance(x, Tensor) else x.dropout(p, training)


def _product(x: Tensor | SparseFeatures, weight: Tensor) -> Tensor:
    """Return the features times a linear layer's weight."""
    return functional.linear(x, weight) if isinstance(x, Tensor) else x @ weight.mT
