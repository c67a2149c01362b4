"""The networks JLGCN is compared with, made of unmodified layers of PyTorch Geometric."""

from __future__ import annotations

import itertools

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

    def forward(self, x: Tensor, graph: Graph | None = None) -> Tensor:
        """Return logits."""
        for index, lin in enumerate(self.lins):
            x = dropout(relu(x) if index > 0 else x, self.dropout, self.training)
            x = lin(x)
        return x


class APPNP(nn.Module):
    r"""A perceptron whose predictions are spread by PyTorch Geometric's `APPNP`.

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
        layers = require("torch_geometric.nn", "pyg", "the APPNP baseline")
        self.mlp = MLP(in_channels, out_channels, hidden_channels, dropout=dropout)
        self.spread = layers.APPNP(num_steps, restart, dropout)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        """Return logits."""
        logits: Tensor = self.spread(self.mlp(x), *_edges(graph))
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
        self.dropout = dropout
        self.first = nn.Linear(in_channels, hidden_channels)
        self.convs = nn.ModuleList(
            layers.GCN2Conv(hidden_channels, restart, strength, layer)
            for layer in range(1, num_layers + 1)
        )
        self.last = nn.Linear(hidden_channels, out_channels)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        """Return logits."""
        edge_index, weight = _edges(graph)
        start = x = relu(self.first(dropout(x, self.dropout, self.training)))
        for conv in self.convs:
            x = dropout(x, self.dropout, self.training)
            x = relu(conv(x, start, edge_index, weight))
        logits: Tensor = self.last(dropout(x, self.dropout, self.training))
        return logits


def _edges(graph: Graph) -> tuple[Tensor, Tensor]:
    if not isinstance(graph, SparseGraph):
        raise ValueError(
            f"the baselines need the edges of a SparseGraph, but the graph is a "
            f"{type(graph).__name__}; pass as_graph(edge_index)"
        )
    return graph.edge_index, graph.weight
