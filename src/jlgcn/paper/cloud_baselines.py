"""Baselines for point clouds: GCN on a fixed kNN graph, PointNet, DGCNN."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from jlgcn.graphs import DenseGraph
from jlgcn.nn.batch_norm import BatchNorm
from jlgcn.nn.graph_models import GraphLevelJLGCN, GraphLevelOutput
from jlgcn.ops.precision import compute_dtype, no_autocast


class KnnGCN(nn.Module):
    """The paper's baseline: its network for clouds on a fixed k-nearest-neighbour graph.

    Identical to :class:`GraphLevelJLGCN` except for the graph, so that the comparison isolates
    graph learning.

    Args:
        in_channels (int ≥ 1): features of a point.
        out_channels (int ≥ 1): classes.
        hidden_channels (sequence of int): output features of every layer.
        head_channels (sequence of int): hidden widths of the head.
        num_neighbors (int ≥ 1, default 20): neighbours of a point, as in the paper.
        concat (bool, default True): concatenate a point's own features with the aggregated ones, as
            the paper's network does; whether its baseline does is open.

    Shapes: x (B, N, in_channels) to logits (B, out_channels).

    Cost: one top-k of B·N² distances, and per layer a product with B·N² weights.

    Example:
        >>> KnnGCN(3, 10, (16, 32)).eval()(torch.randn(4, 50, 3)).logits.shape
        torch.Size([4, 10])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        hidden_channels: Sequence[int] = (64, 128, 1024),
        head_channels: Sequence[int] = (512, 256),
        num_neighbors: int = 20,
        *,
        concat: bool = True,
    ) -> None:
        super().__init__()
        self.num_neighbors = num_neighbors
        self.network = GraphLevelJLGCN(
            *(in_channels, out_channels, hidden_channels, head_channels),
            num_learned=0,
            concat=concat,
        )

    def forward(self, x: Tensor) -> GraphLevelOutput:
        """Compute logits, and the features and graphs of every layer."""
        output: GraphLevelOutput = self.network(x, neighbor_graph(x, self.num_neighbors))
        return output


class PointNet(nn.Module):
    """PointNet: a shared MLP on points, and max pooling.

    `PointNet: Deep Learning on Point Sets for 3D Classification and Segmentation
    <https://arxiv.org/abs/1612.00593>`_, with its input and feature transforms (T-nets);
    :meth:`regularizer` is its orthogonality penalty.

    Args:
        in_channels (int ≥ 1): features of a point.
        out_channels (int ≥ 1): classes.
        dropout (float in [0, 1], default 0.3): dropout probability of the head's last hidden layer.

    Shapes: x (B, N, in_channels) to logits (B, out_channels).

    Cost: 2·B·N·430,000 FLOP, linear in the number of points.

    Example:
        >>> PointNet(3, 10).eval()(torch.randn(4, 50, 3)).logits.shape
        torch.Size([4, 10])
    """

    def __init__(self, in_channels: int, out_channels: int, dropout: float = 0.3) -> None:
        super().__init__()
        self.input_transform = _Transform(in_channels)
        self.before = _shared(in_channels, 64, 64)
        self.feature_transform = _Transform(64)
        self.after = _shared(64, 64, 128, 1024)
        self.head = nn.Sequential(
            _layer(1024, 512), _layer(512, 256), nn.Dropout(dropout), nn.Linear(256, out_channels)
        )

    def forward(self, x: Tensor) -> GraphLevelOutput:
        """Compute logits, and the input and feature transform of each cloud."""
        turned = x @ self.input_transform(x)
        hidden = _each(self.before, turned)
        transform = self.feature_transform(hidden)
        pooled = _each(self.after, hidden @ transform).max(-2).values
        return GraphLevelOutput(self.head(pooled), pooled, [x, transform], [], [])

    def regularizer(self, output: GraphLevelOutput) -> Tensor:  # (B,)
        """Return the orthogonality penalty ‖I - T Tᵀ‖² of each cloud's feature transform T."""
        transform = output.features[1].to(compute_dtype(output.features[1]))
        eye = torch.eye(transform.shape[-1], dtype=transform.dtype, device=transform.device)
        return (eye - transform @ transform.mT).square().sum((-2, -1))


