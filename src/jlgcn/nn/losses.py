"""The graph Laplacian regularizer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from jlgcn.graphs import Graph
from jlgcn.nn.features import Features
from jlgcn.nn.options import JLGCNOptions
from jlgcn.ops.precision import compute_dtype


def laplacian_regularizer(
    graph: Graph,
    f: Features,  # (*batch, N, C)
    *,
    normalized: bool,
    probes: int | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:  # (*batch,)
    r"""Return the graph Laplacian regularizer (Dirichlet energy) of features, equation 1.

    .. math::
        \tfrac{1}{2} \sum_{ij} a_{ij} \|f_i - f_j\|^2 = \mathrm{tr}(F^\top (D - A) F)
        \qquad \text{or} \qquad \mathrm{tr}(F^\top (I - A) F)

    Args:
        graph (Graph): the graph A, (\*batch, N, N).
        f (Tensor or SparseFeatures): the features F, (\*batch, N, C). Sparse ones need probes.
        normalized (bool): False for the combinatorial Laplacian D - A, for a learned kernel (text
            of the paper); True for I - A, for a normalised graph (code of its authors).
        probes (int ≥ 1 or None, default None): Hutchinson's trace estimator with this many
            Rademacher vectors, drawn at each call; value and gradient are unbiased. For wide
            features, whose product would dominate a training step. None is exact.
        generator (torch.Generator or None, default None): source of the vectors, on the device of
            f; None for the default generator.

    Shapes: returns (\*batch,).

    Precision: the first form as :meth:`jlgcn.Graph.dirichlet`, which does not cancel when clusters
    tighten. The second has an absolute error of eps·‖F‖², in the precision of F and A; unless F is
    already smooth, the value itself is of the order of ‖F‖².

    Cost: one product with min(C, probes) columns.

    Example:
        >>> from jlgcn import DenseGraph
        >>> graph = DenseGraph(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
        >>> laplacian_regularizer(graph, torch.tensor([[0.0], [3.0]]), normalized=False)
        tensor(9.)
    """
    if probes is not None and probes < f.shape[-1]:
        f = probe_features(f, probes, generator)
    elif not isinstance(f, Tensor):
        if probes is None:
            raise ValueError(
                f"the exact regularizer needs dense features, but these are {f}; set probes "
                "(glr_probes of TrainConfig), for example to 16, or pass a dense tensor"
            )
        f = f @ torch.eye(f.shape[-1], dtype=f.dtype, device=f.device)
    if not normalized:
        return graph.dirichlet(f) / 2
    return smoothness(f, torch.matmul(graph, f))  # type: ignore[arg-type]  # @ does not compile


def probe_features(
    f: Features,  # (*batch, N, C)
    probes: int,
    generator: torch.Generator | None = None,
) -> Tensor:  # (*batch, N, probes)
    """Return the products of features and Rademacher vectors, divided by √probes.

    Args:
        f: features.
        probes: number of vectors.
        generator: their source.
    """
    # Of all vectors with independent entries of unit variance, Rademacher has least variance.
    signs = torch.randint(0, 2, (f.shape[-1], probes), generator=generator, device=f.device)
    projected: Tensor = f @ ((2 * signs - 1).to(f.dtype) / probes**0.5)
    return projected


def smoothness(
    f: Tensor,  # (*batch, N, C)
    smoothed: Tensor,  # (*batch, N, C)
) -> Tensor:  # (*batch,)
    """Return tr(Fᵀ (F - A F)) from F and A F, summed in float64."""
    energy = (f * (f - smoothed)).sum((-2, -1), dtype=torch.float64)
    return energy.to(f.dtype)


def network_regularizer(
    options: JLGCNOptions,
    x: Features,  # (*batch, N, in_channels)
    features: Sequence[Features],
    learned: list[Graph],
    graphs: list[Graph],
    *,
    probes: int | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:  # (*batch,)
    """Return the sum of the regularizers of all layers with a learned graph.

    Args:
        options: which Laplacian, of which features.
        x: input of the network.
        features: input of every layer, as its graph learner saw it.
        learned: learned kernel A* of the first layers.
        graphs: graph that every layer convolved with.
        probes: number of Hutchinson probes; None for the exact value.
        generator: their source.
    """
    terms = [
        laplacian_regularizer(
            graph if options.glr_normalized else kernel,
            x if options.glr_on == "input" else _in_full_precision(seen),
            normalized=options.glr_normalized,
            probes=probes,
            generator=generator,
        )
        for kernel, graph, seen in zip(learned, graphs, features, strict=False)
    ]
    return torch.stack(terms).sum(0)


def _in_full_precision(x: Features) -> Features:
    """Return hidden features of bfloat16 in float32; sparse ones are the network's input."""
    return x.to(compute_dtype(x)) if isinstance(x, Tensor) else x
