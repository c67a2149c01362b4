"""Features spread far over a graph: a random walk with restart, summed to its end."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from jlgcn.graphs.graph import Graph


def personalized_pagerank(
    graph: Graph,
    x: Tensor,  # (N, C)
    restart: float,
    *,
    tolerance: float = 1e-3,
) -> Tensor:  # (N, C)
    r"""Return where a random walk from every node, which often returns, finds features.

    .. math:: y = \alpha \sum_{k \ge 0} (1 - \alpha)^k A^k x = \alpha (I - (1 - \alpha) A)^{-1} x

    With a small restart α, nodes that share no neighbour, but neighbours' neighbours, become alike.
    The sum is not cut off: it is the solution of a linear system with the symmetric matrix
    I - (1 - α) A, found by Chebyshev's semi-iteration, in far fewer steps than the sum would take
    (54 in place of 688 at α = 0.01 and a tolerance of 1e-3).

    Args:
        graph: normalised, so that its eigenvalues lie between -1 and 1.
        x: features.
        restart: α, above 0 and at most 1, where y = x.
        tolerance: bound of ‖y - y*‖ / ‖y₀ - y*‖, the error against that of the start y₀ = αx, for
            a symmetric graph.

    Differentiable once in x and in the graph's tensors: the gradient solves the same system, so no
    step is kept for it.

    Cost: about ln(2 / tolerance) / √(2α) products forward, as many backward, and one more. Over a
    sparse graph on a CPU, split features wider than 64 columns: some after others take less time
    than all at once (``benchmarks/spread.py``).

    Example:
        >>> from jlgcn import SparseGraph
        >>> pair = SparseGraph(torch.tensor([[0, 1], [1, 0]])).normalized()
        >>> personalized_pagerank(pair, torch.tensor([[1.0], [0.0]]), restart=0.5, tolerance=1e-6)
        tensor([[0.6667],
                [0.3333]])
    """
    if not 0 < restart <= 1:
        raise ValueError(f"restart must be above 0 and at most 1, but it is {restart}")
    if not 0 < tolerance < 1:
        raise ValueError(f"tolerance must lie between 0 and 1, but it is {tolerance}")
    walk = 1 - restart
    fixed = graph.detach()
    with torch.no_grad():
        found = _solve(fixed, restart * x.detach(), walk, tolerance)
    if not torch.is_grad_enabled():
        return found
    # The solution satisfies y = αx + (1 - α) A y. Differentiating this one equation, with y on its
    # right held fixed, gives the right gradient if what arrives is first multiplied by the inverse.
    y = restart * x + walk * (graph @ found)
    if y.requires_grad:
        y.register_hook(lambda grad: _solve(fixed, grad, walk, tolerance))
    return y


def chebyshev_steps(restart: float, tolerance: float = 1e-3) -> int:
    """Return how many products :func:`personalized_pagerank` takes.

    Cost: none.

    Example:
        >>> chebyshev_steps(0.01), chebyshev_steps(0.1)
        (54, 17)
    """
    if restart == 1:
        return 0
    return math.ceil(math.acosh(1 / tolerance) / math.acosh(1 / (1 - restart)))


@torch.no_grad()
def _solve(graph: Graph, b: Tensor, walk: float, tolerance: float) -> Tensor:
    """Return (I - walk·A)⁻¹ b, whose matrix has its eigenvalues within 1 ± walk."""
    before, y = torch.zeros_like(b), b
    weight = 1.0
    for step in range(chebyshev_steps(1 - walk, tolerance)):
        weight = 1 / (1 - walk**2 / 2) if step == 0 else 1 / (1 - walk**2 * weight / 4)
        new = (walk * (graph @ y)).add_(b)  # a product may be y itself, so it is not written to
        y, before = new.sub_(before).mul_(weight).add_(before), y
    return y