class DGCNN(nn.Module):
    r"""DGCNN: edge convolutions on kNN graphs that are recomputed in every layer.

    `Dynamic Graph CNN for Learning on Point Clouds <https://arxiv.org/abs/1801.07829>`_:

    .. math:: f_i' = \max_{j \in N(i)} \mathrm{LeakyReLU}(W_1 (f_j - f_i) + W_2 f_i)

    Args:
        in_channels (int ≥ 1): features of a point.
        out_channels (int ≥ 1): classes.
        hidden_channels (sequence of int): output features of every layer.
        num_neighbors (int ≥ 1, default 20): neighbours of a point.
        dropout (float in [0, 1], default 0.5): dropout probability of the head's hidden layers.

    Shapes: x (B, N, in_channels) to logits (B, out_channels).

    Cost: per layer, a top-k of B·N² distances, and B·N·num_neighbors·channels comparisons.

    Example:
        >>> DGCNN(3, 10, (16, 32), num_neighbors=5).eval()(torch.randn(4, 50, 3)).logits.shape
        torch.Size([4, 10])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        hidden_channels: Sequence[int] = (64, 64, 128, 256),
        num_neighbors: int = 20,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.num_neighbors = num_neighbors
        widths = itertools.pairwise([in_channels, *hidden_channels])
        self.convs = nn.ModuleList(EdgeConv(before, after) for before, after in widths)
        self.last = _shared(sum(hidden_channels), 1024)
        self.head = nn.Sequential(
            *(_layer(2048, 512, 0.2), nn.Dropout(dropout)),
            *(_layer(512, 256, 0.2), nn.Dropout(dropout)),
            nn.Linear(256, out_channels),
        )

    def forward(self, x: Tensor) -> GraphLevelOutput:
        """Compute logits, and the features of every layer."""
        features = [x]
        for conv in self.convs:
            features.append(conv(features[-1], neighbors(features[-1], self.num_neighbors)))
        hidden = _each(self.last, torch.cat(features[1:], -1))
        pooled = torch.cat([hidden.max(-2).values, hidden.mean(-2)], -1)
        return GraphLevelOutput(self.head(pooled), pooled, features, [], [])


class EdgeConv(nn.Module):
    """Edge convolution, the layer of :class:`DGCNN`.

    Args:
        in_channels (int ≥ 1): input features.
        out_channels (int ≥ 1): output features.

    Shapes: x (B, N, in_channels) and neighbours (B, N, k) to (B, N, out_channels).

    Cost: 4·B·N·in_channels·out_channels + 2·B·N²·out_channels FLOP; edge features,
    B·N·k·out_channels, are not stored for the backward pass.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.difference = nn.Linear(in_channels, out_channels, bias=False)
        self.own = nn.Linear(in_channels, out_channels, bias=False)
        self.norm = BatchNorm(out_channels)

    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        """Return new features."""
        # W₁(f_j - f_i) + W₂f_i, with W₁ and W₂ applied to nodes instead of edges.
        dtype = self.norm.weight.dtype  # under autocast: bfloat16 has no room for a sum
        other = self.difference(x).to(dtype)
        own = self.own(x).to(dtype) - other
        # Normalisation and activation are monotone in each channel, so the edge with the largest
        # result is known before, and only this edge is computed.
        with torch.no_grad():
            neighbor = _largest(other * torch.where(self.norm.weight < 0, -1, 1), index)
        edges = (own + other.gather(-2, neighbor)).flatten(0, 1)
        if self.training:
            normalized = self.norm.normalize(edges, *_moments(self.norm, own, other, index))
        else:
            normalized = self.norm(edges)
        return leaky_relu(normalized, 0.2).view(own.shape)


def _moments(
    norm: BatchNorm,
    own: Tensor,  # (B, N, C)
    other: Tensor,  # (B, N, C)
    index: Tensor,  # (B, N, k)
) -> tuple[Tensor, Tensor, float]:
    """Return mean and variance of own_i + other_j over all edges, (C,) each, and their number."""
    adjacency = other.new_zeros(*index.shape[:-1], index.shape[-2]).scatter_(-1, index, 1)
    incoming = adjacency.sum(-2).unsqueeze(-1)
    num_neighbors = index.shape[-1]
    total = (num_neighbors * own + incoming * other).sum((0, 1))
    mean, num_edges = norm.mean_of_all(total, index.numel())
    # Σ (own + other)², expanded; both terms are centred against cancellation.
    centre = other.detach().mean((0, 1))
    own, other = own - (mean - centre), other - centre
    parts = num_neighbors * own.square() + 2 * own * (adjacency @ other) + incoming * other.square()
    variance, _ = norm.mean_of_all(parts.sum((0, 1)), index.numel())
    return mean, variance, num_edges


