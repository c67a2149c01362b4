"""Joint learning of graph, features and classes without gradient steps: each has a closed form."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from jlgcn._checks import check_finite, check_labels, check_memory, check_real, check_shape
from jlgcn.graphs import SparseGraph, diffuse
from jlgcn.nn.candidates import Candidates, Features, GraphChoice
from jlgcn.nn.closed_form_model import (
    ClosedFormJLGCN,
    ClosedFormLayer,
    ClosedFormOptions,
    leveled,
)
from jlgcn.nn.ridge import fit_ridge, is_better
from jlgcn.ops import SparseFeatures, principal_directions

T = TypeVar("T")

# What labels choose among, in this order; the first of each is used until then.
_RESTARTS = (0.01, 0.05, 0.2, 0.8)
_NUM_NEIGHBORS = (20, 5, 10, 40)
_GIVEN_DECAYS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
_LEARNED_DEGREES = (1.0, 0.5, 2.0, 4.0)
_LEARNED_DEGREE_ALONE = 7.0


@torch.no_grad()
def fit_closed_form(
    x: Features,  # (N, in_channels)
    graph: SparseGraph | None,
    y: Tensor,  # (N,), int64
    train: Tensor,  # (M,), int64
    val: Tensor | None = None,  # (V,), int64
    *,
    options: ClosedFormOptions | None = None,
) -> ClosedFormJLGCN:
    r"""Learn metric, graph and classes in turn, each exactly.

    Every layer learns a graph with the paper's kernel,

    .. math:: a_{ij} = \exp(-\|f_i - f_j\|^2 / u - \|R^\top (f_i - f_j)\|^2)

    a low-rank Mahalanobis metric beside a Euclidean one, on each node's nearest candidates; adds it
    to the given graph, normalises, and convolves features with all powers of the sum at once
    (:func:`jlgcn.graphs.diffuse`). Then

    1. *classes*: a ridge regression on the spread features, whose penalty makes labels most likely
       that it has not seen;
    2. *metric*: R of the next layer is the ridge regression of these classes' probabilities on the
       features of all nodes. Directions that tell classes apart grow.

    Nothing is trained by steps, and nothing is random but the controls.

    Args:
        x: features, scaled (:class:`jlgcn.data.FeatureScaler`).
        graph: the given graph, or None.
        y: classes; only those of `train` and `val` are looked at.
        train: nodes whose classes are learned from.
        val: nodes whose classes choose penalties and what `options` leaves open; None for the
            training nodes, each left out in turn.
        options: how to learn.

    Cost: one search for `num_candidates` neighbours; then for each layer, and for each value that
    is tried, :func:`jlgcn.graphs.num_steps` products of `num_components` columns with a graph of
    about 2·N·num_neighbors entries. Memory N·(2·num_candidates + 4·num_components).

    Example:
        >>> x = torch.cat([torch.linspace(0, 1, 30), torch.linspace(5, 6, 30)]).unsqueeze(-1)
        >>> y = torch.tensor([0] * 30 + [1] * 30)
        >>> model = fit_closed_form(x, None, y, train=torch.tensor([3, 33]))
        >>> bool((model.logits.argmax(-1) == y).all())
        True
    """
    options = ClosedFormOptions() if options is None else options
    _check(x, y, train, val, options)
    candidates = Candidates.find(x, options.num_candidates, graph)
    projection = principal_directions(x, options.num_components, options.component_power)
    known = train if val is None else torch.cat([train, val])
    num_classes = int(y[known].max()) + 1
    problem = _Problem(candidates, projection, x @ projection, y, train, val, num_classes, options)
    choice = problem.choose()
    metric = projection.new_zeros(x.shape[1], num_classes)
    layers: list[ClosedFormLayer] = []
    for index in range(options.num_layers):
        if index > 0:
            metric = problem.learn_metric(layers[-1].logits)
            if options.control == "random metric":
                other = torch.randn_like(metric)
                metric = other * (metric.norm() / other.norm())
        solved = problem.solve(metric, choice)
        loss = float(solved.losses.mean())
        layers.append(ClosedFormLayer(metric, solved.learned, solved.logits, loss))
    return ClosedFormJLGCN(
        options=options,
        choice=choice,
        candidates=candidates,
        layers=tuple(layers),
        graph=solved.graph,
        learned_scale=solved.learned_scale,
        projection=projection,
        spread=solved.spread,
        weight=solved.weight,
        bias=solved.bias,
        train=train,
        labels=y[train],
    )


class _Solved(NamedTuple):
    """What a metric comes to: a graph, features spread over it, a classifier of these."""

    learned: SparseGraph
    learned_scale: float
    graph: SparseGraph
    spread: Tensor
    weight: Tensor
    bias: Tensor
    logits: Tensor
    losses: Tensor


@dataclass(frozen=True, eq=False)
class _Problem:
    """What all layers share; attributes as in :func:`fit_closed_form`.

    Attributes:
        candidates: pairs that may be joined.
        projection: from features to what is spread.
        features: what is spread, (N, num_components).
        y: classes.
        train: nodes to learn from.
        val: nodes to choose by.
        num_classes: number of classes.
        options: how to learn.
    """

    candidates: Candidates
    projection: Tensor
    features: Tensor
    y: Tensor
    train: Tensor
    val: Tensor | None
    num_classes: int
    options: ClosedFormOptions

    def choose(self) -> GraphChoice:
        """Return what the options say, and what labels prefer where they say nothing."""
        options = self.options
        is_alone = self.candidates.given is None
        neighbors = _open(options.num_neighbors, _NUM_NEIGHBORS)
        decays = _open(options.given_decay, (0.0,) if is_alone else _GIVEN_DECAYS)
        degrees = _open(
            options.learned_degree, (_LEARNED_DEGREE_ALONE,) if is_alone else _LEARNED_DEGREES
        )
        restarts = _open(options.restart, _RESTARTS)
        choice = GraphChoice(neighbors[0], degrees[0], decays[0], restarts[0])
        tries: list[tuple[str, float]] = [("restart", value) for value in restarts[1:]]
        tries += [("num_neighbors", value) for value in neighbors[1:]]
        tries += [("given_decay", value) for value in decays[1:]]
        tries += [("learned_degree", value) for value in degrees[1:]]
        if not tries:
            return choice
        metric = self.projection.new_zeros(self.projection.shape[0], self.num_classes)
        left_out = self.y[self.train] if self.val is None else None
        best = self.solve(metric, choice).losses
        for name, value in tries:
            tried = replace(choice, **{name: value})  # type: ignore[arg-type]
            losses = self.solve(metric, tried).losses
            if is_better(losses, best, left_out):
                best, choice = losses, tried
        return choice

    def solve(self, metric: Tensor, choice: GraphChoice) -> _Solved:
        """Return the graph under a metric, and all that follows from it."""
        options = self.options
        order = None
        if options.control == "shuffled graph":
            order = torch.randperm(self.features.shape[0])
        learned, scale, graph = self.candidates.join(metric, choice, order)
        spread = diffuse(
            graph.normalized(), self.features, choice.restart, tolerance=options.tolerance
        )
        inputs = leveled(spread, graph.degree())
        weight, bias, losses = fit_ridge(inputs, self.y, self.train, self.val, self.num_classes)
        logits = inputs @ weight + bias
        return _Solved(learned, scale, graph, spread, weight, bias, logits, losses)

    def learn_metric(self, logits: Tensor) -> Tensor:  # (in_channels, num_classes)
        """Return the regression of the classes' probabilities on the features of all nodes."""
        beliefs = logits.softmax(-1)
        labels = functional.one_hot(self.y[self.train], self.num_classes)
        beliefs[self.train] = labels.to(beliefs.dtype)
        moment = (self.features.mT @ self.features).double()
        # Penalised by a share of the mean variance, so that the features' unit does not matter.
        moment.diagonal().add_(0.1 * moment.diagonal().mean().clamp(min=1e-30))
        centred = (beliefs - beliefs.mean(0)).double()
        metric: Tensor = torch.linalg.solve(moment, self.features.mT.double() @ centred)
        z = self.features.double() @ metric
        variance = (z - z.mean(0)).square().sum(-1).mean().clamp(min=1e-30)
        metric = metric * (self.options.metric_weight / variance).sqrt()
        return self.projection @ metric.to(self.projection.dtype)


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
    num_components = min(options.num_components, num_nodes, num_features)
    per_node = 12 * 2 * options.num_candidates + 4 * num_components * x.dtype.itemsize
    needed = num_nodes * per_node + num_features * num_components * x.dtype.itemsize
    check_memory(
        needed, x.device, f"{num_nodes:,} nodes of {num_features:,} features", "num_components=64"
    )


def _open(value: T | None, choices: tuple[T, ...]) -> tuple[T, ...]:
    """Return what is to be tried: a value that is set, or the choices."""
    return choices if value is None else (value,)
