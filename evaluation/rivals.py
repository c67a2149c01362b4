"""Networks that the closed form is compared with, beside the paper's GCN and GAT.

Layers' weights are PyTorch Geometric's, and the product with the graph is ours; tests compare both.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from jlgcn._optional import require
from jlgcn.graphs import Graph, SparseGraph
from jlgcn.ops import SparseFeatures
from jlgcn.ops.csr import csr_matmul
from jlgcn.ops.dropout import dropout
from jlgcn.paper.baselines import dropped, normalized, product

if TYPE_CHECKING:
    from torch_geometric.nn import SAGEConv


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
        y = product(dropped(x, self.dropout, self.training), first.weight) + first.bias
        for lin in others:
            y = lin(dropout(relu(y), self.dropout, self.training))
        return y


class SAGE(nn.Module):
    r"""Two layers of PyTorch Geometric's `SAGEConv`: own features beside the neighbours' mean.

    `Inductive Representation Learning on Large Graphs <https://arxiv.org/abs/1706.02216>`_.

    Args:
        in_channels: features of a node.
        out_channels: classes.
        hidden_channels: features between the layers.
        dropout: share of a layer's input that is set to 0 in training.

    Shapes: as :class:`GCN`; weights of edges are not used.

    Cost: 2·E·(hidden_channels + out_channels) FLOP for E edges, and twice as much as :class:`GCN`
    for nodes.

    Example:
        >>> import torch
        >>> from jlgcn import SparseGraph
        >>> graph = SparseGraph(torch.tensor([[0, 1], [1, 0]]))
        >>> SAGE(8, 3)(torch.randn(2, 8), graph).shape
        torch.Size([2, 3])
    """

    def __init__(
        self, in_channels: int, out_channels: int, hidden_channels: int = 64, dropout: float = 0.5
    ) -> None:
        super().__init__()
        layers = require("torch_geometric.nn", "pyg", "the SAGE baseline")
        self.dropout = dropout
        self.first = layers.SAGEConv(in_channels, hidden_channels)
        self.second = layers.SAGEConv(hidden_channels, out_channels)

    def forward(self, x: Tensor | SparseFeatures, graph: Graph) -> Tensor:
        """Return logits."""
        assert isinstance(graph, SparseGraph)
        pattern = graph.pattern
        degree = (pattern.crow[1:] - pattern.crow[:-1]).clamp(min=1).to(x.dtype)
        weight = degree.reciprocal().repeat_interleave(pattern.crow[1:] - pattern.crow[:-1])

        def layer(conv: SAGEConv, y: Tensor | SparseFeatures) -> Tensor:
            mean = csr_matmul(pattern, weight, product(y, conv.lin_l.weight))
            found: Tensor = mean + conv.lin_l.bias + product(y, conv.lin_r.weight)
            return found

        y = relu(layer(self.first, dropped(x, self.dropout, self.training)))
        return layer(self.second, dropout(y, self.dropout, self.training))


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
        >>> from jlgcn import SparseGraph
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
        average = normalized(graph)
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
        >>> from jlgcn import SparseGraph
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
        average = normalized(graph)
        first = product(dropped(x, self.dropout, self.training), self.first.weight)
        start = y = relu(first + self.first.bias)
        for layer, conv in enumerate(self.convs, start=1):
            assert isinstance(conv.weight1, Tensor)
            y = average @ dropout(y, self.dropout, self.training)
            y = (1 - self.restart) * y + self.restart * start
            share = math.log(self.strength / layer + 1)
            y = relu(torch.addmm(y, y, conv.weight1, beta=1 - share, alpha=share))
        logits: Tensor = self.last(dropout(y, self.dropout, self.training))
        return logits
