"""The graph Laplacian regularizer."""

from __future__ import annotations

import torch
from torch import Tensor

from jlgcn.graphs import Graph
from jlgcn.nn.options import JLGCNOptions


def laplacian_regularizer(
    graph: Graph,
    f: Tensor,  # (*batch, N, C)
    *,
    normalized: bool,
    probes: int | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:  # (*batch,)
    r"""Return how rough the features f are on a graph, equation 1 of the paper.

    .. math::
        \tfrac{1}{2} \sum_{ij} a_{ij} \|f_i - f_j\|^2 = \mathrm{tr}(F^\top (D - A) F)
        \qquad \text{or} \qquad \mathrm{tr}(F^\top (I - A) F)

    Args:
        graph: the graph A.
        f: the features.
        normalized: if False the first, with the combinatorial Laplacian: for a learned kernel, as
            the paper's text has it. If True the second, for a graph that is normalised: the
            authors' code.
        probes: wide features cost more than everything else in a step. With a number, f is first
            projected on that many random directions, drawn anew at each call, which keeps the
            expectation of the result and of its gradient. None is exact.
        generator: where the directions are drawn from.

    Precision: the first as :meth:`jlgcn.Graph.dirichlet`, which keeps its digits when clusters
    tighten. The second in the precision of f and of the graph, with an error of eps·‖F‖²: it
    measures how far features are from those of all neighbours, weighted by degree, and for features
    that are not already smooth it is of the order of ‖F‖² itself.

    Cost: one product of min(C, probes) columns.

    Example:
        >>> from jlgcn import DenseGraph
        >>> graph = DenseGraph(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
        >>> laplacian_regularizer(graph, torch.tensor([[0.0], [3.0]]), normalized=False)
        tensor(9.)
    """
    if probes is not None and probes < f.shape[-1]:
        # Rademacher: of all directions with independent unit entries, those of least variance.
        signs = torch.randint(0, 2, (f.shape[-1], probes), generator=generator, device=f.device)
        f = f @ ((2 * signs - 1).to(f.dtype) / probes**0.5)
    if not normalized:
        return graph.dirichlet(f) / 2
    smoothed = torch.matmul(graph, f)  # type: ignore[arg-type]  # `graph @ f` does not compile
    energy = (f * (f - smoothed)).sum((-2, -1), dtype=torch.float64)
    return energy.to(f.dtype)


def network_regularizer(
    options: JLGCNOptions,
    x: Tensor,  # (*batch, N, in_channels)
    features: list[Tensor],
    learned: list[Graph],
    graphs: list[Graph],
    *,
    probes: int | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:  # (*batch,)
    """Return the regularizer of all layers that learn, as the options define it.

    Args:
        options: which Laplacian, and of which features.
        x: the network's input.
        features: input of every layer, as its graph saw it.
        learned: the kernel of every layer that learned one; layers learn from the first on.
        graphs: the graph that every layer convolved with.
        probes: random directions in place of wide features.
        generator: where they are drawn from.
    """
    terms = [
        laplacian_regularizer(
            graph if options.glr_normalized else kernel,
            x if options.glr_on == "input" else seen,
            normalized=options.glr_normalized,
            probes=probes,
            generator=generator,
        )
        for kernel, graph, seen in zip(learned, graphs, features, strict=False)
    ]
    return torch.stack(terms).sum(0)
