"""A network of whole graphs on a batch of sampled nodes: the same parameters, the same formula."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from jlgcn.nn import JLGCN, JLGCNOptions
from jlgcn.nn.conv import JLGCNConv
from jlgcn.ops.dropout import dropout


class BatchOutput(NamedTuple):
    """What the network makes of a batch.

    Attributes:
        logits: scores of the nodes asked for, (batch_size, out_channels).
        energy: for each of them, Σ_l ½ Σ_j a_ij ‖f_i - f_j‖², a node's part of the regularizer in
            the paper's text, (batch_size,); None unless it was asked for.
        degrees: degrees of every layer as the sample estimates them, of the nodes whose neighbours
            were drawn, (M_l,).
    """

    logits: Tensor
    energy: Tensor | None
    degrees: list[Tensor]


def check_options(options: JLGCNOptions) -> None:
    """Raise unless degrees of the sums of graphs are all that batches need to know."""
    if options.normalize_learned:
        raise ValueError(
            "mini-batches normalise the sum of graphs once, but options has "
            'normalize_learned=True; pass options="paper", or a JLGCNOptions without it'
        )


def forward_batch(
    model: JLGCN,
    batch: Any,  # noqa: ANN401
    given: Tensor | None = None,  # (E,)
    *,
    with_energy: bool = False,
) -> BatchOutput:
    r"""Run a network on a batch of sampled nodes.

    All layers share the places that were sampled, so the graph of a layer is one weight for each:

    .. math::
        b_l = c_i c_j (b_{l-1} + \exp(-\|z_i - z_j\|^2)), \qquad c = \deg^{-1/2}

    An entry stands for d / f of its row's, where f of d were drawn. Degrees are sums over the
    sample, gradients included, where the neighbours of a node were drawn. For nodes at the rim they
    are those of the whole graph as the table has them, times the mean ratio of the two elsewhere,
    because the metric has moved since.

    Args:
        model: the network.
        batch: `Data` of a loader: ``x``, ``edge_index``, ``num_neighbors``, ``degree``,
            ``batch_size``, ``num_sampled_nodes`` and ``num_sampled_edges``. It may come from any
            sampler of PyTorch Geometric that draws neighbours with equal probability.
        given: weights of known edges at the places sampled; None for none.
        with_energy: whether the regularizer is wanted, too.

    Shapes:
        - as many hops as the network has layers

    Cost: E·(rank + channels) of the sampled entries for each layer; no row is computed that the
    nodes asked for do not need.

    Example:
        >>> import tempfile
        >>> from jlgcn.scale import planted_table, table_loader
        >>> packed, table = planted_table(tempfile.mkdtemp(), 50)
        >>> batch = next(iter(table_loader(packed, table, torch.arange(8), [3, 3])))
        >>> forward_batch(JLGCN(8, 16, 3, options="paper"), batch).logits.shape
        torch.Size([8, 3])
    """
    check_options(model.options)
    nodes = list(itertools.accumulate(batch.num_sampled_nodes))
    entries = list(itertools.accumulate(batch.num_sampled_edges))
    num_layers = len(model.convs)
    if len(entries) != num_layers:
        raise ValueError(
            f"the network has {num_layers} layers, but the batch has {len(entries)} hops; pass "
            f"{num_layers} fanouts"
        )
    src, dst = batch.edge_index
    drawn = torch.bincount(dst, minlength=nodes[-2])[: nodes[-2]]
    x = batch.x.to(next(model.parameters()).dtype)
    share = (batch.num_neighbors[: nodes[-2]] / drawn.clamp(min=1)).to(x.dtype)[dst]
    weight = torch.zeros_like(share) if given is None else given.to(x.dtype)
    loop = x.new_zeros(len(x))
    energy = x.new_zeros(int(batch.batch_size)) if with_energy else None
    degrees = []
    for index, conv in enumerate(model.convs):
        assert isinstance(conv, JLGCNConv)
        num_rows, num_entries = nodes[num_layers - 1 - index], entries[num_layers - 1 - index]
        src, dst, share = src[:num_entries], dst[:num_entries], share[:num_entries]
        weight = weight[:num_entries]
        if index > 0:
            x = functional.leaky_relu(x, model.negative_slope)
        rate = model.dropout if index > 0 else model.input_dropout
        dropped = dropout(x, rate, model.training)
        if conv.learns:
            seen = dropped if model.options.graph_after_dropout else x
            z = conv.learner.project(seen)
            learned = (-(z[src] - z[dst]).square().sum(-1)).exp()
            if energy is not None:
                energy = energy + _energy(seen, src, dst, share * learned, len(energy))
            weight, loop = weight + learned, loop[: len(x)] + 1
            degree = loop[:num_rows].index_add(0, dst, share * weight)
            degrees.append(degree)
            stored = _stored_degree(batch.degree[: len(x)].to(x.dtype), index, degree)
            degree = torch.cat([degree, stored[num_rows:]])
            scale = degree.clamp(min=max(model.options.min_degree, 1e-30)).rsqrt()
            weight, loop = weight * scale[src] * scale[dst], loop * scale.square()
        h = functional.linear(dropped, conv.lin.weight)
        x = loop[:num_rows].unsqueeze(-1) * h[:num_rows]
        x = x.index_add(0, dst, (share * weight).unsqueeze(-1) * h[src])
        x = x if conv.bias is None else x + conv.bias
    return BatchOutput(x, energy, degrees)


def _energy(f: Tensor, src: Tensor, dst: Tensor, weight: Tensor, num_seeds: int) -> Tensor:
    own = slice(int((dst < num_seeds).sum()))  # the first hop's entries come first
    src, dst, weight = src[own], dst[own], weight[own]
    distance = (f[src] - f[dst]).square().sum(-1)
    return f.new_zeros(num_seeds).index_add(0, dst, weight * distance / 2)


@torch.no_grad()
def _stored_degree(stored: Tensor, layer: int, live: Tensor) -> Tensor:
    """Return the table's degrees, moved by as much as those that the sample knows have moved."""
    column = stored[:, min(layer, stored.shape[1] - 1)]
    return column * (live.sum() / column[: len(live)].sum())
