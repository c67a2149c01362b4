"""Peers: networks of other authors, written on our products with features and graphs.

Formulas are the papers'; a comment says where their authors' code departs from them. All take
features as :class:`jlgcn.ops.SparseFeatures`, the words of texts.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, relu

from jlgcn._optional import require
from jlgcn.graphs import Graph, SparseGraph
from jlgcn.ops import SparseFeatures
from jlgcn.ops.csr import csr_matmul
from jlgcn.ops.dropout import dropout
from jlgcn.paper.baselines import normalized, product

# Columns of the propagation matrix that are multiplied at once, so that a block stays in the cache.
_BLOCK = 128


def propagate(
    average: SparseGraph,
    x: Tensor,  # (N, C)
    order: int,
) -> Tensor:  # (N, C)
    r"""Return :math:`\frac{1}{K + 1} \sum_{k=0}^K \hat A^k X`, GRAND's mixed-order propagation.

    Args:
        average: the normalised graph, :math:`\hat A`.
        x: features.
        order: K.
    """
    total = step = x
    for _ in range(order):
        step = average @ step
        total = total + step
    return total / (order + 1)


class GRAND(nn.Module):
    r"""A perceptron on randomly propagated features, whose predictions are made consistent.

    `Graph Random Neural Network for Semi-Supervised Learning on Graphs
    <https://arxiv.org/abs/2005.11079>`_: rows of the features are dropped with probability δ, the
    others divided by 1 - δ, and the result is propagated (:func:`propagate`). In training, each
    call draws other rows.

    Args:
        in_channels: features of a node.
        out_channels: classes.
        hidden_channels: features between the perceptron's two layers.
        order: K, the highest power of the normalised graph.
        node_dropout: δ.
        input_dropout: share of the propagated features that is set to 0 in training.
        dropout: share of the hidden features that is set to 0 in training.

    Shapes: as :class:`evaluation.rivals.APPNP`.

    Cost: without dropout of the propagated features, the product with the weights is first, and
    propagation takes 2·order·E·hidden_channels FLOP. With it, propagated features are needed
    themselves: 2·N FLOP for each entry of the features that is kept, and a dense N × N matrix.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        hidden_channels: int = 32,
        *,
        order: int = 8,
        node_dropout: float = 0.5,
        input_dropout: float = 0.5,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.order = order
        self.node_dropout = node_dropout
        self.input_dropout = input_dropout
        self.dropout = dropout
        self.first = nn.Linear(in_channels, hidden_channels)
        self.second = nn.Linear(hidden_channels, out_channels)
        self._powers: WeakKeyDictionary[SparseGraph, list[Tensor]] = WeakKeyDictionary()

    def forward(self, x: SparseFeatures, graph: Graph) -> Tensor:
        """Return logits; in training, of one random propagation."""
        average = normalized(graph)
        share = 1 - self.node_dropout
        if self.training and self.input_dropout > 0:
            kept = torch.rand(x.shape[0]) < share
            y = self._propagated_first(x, kept, average) / share
        else:
            y = product(x, self.first.weight)
            if self.training:
                y = y * ((torch.rand(len(y), 1) < share) / share)
            y = propagate(average, y, self.order)
        y = dropout(relu(y + self.first.bias), self.dropout, self.training)
        logits: Tensor = self.second(y)
        return logits

    def _propagated_first(self, x: SparseFeatures, kept: Tensor, average: SparseGraph) -> Tensor:
        """Return dropout(P D X) W, with P the mean of powers and D the kept rows."""
        blocks = self._powers.get(average)
        if blocks is None:
            powers = propagate(average, torch.eye(x.shape[0]), self.order)
            blocks = [block.contiguous() for block in powers.split(_BLOCK, 1)]
            self._powers[average] = blocks
        words = SparseFeatures.from_scipy(x.to_scipy()[kept.numpy()]).mT
        # P is symmetric: its columns are its rows.
        y = torch.cat([words @ block[kept] for block in blocks], 1)  # (in_channels, N)
        # Dropout in place, with a byte for each entry: this is done thousands of times.
        draws = torch.empty(-(-y.numel() // 8), dtype=torch.int64).random_(-(1 << 63), None)
        draws = draws.view(torch.int8)[: y.numel()].view(y.shape)
        y *= draws >= round(256 * self.input_dropout) - 128
        return (self.first.weight @ y).mT / (1 - self.input_dropout)


def linear_attention(
    query: Tensor,  # (N, C)
    key: Tensor,  # (N, C)
    value: Tensor,  # (N, C)
) -> Tensor:  # (N, C)
    r"""Return SGFormer's attention, linear in N.

    .. math:: D^{-1} \left(V + \tfrac{1}{N} \tilde Q (\tilde K^\top V)\right), \quad
        D = \operatorname{diag}\left(1 + \tfrac{1}{N} \tilde Q (\tilde K^\top 1)\right)

    with Q and K divided by their Frobenius norms.
    """
    num_nodes = len(value)
    query, key = query / query.norm(), key / key.norm()
    total = value + query @ (key.mT @ value) / num_nodes
    return total / (1 + query @ key.sum(0) / num_nodes).unsqueeze(-1)


class SGFormer(nn.Module):
    r"""One layer of global linear attention beside a GCN.

    `SGFormer: Simplifying and Empowering Transformers for Large-Graph Representations
    <https://arxiv.org/abs/2306.10759>`_: :math:`(1 - \alpha) Z + \alpha \, \mathrm{GCN}(X, A)`
    with :math:`Z = \beta \, \mathrm{attention}(Z_0) + (1 - \beta) Z_0` and
    :math:`Z_0 = \mathrm{ReLU}(X W)`.

    Args:
        in_channels: features of a node.
        out_channels: classes.
        hidden_channels: features of both parts.
        num_layers: layers of the GCN.
        graph_weight: α.
        attention_weight: β.
        dropout: share of a layer's output in the GCN that is set to 0 in training.
        attention_dropout: the same of the attention.

    Shapes: as :class:`evaluation.rivals.APPNP`.

    Cost: 2·E·hidden_channels FLOP for each layer of the GCN and E edges, and 8·N·hidden_channels²
    for the attention.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        hidden_channels: int = 64,
        *,
        num_layers: int = 4,
        graph_weight: float = 0.8,
        attention_weight: float = 0.5,
        dropout: float = 0.5,
        attention_dropout: float = 0.2,
    ) -> None:
        super().__init__()
        layers = require("torch_geometric.nn", "pyg", "the SGFormer peer")
        self.graph_weight = graph_weight
        self.attention_weight = attention_weight
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.attention = nn.ModuleDict({"input": nn.Linear(in_channels, hidden_channels)})
        for name in ("query", "key", "value"):
            self.attention[name] = nn.Linear(hidden_channels, hidden_channels)
        widths = [in_channels, *[hidden_channels] * (num_layers - 1)]
        convs = [layers.GCNConv(width, hidden_channels) for width in widths]
        self.convs: Any = nn.ModuleList(convs)
        self.last = nn.Linear(hidden_channels, out_channels)

    def forward(self, x: SparseFeatures, graph: Graph) -> Tensor:
        """Return logits."""
        own, weight = self._attend(x), self.graph_weight
        logits: Tensor = self.last((1 - weight) * own + weight * self._convolve(x, graph))
        return logits

    def _attend(self, x: SparseFeatures) -> Tensor:
        lin = self.attention["input"]
        assert isinstance(lin, nn.Linear)
        start = relu(product(x, lin.weight) + lin.bias)
        start = dropout(start, self.attention_dropout, self.training)
        query, key, value = (self.attention[name](start) for name in ("query", "key", "value"))
        weight = self.attention_weight
        # The paper's equations; the authors' script has neither a value layer nor the residual.
        y = weight * linear_attention(query, key, value) + (1 - weight) * start
        return dropout(y, self.attention_dropout, self.training)

    def _convolve(self, x: SparseFeatures, graph: Graph) -> Tensor:
        average = normalized(graph)
        y: Tensor | SparseFeatures = x
        for conv in self.convs:
            if isinstance(y, Tensor):
                y = dropout(relu(y), self.dropout, self.training)
            y = average @ product(y, conv.lin.weight) + conv.bias
        assert isinstance(y, Tensor)
        return y


class GNNGuard(nn.Module):
    r"""Two layers of a GCN whose edges are weighted by the similarity of their nodes.

    `GNNGuard: Defending Graph Neural Networks against Adversarial Attacks
    <https://arxiv.org/abs/2006.08149>`_: before each layer, the cosine similarities of neighbours
    in that layer's features, 0 below a threshold, are the weights of the edges, scaled so that each
    node and its neighbours have the total weight 1 (:func:`guarded`). The second layer's weights
    are averaged with the first one's, by a share that is learned.

    Args:
        in_channels: features of a node.
        out_channels: classes.
        hidden_channels: features between the layers.
        threshold: similarity below which an edge is removed.
        dropout: share of the hidden features that is set to 0 in training.

    Shapes: as :class:`evaluation.rivals.APPNP`; weights of edges are not used.

    Cost: that of a GCN, and 2·E·hidden_channels FLOP for E edges.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        hidden_channels: int = 16,
        *,
        threshold: float = 0.1,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        layers = require("torch_geometric.nn", "pyg", "the GNNGuard peer")
        self.threshold = threshold
        self.dropout = dropout
        self.first = layers.GCNConv(in_channels, hidden_channels)
        self.second = layers.GCNConv(hidden_channels, out_channels)
        self.memory = nn.Parameter(torch.zeros(()))
        self._own: WeakKeyDictionary[SparseGraph, Tensor] = WeakKeyDictionary()

    def forward(self, x: SparseFeatures, graph: Graph) -> Tensor:
        """Return logits."""
        average = normalized(graph)
        pattern = average.pattern
        weight = self._own.get(average)
        if weight is None:
            weight = self._own[average] = guarded(x, average, self.threshold)
        y = relu(csr_matmul(pattern, weight, product(x, self.first.lin.weight)) + self.first.bias)
        # As in the authors' code, similarities of hidden features are not differentiated, and no
        # edge is removed at random; unlike there, weights are those of the paper's equations.
        share = self.memory.sigmoid()
        weight = share * weight + (1 - share) * guarded(y.detach(), average, self.threshold)
        y = self.second.lin(dropout(y, self.dropout, self.training))
        logits: Tensor = csr_matmul(pattern, weight, y) + self.second.bias
        return logits


def guarded(
    x: Tensor | SparseFeatures,  # (N, C)
    graph: SparseGraph,
    threshold: float,
) -> Tensor:  # (E,)
    r"""Return GNNGuard's weights of edges and of self-loops, with sum 1 in each row.

    Similarities :math:`s_{uv}` of neighbours below the threshold become 0. With n the number of
    neighbours of u that are left, an edge has the weight
    :math:`\frac{s_{uv}}{\sum_v s_{uv}} \frac{n}{n + 1}`, and the self-loop 1 / (n + 1).

    Args:
        x: features.
        graph: a graph with self-loops, whose weights are not looked at.
        threshold: similarity below which an edge is removed.
    """
    pattern = graph.pattern
    row, is_loop = pattern.row, pattern.row == pattern.col
    similarity = cosine(x, row, pattern.col)
    similarity = similarity.masked_fill((similarity < threshold) | is_loop, 0.0)
    zeros = similarity.new_zeros(graph.num_nodes)
    total = zeros.index_add(0, row, similarity).clamp(min=1e-12)
    number = zeros.index_add(0, row, (similarity > 0).to(zeros.dtype))
    share = similarity / total[row] * (number / (number + 1))[row]
    return torch.where(is_loop, (1 / (number + 1))[row], share)


def cosine(
    x: Tensor | SparseFeatures,  # (N, C)
    row: Tensor,  # (E,), int64
    col: Tensor,  # (E,), int64
) -> Tensor:  # (E,)
    """Return the cosine similarities of pairs of rows; 0 for rows of zeros."""
    if isinstance(x, Tensor):
        unit = normalize(x)
        return (unit.index_select(0, row) * unit.index_select(0, col)).sum(-1)
    length = x.square_norms().sqrt().clamp(min=1e-12)
    words = x.scaled(1 / length, torch.ones(x.shape[1], dtype=x.dtype)).to_scipy()
    return torch.from_numpy(words[row.numpy()].multiply(words[col.numpy()]).sum(1))