@torch.no_grad()
def neighbors(
    x: Tensor,  # (B, N, C)
    num_neighbors: int,
) -> Tensor:  # (B, N, k), int64
    """Return the nearest neighbours of every node, including itself, within each graph of a batch.

    Example:
        >>> neighbors(torch.tensor([[[0.0], [1.0], [5.0]]]), 2)
        tensor([[[0, 1],
                 [1, 0],
                 [2, 1]]])
    """
    x = x.to(compute_dtype(x))
    x = x - x.mean(-2, keepdim=True)
    square = x.square().sum(-1)
    # ‖f_j‖² - 2 f_i·f_j orders the nodes j as their distance from i does.
    with no_autocast(x.device):
        closeness = torch.baddbmm(square.unsqueeze(-2), x, x.mT, alpha=-2)
    return closeness.topk(min(num_neighbors, x.shape[-2]), largest=False).indices


def neighbor_graph(
    x: Tensor,  # (B, N, C)
    num_neighbors: int,
) -> DenseGraph:  # (B, N, N)
    """Return the normalised, symmetric k-nearest-neighbour graph with self-loops.

    An edge, of weight 1, joins two nodes if either is among the nearest of the other.

    Example:
        >>> neighbor_graph(torch.tensor([[[0.0], [1.0], [5.0], [6.0]]]), 1).to_dense()
        tensor([[[0.5000, 0.5000, 0.0000, 0.0000],
                 [0.5000, 0.5000, 0.0000, 0.0000],
                 [0.0000, 0.0000, 0.5000, 0.5000],
                 [0.0000, 0.0000, 0.5000, 0.5000]]])
    """
    index = neighbors(x, num_neighbors + 1)
    weight = torch.zeros(*x.shape[:-1], x.shape[-2], dtype=x.dtype, device=x.device)
    weight.scatter_(-1, index, 1)
    weight = torch.maximum(weight, weight.mT)
    scale = weight.sum(-1).rsqrt()
    return DenseGraph(scale.unsqueeze(-1) * weight * scale.unsqueeze(-2))


class _Transform(nn.Module):
    """Transform network (T-net): a matrix for each cloud, initialised as the identity."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels
        self.points = _shared(channels, 64, 128, 1024)
        self.cloud = nn.Sequential(_layer(1024, 512), _layer(512, 256))
        self.matrix = nn.Linear(256, channels * channels)
        nn.init.zeros_(self.matrix.weight)
        nn.init.eye_(self.matrix.bias.data.view(channels, channels))

    def forward(self, x: Tensor) -> Tensor:
        pooled = self.cloud(_each(self.points, x).max(-2).values)
        matrix: Tensor = self.matrix(pooled)
        return matrix.view(-1, self.channels, self.channels)


def _layer(before: int, after: int, negative_slope: float = 0.0) -> nn.Module:
    return nn.Sequential(
        nn.Linear(before, after, bias=False),
        BatchNorm(after),
        nn.LeakyReLU(negative_slope) if negative_slope else nn.ReLU(),
    )


def _shared(*widths: int) -> nn.Module:
    return nn.Sequential(*(_layer(before, after) for before, after in itertools.pairwise(widths)))


def _each(layers: nn.Module, x: Tensor) -> Tensor:
    """Apply layers to every point."""
    flat: Tensor = layers(x.flatten(0, -2))
    return flat.view(*x.shape[:-1], -1)


def _largest(
    x: Tensor,  # (B, N, C)
    index: Tensor,  # (B, N, k)
) -> Tensor:  # (B, N, C), int64
    """Return the neighbour with the largest value of each node, per channel."""
    found = []
    # Graph by graph and neighbour by neighbour, which fits into the cache: on a CPU several times
    # as fast as argmax over all neighbours.
    for rows, neighbor in zip(x, index, strict=True):
        largest = rows[neighbor[:, 0]]
        place = torch.zeros(largest.shape, dtype=torch.int16, device=x.device)
        for other in range(1, neighbor.shape[-1]):
            candidate = rows[neighbor[:, other]]
            place = torch.maximum(place, (candidate > largest).to(place.dtype) * other)
            largest = torch.maximum(largest, candidate)
        found.append(neighbor.gather(-1, place.long()))
    return torch.stack(found)
