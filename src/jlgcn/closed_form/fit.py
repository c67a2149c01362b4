"""The closed form: metric, graph and classifier learned in turn, each by linear algebra."""

from __future__ import annotations

import torch
from torch import Tensor

from jlgcn._memory import check_memory
from jlgcn._validation import check_finite, check_labels, check_real, check_shape
from jlgcn.closed_form.layer import Problem
from jlgcn.closed_form.model import ClosedFormLayer, ClosedFormModel
from jlgcn.closed_form.nystroem import MAX_LANDMARKS
from jlgcn.closed_form.options import ClosedFormOptions, check_options
from jlgcn.closed_form.selection import select_options
from jlgcn.graphs import SparseGraph
from jlgcn.graphs.candidates import Candidates, Features
from jlgcn.ops import SparseFeatures
from jlgcn.ops.svd import principal_directions


@torch.no_grad()
def fit_closed_form(
    x: Features,  # (N, in_channels)
    y: Tensor,  # (N,), int64
    graph: SparseGraph | None = None,
    *,
    train: Tensor,  # (M,), int64
    val: Tensor | None = None,  # (V,), int64
    options: ClosedFormOptions | None = None,
) -> ClosedFormModel:
    r"""Learn a metric, a graph and a node classifier by alternating closed-form steps.

    A solver of the same idea as the network of `Tang et al. <https://arxiv.org/abs/1909.04931>`_,
    without its weights W_l, non-linearity, Laplacian regularizer and joint loss. Every layer builds
    a kNN graph with the paper's Gaussian kernel under a low-rank Mahalanobis metric plus a
    Euclidean one,

    .. math:: a_{ij} = \exp(-\|f_i - f_j\|^2 / u - \|R^\top (f_i - f_j)\|^2)

    adds it to the given graph, and diffuses features over the normalised sum by personalized
    PageRank (:func:`jlgcn.graphs.personalized_pagerank`). Then

    1. *head*: ridge regression, linear or on a Nyström kernel, classifies the diffused features;
       validation or leave-one-out log-loss selects penalty and temperature;
    2. *metric*: R of the next layer is the ridge regression of the predicted class probabilities on
       the features of all nodes (self-training). R is 0 in the first layer.

    Deterministic, except for the controls.

    Args:
        x: features, scaled (:class:`jlgcn.closed_form.FeatureScaler`). Everything is computed on
            their device, where the other arguments must be, too.
        y: classes; only those of `train` and `val` are read.
        graph: the given graph, or None.
        train: labelled nodes.
        val: validation nodes, which select hyperparameters; None for leave-one-out on `train`.
        options: hyperparameters; None for the defaults.

    Cost: one search for `n_candidates` neighbours; then, for each layer and for each candidate
    value in selection, one diffusion of `n_components` columns over about 2·N·n_neighbors edges.
    Memory N·(2·n_candidates + 8·n_components + 1024).

    Example:
        >>> x = torch.cat([torch.linspace(0, 1, 30), torch.linspace(5, 6, 30)]).unsqueeze(-1)
        >>> y = torch.tensor([0] * 30 + [1] * 30)
        >>> model = fit_closed_form(x, y, train=torch.tensor([3, 33]))
        >>> bool((model.logits.argmax(-1) == y).all())
        True
    """
    options = ClosedFormOptions() if options is None else options
    check_options(options)
    _check(x, y, train, val, options)
    if graph is None and options.inputs == "unit+own+neighbors":
        raise ValueError(f"inputs={options.inputs!r} needs a graph; pass one, or inputs=None")
    candidates = Candidates.find(x, options.n_candidates, graph)
    projection = principal_directions(x, options.n_components, options.component_power)
    known = train if val is None else torch.cat([train, val])
    num_classes = int(y[known].max()) + 1
    problem = Problem(candidates, projection, x @ projection, y, train, val, num_classes)
    selected = select_options(problem, options)
    metric = problem.no_metric()
    layers: list[ClosedFormLayer] = []
    for index in range(options.n_layers):
        if index > 0:
            metric = problem.learn_metric(layers[-1].logits, selected)
        diffused = problem.diffuse(metric, selected)
        head = problem.classify(diffused, selected)
        loss = float(head.losses.mean())
        layers.append(ClosedFormLayer(metric, diffused.learned, head.logits, loss))
    return ClosedFormModel(
        options=selected,
        candidates=candidates,
        layers=tuple(layers),
        graph=diffused.total,
        learned_scale=diffused.scale,
        projection=projection,
        diffused=diffused.features,
        landmarks=head.landmarks,
        weight=head.weight,
        bias=head.bias,
        train=train,
        labels=y[train],
    )


def _check(
    x: Features, y: Tensor, train: Tensor, val: Tensor | None, options: ClosedFormOptions
) -> None:
    check_shape(x.shape, "x")
    check_real(x.dtype, "x")
    check_finite(x.value if isinstance(x, SparseFeatures) else x)
    num_nodes, num_features = x.shape
    check_labels(y, train, num_nodes)
    if val is not None:
        check_labels(y, val, num_nodes, name="val")
    num_components = min(options.n_components, num_nodes, num_features)
    num_numbers = 8 * num_components + 2 * MAX_LANDMARKS
    per_node = 12 * 2 * options.n_candidates + num_numbers * x.dtype.itemsize
    # What `principal_directions` takes at its peak: with few rows, its answer and the features in
    # float64; else its basis, with copies of it in float64 (26 bytes were measured).
    is_few_rows = num_nodes < min(options.n_components, num_features)
    per_entry = x.dtype.itemsize + 8 if is_few_rows else 26
    needed = num_nodes * per_node + num_features * num_components * per_entry
    check_memory(
        needed, x.device, f"{num_nodes:,} nodes of {num_features:,} features", "n_components=64"
    )
