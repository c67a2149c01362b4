"""SLAPS, a peer that learns a graph where none is given, written on our sparse products.

Formulas are the paper's with its generator MLP-D, settings those of its authors' scripts; a comment
says where their code departs. Features are words, 0 or 1, as :class:`jlgcn.ops.SparseFeatures`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, NamedTuple

import scipy.sparse
import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.nn.functional import binary_cross_entropy_with_logits, relu

from jlgcn.ops import SparseFeatures
from jlgcn.ops.csr import Pattern, csr_matmul, symmetric_pattern
from jlgcn.ops.dropout import dropout

Activation = Literal["relu", "tanh"]


class LearnedGraph(NamedTuple):
    """A normalised graph.

    Attributes:
        pattern: where weights are.
        weight: weights, (E,), differentiable in the generator's parameters.
    """

    pattern: Pattern
    weight: Tensor


class SLAPS(nn.Module):
    r"""A kNN graph of reweighted words, learned by a GCN and by denoising the features.

    `SLAPS: Self-Supervision Improves Structure Learning for Graph Neural Networks
    <https://arxiv.org/abs/2102.05034>`_: each word gets a weight (:meth:`word_weights`), the
    neighbours of a node are those of highest cosine similarity, and similarities are the weights
    of a GCN that classifies and of another one that finds words which were taken away.

    Args:
        in_channels: words.
        out_channels: classes.
        hidden_channels: features between the classifier's layers.
        num_neighbors: neighbours of a node, besides itself.
        activation: function between the two scalings of a word.
        denoiser_channels: features between the denoiser's layers.
        edge_dropout: share of edges that is set to 0 in training of the classifier.
        denoiser_edge_dropout: the same of the denoiser.

    Cost: a step forms the similarities of all pairs of nodes that share a word, and takes
    2·E·(hidden_channels + denoiser_channels) FLOP for E edges.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        hidden_channels: int = 32,
        *,
        num_neighbors: int = 15,
        activation: Activation = "relu",
        denoiser_channels: int = 512,
        edge_dropout: float = 0.5,
        denoiser_edge_dropout: float = 0.25,
    ) -> None:
        super().__init__()
        self.num_neighbors = num_neighbors
        self.activation = relu if activation == "relu" else torch.tanh
        self.edge_dropout = edge_dropout
        self.denoiser_edge_dropout = denoiser_edge_dropout
        self.first_scale = nn.Parameter(torch.ones(in_channels))
        self.second_scale = nn.Parameter(torch.ones(in_channels))
        self.denoiser = _TwoLayers(in_channels, denoiser_channels, in_channels)
        self.classifier = _TwoLayers(in_channels, hidden_channels, out_channels)

    def word_weights(self) -> Tensor:  # (in_channels,)
        r"""Return the squared weights of words, :math:`(\sigma(w_1) w_2)^2`.

        The paper's generator, :math:`\sigma(x \odot w_1) \odot w_2`, where words are 0 or 1.
        """
        return (self.activation(self.first_scale) * self.second_scale).square()

    def learn(self, x: SparseFeatures) -> LearnedGraph:
        r"""Return :math:`D^{-1/2} (A + A^\top) D^{-1/2} / 2`, with A the similarity of neighbours.

        Args:
            x: words, 0 or 1.
        """
        squares = self.word_weights()
        length = (x @ squares.unsqueeze(1)).squeeze(1).clamp(min=1e-24).sqrt()
        pattern, share = self._neighbors(x, squares.detach().sqrt(), length.detach())
        words = x.to_scipy()
        is_upper = pattern.row <= pattern.col
        row, col = pattern.row[is_upper], pattern.col[is_upper]
        common = SparseFeatures.from_scipy(words[row.numpy()].multiply(words[col.numpy()]))
        upper = (common @ squares.unsqueeze(1)).squeeze(1) / (length[row] * length[col])
        # Entries below the diagonal have the similarity of their mirror images.
        place = is_upper.cumsum(0) - 1
        place = torch.where(is_upper, place, place[pattern.reverse])
        weight = share * upper[place]
        degree = weight.new_zeros(pattern.num_nodes).index_add(0, pattern.row, weight)
        scale = degree.clamp(min=1e-20).rsqrt()
        return LearnedGraph(pattern, weight * scale[pattern.row] * scale[pattern.col])

    def _neighbors(
        self, x: SparseFeatures, weight: Tensor, length: Tensor
    ) -> tuple[Pattern, Tensor]:
        """Return who is a neighbour of whom, and 1 for edges found from both ends, else 1/2."""
        words = x.scaled(1 / length, weight).to_scipy()
        similarity = torch.from_numpy((words @ words.T).toarray())
        # As in the authors' code a node is one of its own nearest.
        found = similarity.topk(min(self.num_neighbors + 1, len(length)), 1, sorted=False).indices
        row = torch.arange(len(length)).repeat_interleave(found.shape[1])
        pattern = symmetric_pattern(row, found.flatten(), len(length))
        is_found = torch.zeros(pattern.num_edges)
        is_found[pattern.find(row, found.flatten())] = 1.0
        return pattern, (is_found + is_found[pattern.reverse]) / 2

    def classify(self, x: SparseFeatures, graph: LearnedGraph) -> Tensor:  # (N, out_channels)
        """Return logits of the classes."""
        first, second = self.classifier.first, self.classifier.second
        weight = dropout(graph.weight, self.edge_dropout, self.training)
        y = relu(csr_matmul(graph.pattern, weight, x @ first.weight.mT + first.bias))
        y = second(dropout(y, 0.5, self.training))
        return csr_matmul(graph.pattern, weight, y)

    def denoising_loss(self, x: SparseFeatures, graph: LearnedGraph) -> Tensor:  # ()
        """Take a tenth of the words away, and return the loss of telling them from others.

        Five absent words are asked about for each that was taken away.
        """
        noisy, asked = corrupted(x)
        first, second = self.denoiser.first, self.denoiser.second
        weight = dropout(graph.weight, self.denoiser_edge_dropout, self.training)
        y = relu(csr_matmul(graph.pattern, weight, noisy @ first.weight.mT + first.bias))
        y = dropout(y, 0.5, self.training)
        # A (Y W + b) = (A Y) W + (A 1) b, of which only the pairs that are asked about are needed.
        smoothed = csr_matmul(graph.pattern, weight, torch.cat([y, torch.ones(len(y), 1)], 1))
        parameters = torch.cat([second.weight, second.bias.unsqueeze(1)], 1)
        logits: Tensor = _PairDots.apply(asked, smoothed, parameters)  # type: ignore[no-untyped-call]
        return binary_cross_entropy_with_logits(logits, (asked.value > 0).to(logits.dtype))


