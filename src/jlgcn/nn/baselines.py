"""The networks JLGCN is compared with, made of unmodified layers of PyTorch Geometric."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import elu, relu

from jlgcn._optional import require
from jlgcn.graphs import Graph, SparseGraph
from jlgcn.ops.dropout import dropout


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
        - graph: a :class:`jlgcn.SparseGraph`; self-loops are added

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

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        """Return logits."""
        edge_index, weight = _edges(graph)
        x = dropout(x, self.dropout, self.training)
        x = relu(self.first(x, edge_index, weight))
        x = dropout(x, self.dropout, self.training)
        logits: Tensor = self.second(x, edge_index, weight)
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

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        """Return logits."""
        edge_index, _ = _edges(graph)
        x = dropout(x, self.dropout, self.training)
        x = elu(self.first(x, edge_index))
        x = dropout(x, self.dropout, self.training)
        logits: Tensor = self.second(x, edge_index)
        return logits


def _edges(graph: Graph) -> tuple[Tensor, Tensor]:
    if not isinstance(graph, SparseGraph):
        raise ValueError(
            f"the baselines need the edges of a SparseGraph, but the graph is a "
            f"{type(graph).__name__}; pass as_graph(edge_index)"
        )
    return graph.edge_index, graph.weight
