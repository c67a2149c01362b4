"""A strong backbone over any graph: features are spread first, then classified."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from jlgcn.graphs import Graph
from jlgcn.ops import SparseFeatures, dropout


class Propagation(nn.Module):
    r"""Spreads features over a graph, step by step, and classifies what arrives.

    .. math::
        H = \frac{1}{K + 1} \sum_{k=0}^{K} A^k \, (m \odot X) W_1, \qquad
        Y = \sigma(H + b_1) W_2 + b_2

    with a normalised graph A and, in training, a mask m that hides whole nodes: what they would
    have sent must then be told from others. Several masks at once are views of the same data, which
    should be classified alike, labelled or not (:func:`consistency`). Both ideas are those of
    `Graph Random Neural Networks <https://arxiv.org/abs/2005.11079>`_; W₁ stands before the graph
    here, where it is cheaper, so that the input's entries are dropped before they are spread.

    Args:
        in_channels: features of a node.
        hidden_channels: features that are spread.
        out_channels: classes.
        num_steps: K.
        node_dropout: share of the nodes that m hides.
        input_dropout: share of the input's entries that is dropped in training.
        dropout: share of σ's output that is dropped in training.

    Shapes:
        - x: (N, in_channels), a tensor or :class:`jlgcn.ops.SparseFeatures`
        - graph: N nodes, normalised
        - returns (num_views, N, out_channels)

    Cost: num_steps products of num_views·hidden_channels columns, and as many with W₁ as views.

    Example:
        >>> from jlgcn import KernelGraph
        >>> graph = KernelGraph(torch.randn(5, 2)).normalized()
        >>> Propagation(8, 16, 3)(torch.randn(5, 8), graph, num_views=4).shape
        torch.Size([4, 5, 3])
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        num_steps: int = 8,
        node_dropout: float = 0.5,
        input_dropout: float = 0.5,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.num_steps = num_steps
        self.node_dropout = node_dropout
        self.input_dropout = input_dropout
        self.dropout = dropout
        self.first = nn.Linear(in_channels, hidden_channels)
        self.last = nn.Linear(hidden_channels, out_channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        nn.init.xavier_uniform_(self.first.weight)
        nn.init.zeros_(self.first.bias)
        self.last.reset_parameters()

    def forward(self, x: Tensor | SparseFeatures, graph: Graph, num_views: int = 1) -> Tensor:
        """Return the logits of every view, each with nodes and entries of its own hidden."""
        views = [self._view(x) for _ in range(num_views)]
        spread = self.spread(torch.cat(views, -1), graph)  # one product serves all views
        hidden = spread.unflatten(-1, (num_views, -1)).movedim(-2, 0) + self.first.bias
        hidden = functional.dropout(hidden.relu(), self.dropout, self.training)
        logits: Tensor = self.last(hidden)
        return logits

    def spread(self, x: Tensor, graph: Graph) -> Tensor:
        """Return the mean of x after 0 to `num_steps` steps."""
        total = x
        for _ in range(self.num_steps):
            x = graph @ x
            total = total + x
        return total / (self.num_steps + 1)

    def _view(self, x: Tensor | SparseFeatures) -> Tensor:
        weight = self.first.weight.t()
        if isinstance(x, SparseFeatures):
            h = x.dropout(self.input_dropout, self.training) @ weight
        else:
            h = dropout(x, self.input_dropout, self.training) @ weight
        if not self.training or self.node_dropout == 0:
            return h
        is_seen = torch.rand(h.shape[0], 1, device=h.device) >= self.node_dropout
        return h * is_seen / (1 - self.node_dropout)


def consistency(
    logits: Tensor,  # (views, N, C)
    *,
    sharpening: float = 0.5,
) -> Tensor:  # ()
    r"""Return how far the views of the same nodes are apart.

    .. math::
        \frac{1}{V N} \sum_{v, i} \| p_{v i} - \bar p_i' \|^2, \qquad
        \bar p_{ic}' \propto \bar p_{ic}^{1/T}

    with the views' mean prediction, sharpened by the temperature T and held constant, so that
    views move towards what most of them say, and towards saying it clearly.

    Args:
        logits: of every view.
        sharpening: T; 1 leaves the mean as it is, towards 0 only its largest class counts.

    Cost: a pass over the logits.

    Example:
        >>> agree, differ = torch.zeros(2, 5, 3), torch.tensor([[[9.0, 0.0]], [[0.0, 9.0]]])
        >>> bool(consistency(agree) < 1e-9), bool(consistency(differ) > 0.4)
        (True, True)
    """
    probability = logits.softmax(-1)
    target = probability.detach().mean(0) ** (1 / sharpening)
    target = target / target.sum(-1, keepdim=True)
    return (probability - target).square().sum(-1).mean()