class _TwoLayers(nn.Module):
    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int) -> None:
        super().__init__()
        self.first = nn.Linear(in_channels, hidden_channels)
        self.second = nn.Linear(hidden_channels, out_channels)


class _PairDots(torch.autograd.Function):
    """Dot products of rows of two matrices, for the entries of a sparse matrix alone."""

    @staticmethod
    def forward(ctx: FunctionCtx, places: SparseFeatures, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.places = places  # type: ignore[attr-defined]
        zeros = torch.zeros_like(places.value)
        matrix = torch.sparse_csr_tensor(places.crow, places.col, zeros, places.shape)
        dots: Tensor = torch.sparse.sampled_addmm(matrix, a, b.mT).values()
        return dots

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[None, Tensor, Tensor]:
        a, b = ctx.saved_tensors  # type: ignore[attr-defined]
        matrix = replace(ctx.places, value=grad)  # type: ignore[attr-defined]
        return None, matrix @ b, matrix.mT @ a


def corrupted(
    x: SparseFeatures, share: float = 0.1, num_absent: float = 5
) -> tuple[SparseFeatures, SparseFeatures]:
    """Take words away, and return those that are left, and pairs of nodes and words to tell apart.

    Args:
        x: words, 0 or 1.
        share: share of the words that is taken away.
        num_absent: absent words for each that is taken away, drawn uniformly.

    Returns:
        The words that are left, and entries that are positive for words taken away and negative
        for absent ones.
    """
    num_nodes, num_words = x.shape
    is_taken = torch.rand(len(x.col)) < share
    words = torch.repeat_interleave(x.crow.diff()) * num_words + x.col  # ascending
    # The authors draw for each absent word by itself; here their expected number is drawn.
    number = round(share * num_absent * len(words))
    drawn = torch.randint(num_nodes * num_words, (number,))
    absent = drawn[words[torch.searchsorted(words, drawn).clamp(max=len(words) - 1)] != drawn]
    pairs = torch.cat([words[is_taken], absent])
    sign = torch.ones(len(pairs))
    sign[int(is_taken.sum()) :] = -1.0
    places = pairs.div(num_words, rounding_mode="floor").numpy(), (pairs % num_words).numpy()
    asked = scipy.sparse.coo_array((sign.numpy(), places), shape=(num_nodes, num_words))
    return replace(x, value=x.value * ~is_taken), SparseFeatures.from_scipy(asked)
