"""Joint learning of graph, features and classes without gradient steps: each has a closed form."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from jlgcn._memory import check_memory
from jlgcn._validation import check_finite, check_labels, check_real, check_shape
from jlgcn.closed_form.candidates import Candidates, Features, GraphChoice
from jlgcn.closed_form.heads import fit_ridge, is_better
from jlgcn.closed_form.inputs import Inputs, inputs_of
from jlgcn.closed_form.model import ClosedFormLayer, ClosedFormModel, ClosedFormOptions
from jlgcn.closed_form.nystroem import MAX_LANDMARKS, Landmarks
from jlgcn.graphs import SparseGraph, personalized_pagerank
from jlgcn.ops import SparseFeatures, principal_directions

T = TypeVar("T")

# What labels choose among, in this order; the first of each is used until then.
_RESTARTS = (0.01, 0.05, 0.2, 0.8)
_NUM_NEIGHBORS = (20, 5, 10, 40)
_GIVEN_DECAYS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
_LEARNED_DEGREES = (1.0, 0.5, 2.0, 4.0)
_LEARNED_DEGREE_ALONE = 7.0
_INPUTS: tuple[Inputs, ...] = ("leveled", "unit", "unit with own", "unit with own and neighbors")
_KERNEL_DECAYS = (0.0, 0.25, 1.0, 4.0)
_NUM_COMPONENTS_TO_CHOOSE_BY = 256

# Features that are spread at a time. So few of them, of so many nodes, stay in a processor's cache:
# all at once take more than twice as long, and three times the memory.
_NUM_SPREAD_AT_A_TIME = 64


@torch.no_grad()
def fit_closed_form(
    x: Features,  # (N, in_channels)
    graph: SparseGraph | None,
    y: Tensor,  # (N,), int64
    train: Tensor,  # (M,), int64
    val: Tensor | None = None,  # (V,), int64
    *,
    options: ClosedFormOptions | None = None,
) -> ClosedFormModel:
    r"""Learn metric, graph and classes in turn, each exactly.

    Every layer learns a graph with the paper's kernel,

    .. math:: a_{ij} = \exp(-\|f_i - f_j\|^2 / u - \|R^\top (f_i - f_j)\|^2)

    a low-rank Mahalanobis metric beside a Euclidean one, on each node's nearest candidates; adds it
    to the given graph, normalises, and convolves features with all powers of the sum at once
    (:func:`jlgcn.graphs.personalized_pagerank`). Then

    1. *classes*: a ridge regression on the spread features, or on kernels of them, whose penalty
       makes labels most likely that it has not seen;
    2. *metric*: R of the next layer is the ridge regression of these classes' probabilities on the
       features of all nodes. Directions that tell classes apart grow.

    Nothing is trained by steps, and nothing is random but the controls.

    Args:
        x: features, scaled (:class:`jlgcn.closed_form.FeatureScaler`).
        graph: the given graph, or None.
        y: classes; only those of `train` and `val` are looked at.
        train: nodes whose classes are learned from.
        val: nodes whose classes choose penalties and what `options` leaves open; None for the
            training nodes, each left out in turn.
        options: how to learn.

    Cost: one search for `num_candidates` neighbours; then for each layer, and for each value that
    is tried, one :func:`jlgcn.graphs.personalized_pagerank` of `num_components` columns over a
    graph of about 2·N·num_neighbors entries. Memory N·(2·num_candidates + 8·num_components + 1024).

    Example:
        >>> x = torch.cat([torch.linspace(0, 1, 30), torch.linspace(5, 6, 30)]).unsqueeze(-1)
        >>> y = torch.tensor([0] * 30 + [1] * 30)
        >>> model = fit_closed_form(x, None, y, train=torch.tensor([3, 33]))
        >>> bool((model.logits.argmax(-1) == y).all())
        True
    """
    options = ClosedFormOptions() if options is None else options
    _check(x, y, train, val, options)
    if graph is None and options.inputs == "unit with own and neighbors":
        raise ValueError(f"inputs {options.inputs!r} ask for a graph; pass one, or inputs=None")
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
                metric = problem.scaled_metric(torch.randn_like(metric))
        walked = problem.walk(metric, choice)
        solved = problem.classify(walked, choice)
        loss = float(solved.losses.mean())
        layers.append(ClosedFormLayer(metric, walked.learned, solved.logits, loss))
    return ClosedFormModel(
        options=options,
        choice=choice,
        candidates=candidates,
        layers=tuple(layers),
        graph=walked.total,
        learned_scale=walked.scale,
        projection=projection,
        spread=walked.spread,
        landmarks=solved.landmarks,
        weight=solved.weight,
        bias=solved.bias,
        train=train,
        labels=y[train],
    )


class _Walked(NamedTuple):
    """What a metric comes to: a graph, and features spread over it."""

    learned: SparseGraph
    scale: float
    total: SparseGraph
    spread: Tensor


class _Solved(NamedTuple):
    """A classifier of spread features, and what it says."""

    landmarks: Landmarks | None
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
        """Return what the options say, and what labels prefer where they say nothing.

        Graphs are compared by the first directions of the features alone, which tell as much of
        them in a fraction of the time; then classifiers, by all, on the graph that was chosen.
        """
        options = self.options
        is_alone = self.candidates.given is None
        degrees = (_LEARNED_DEGREE_ALONE,) if is_alone else _LEARNED_DEGREES
        of_graph: dict[str, tuple[Any, ...]] = {
            "restart": _open(options.restart, _RESTARTS),
            "num_neighbors": _open(options.num_neighbors, _NUM_NEIGHBORS),
            "given_decay": _open(options.given_decay, (0.0,) if is_alone else _GIVEN_DECAYS),
            "learned_degree": _open(options.learned_degree, degrees),
        }
        kinds = _open(options.inputs, _INPUTS[:3] if is_alone else _INPUTS)
        decays = _open(options.kernel_decay, _KERNEL_DECAYS)
        classifiers = [
            {"inputs": kind, "kernel_decay": decay} for kind in kinds for decay in decays
        ]
        graphs = [{name: value} for name, values in of_graph.items() for value in values[1:]]
        first = {name: values[0] for name, values in of_graph.items()}
        few = replace(
            self,
            projection=self.projection[:, :_NUM_COMPONENTS_TO_CHOOSE_BY],
            features=self.features[:, :_NUM_COMPONENTS_TO_CHOOSE_BY],
        )
        choice = few.prefer(GraphChoice(**first, inputs=kinds[0], kernel_decay=decays[0]), graphs)
        return self.prefer(choice, classifiers[1:])

    def prefer(self, choice: GraphChoice, changes: list[dict[str, Any]]) -> GraphChoice:
        """Return a choice after all changes, one after another, that make labels more likely."""
        if not changes:
            return choice
        metric = self.projection.new_zeros(self.projection.shape[0], self.num_classes)
        left_out = self.y[self.train] if self.val is None else None
        walked = self.walk(metric, choice)
        best = self.classify(walked, choice).losses
        for change in changes:
            tried = replace(choice, **change)
            new = walked if "inputs" in change else self.walk(metric, tried)
            losses = self.classify(new, tried).losses
            if is_better(losses, best, left_out):
                best, choice, walked = losses, tried, new
        return choice

    def walk(self, metric: Tensor, choice: GraphChoice) -> _Walked:
        """Return the graph under a metric, and the features spread over it."""
        order = None
        if self.options.control == "shuffled graph":
            order = torch.randperm(self.features.shape[0])
        joined = self.candidates.join(metric, choice, order)
        graph, tolerance = joined.total.normalized(), self.options.tolerance
        spread = [
            personalized_pagerank(graph, features.contiguous(), choice.restart, tolerance=tolerance)
            for features in self.features.split(_NUM_SPREAD_AT_A_TIME, dim=-1)
        ]
        return _Walked(*joined, torch.cat(spread, -1))

    def classify(self, walked: _Walked, choice: GraphChoice) -> _Solved:
        """Return a classifier of features that were spread."""
        inputs = inputs_of(
            choice.inputs, walked.spread, walked.total.degree(), self.features, self.neighbors
        )
        landmarks = None
        if choice.kernel_decay > 0:
            landmarks = Landmarks.place(inputs, self.train, choice.kernel_decay)
            inputs = landmarks(inputs)
        weight, bias, losses = fit_ridge(inputs, self.y, self.train, self.val, self.num_classes)
        return _Solved(landmarks, weight, bias, inputs @ weight + bias, losses)

    @cached_property
    def neighbors(self) -> Tensor | None:
        """Features added up over given edges, (N, num_components)."""
        given = self.candidates.given
        return None if given is None else given.matmul(self.features)

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
        metric = metric * self.scale_of(self.features.double() @ metric)
        return self.projection @ metric.to(self.projection.dtype)

    def scaled_metric(self, metric: Tensor) -> Tensor:  # (in_channels, rank)
        """Return a metric scaled to the variance that a learned one has.

        Metrics of equal norm are no fair control: a learned one lies along the few directions in
        which features vary most, a random one along all, and so adds a fraction of its variance.
        """
        return metric * self.scale_of((self.candidates.x @ metric).double()).to(metric.dtype)

    def scale_of(self, z: Tensor) -> Tensor:  # ()
        """Return the factor that gives projected features z (N, rank) variance `metric_weight`."""
        variance = (z - z.mean(0)).square().sum(-1).mean().clamp(min=1e-30)
        return (self.options.metric_weight / variance).sqrt()


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
    num_numbers = 8 * num_components + 2 * MAX_LANDMARKS
    per_node = 12 * 2 * options.num_candidates + num_numbers * x.dtype.itemsize
    # What `principal_directions` takes at its peak: with few rows, its answer and the features in
    # float64; else its basis, with copies of it in float64 (26 bytes were measured).
    is_few_rows = num_nodes < min(options.num_components, num_features)
    per_entry = x.dtype.itemsize + 8 if is_few_rows else 26
    needed = num_nodes * per_node + num_features * num_components * per_entry
    check_memory(
        needed, x.device, f"{num_nodes:,} nodes of {num_features:,} features", "num_components=64"
    )


def _open(value: T | None, choices: tuple[T, ...]) -> tuple[T, ...]:
    """Return what is to be tried: a value that is set, or the choices."""
    return choices if value is None else (value,)
