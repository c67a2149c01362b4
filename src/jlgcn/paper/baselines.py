"""The networks JLGCN is compared with, made of layers of PyTorch Geometric.

A layer's weights are PyTorch Geometric's, and the product with the graph is ours, which sends no
message along each edge; tests compare both.

All networks take features as a tensor, or as :class:`jlgcn.ops.SparseFeatures` where they are
words: their first product is then one with the entries alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import elu, leaky_relu, relu

from jlgcn._optional import require
from jlgcn.graphs import Graph, SparseGraph
from jlgcn.ops import SparseFeatures
from jlgcn.ops.csr import Pattern, csr_matmul
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
        average = normalized(graph)
        y = product(dropped(x, self.dropout, self.training), self.first.lin.weight)
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
        pattern = normalized(graph).pattern
        y = product(dropped(x, self.dropout, self.training), self.first.lin.weight)
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


def _sparse(graph: Graph) -> SparseGraph:
    if not isinstance(graph, SparseGraph):
        raise ValueError(
            f"the baselines need the edges of a SparseGraph, but the graph is a "
            f"{type(graph).__name__}; pass as_graph(edge_index)"
        )
    return graph


# A graph is normalised once and not in every step.
_NORMALIZED: WeakKeyDictionary[SparseGraph, SparseGraph] = WeakKeyDictionary()


def normalized(graph: Graph) -> SparseGraph:
    """Return D^-1/2 (A + I) D^-1/2, where nodes that have a self-loop get no further one."""
    given = _sparse(graph)
    found = _NORMALIZED.get(given)
    if found is None:
        layers = require("torch_geometric.nn.conv.gcn_conv", "pyg", "a baseline")
        # What is kept may be asked for again in training, where tensors of inference are refused.
        with torch.inference_mode(mode=False), torch.no_grad():
            edges, weight = layers.gcn_norm(given.edge_index, given.weight, given.num_nodes)
            found = SparseGraph(edges, weight, given.num_nodes)
        _NORMALIZED[given] = found
    return found


def dropped(x: Tensor | SparseFeatures, p: float, training: bool) -> Tensor | SparseFeatures:
    """Return the features with a share p of their entries set to 0 in training."""
    return dropout(x, p, training) if isinstance(x, Tensor) else x.dropout(p, training)


def product(x: Tensor | SparseFeatures, weight: Tensor) -> Tensor:
    """Return the features times a linear layer's weight."""
    return functional.linear(x, weight) if isinstance(x, Tensor) else x @ weight.mT
