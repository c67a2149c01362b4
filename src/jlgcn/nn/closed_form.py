"""Joint learning of graph, features and classes without gradient steps: each has a closed form."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeVar, get_args

import torch
from torch import Tensor
from torch.nn import functional

from jlgcn.graphs import SparseGraph, diffuse
from jlgcn.nn.candidates import Candidates, Features, GraphChoice
from jlgcn.nn.explain import EdgeExplanation, NodeExplanation, mean_contributions, take_apart
from jlgcn.nn.ridge import fit_ridge, is_better
from jlgcn.nn.suggest import most_telling_rows
from jlgcn.ops import principal_directions

T = TypeVar("T")
Control = Literal["none", "random metric", "shuffled graph"]

# What labels choose among, in this order; the first of each is used until then.
_RESTARTS = (0.01, 0.05, 0.2, 0.8)
_NUM_NEIGHBORS = (20, 5, 10, 40)
_GIVEN_DECAYS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
_LEARNED_DEGREES = (1.0, 0.5, 2.0, 4.0)
_LEARNED_DEGREE_ALONE = 7.0


@dataclass(frozen=True)
class ClosedFormOptions:
    """How :func:`fit_closed_form` learns.

    Where a choice is None, labels make it: each value that comes into question is tried in the
    first layer, whose graph no label has touched, and that is taken under which the labels of the
    validation nodes are most likely; without such nodes, those of training nodes, each predicted by
    all others, if they become more likely by more than a standard error.

    Attributes:
        num_layers: graphs that are learned one after another; the first by the features alone.
        num_neighbors: heaviest candidates that a node is joined with; None for 5, 10, 20 or 40.
        learned_degree: mean degree of a learned graph, where a given edge and a node's weight with
            itself are 1; None for 0.5, 1, 2 or 4 beside a given graph, and 7 without one.
        given_decay: how fast a given edge loses weight with the learned distance of its ends. 0
            trusts all given edges alike; None for 0, 0.25, 0.5, 1, 2 or 4.
        num_candidates: nearest rows among which a learned metric may choose.
        metric_weight: γ, mean squared length of what a learned metric adds to a node.
        restart: of the random walk that spreads features, see :func:`jlgcn.graphs.diffuse`; None
            for 0.01, 0.05, 0.2 or 0.8. The larger, the more a node's own features count.
        num_components: principal directions of the features that are spread.
        component_power: see :func:`jlgcn.ops.principal_directions`; below 1, short directions count
            more than their length says.
        tolerance: of the spreading.
        control: what is done to find out what learning is worth. "random metric" replaces every R
            by a random one of the same length, "shuffled graph" gives every learned graph's places
            to other nodes.

    Example:
        >>> ClosedFormOptions(num_neighbors=10).num_neighbors
        10
    """

    num_layers: int = 3
    num_neighbors: int | None = None
    learned_degree: float | None = None
    given_decay: float | None = None
    num_candidates: int = 100
    metric_weight: float = 0.1
    restart: float | None = None
    num_components: int = 256
    component_power: float = 1.0
    tolerance: float = 1e-2
    control: Control = "none"

    def __post_init__(self) -> None:
        if self.control not in get_args(Control):
            choices = ", ".join(get_args(Control))
            raise ValueError(f"control must be one of {choices}, but it is {self.control!r}")
        for name in ("num_layers", "num_neighbors", "num_candidates", "num_components"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, but it is {value}")
        for name in ("learned_degree", "given_decay", "metric_weight"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ValueError(f"{name} must not be negative, but it is {value}")
        if self.restart is not None and not 0 < self.restart <= 1:
            raise ValueError(f"restart must be above 0 and at most 1, but it is {self.restart}")


class ClosedFormLayer(NamedTuple):
    """One learned graph and what was predicted with it.

    Attributes:
        metric: R, (in_channels, num_classes); 0 in the first layer.
        learned: the learned graph, not normalised.
        logits: scores of the classes, (N, num_classes).
        loss: cross-entropy of labels that were not learned from, see :class:`ClosedFormOptions`.
    """

    metric: Tensor
    learned: SparseGraph
    logits: Tensor
    loss: float


@dataclass(frozen=True, eq=False)
class ClosedFormJLGCN:
    """A learned metric, the graph it makes, and a classifier; see :func:`fit_closed_form`.

    Attributes:
        options: how it was learned.
        choice: what the labels chose of it.
        candidates: features, and pairs that a metric may join.
        layers: one for each learned graph.
        graph: the last learned graph, the given one and self-loops, added.
        learned_scale: what learned weights were multiplied by in this sum.
        projection: from features to what is spread, (in_channels, num_components).
        spread: features after spreading over `graph`, (N, num_components).
        weight: of the classifier, (num_components, num_classes).
        bias: of the classifier, (num_classes,).
        train: nodes that were learned from, (M,), int64.
        labels: their classes, (M,), int64.
    """

    options: ClosedFormOptions
    choice: GraphChoice
    candidates: Candidates
    layers: tuple[ClosedFormLayer, ...]
    graph: SparseGraph
    learned_scale: float
    projection: Tensor
    spread: Tensor
    weight: Tensor
    bias: Tensor
    train: Tensor
    labels: Tensor

    @property
    def logits(self) -> Tensor:
        """Scores of the classes of all nodes, (N, num_classes)."""
        return self.layers[-1].logits

    def __repr__(self) -> str:
        nodes, classes = self.logits.shape
        return f"ClosedFormJLGCN({nodes:,} nodes, {classes} classes, {len(self.layers)} layers)"

    @torch.no_grad()
    def predict(
        self,
        x: Features,  # (M, in_channels)
        edges: Tensor | None = None,  # (2, E), int64
    ) -> Tensor:  # (M, num_classes)
        r"""Return the scores of new nodes, each attached to the graph by itself.

        A new node u takes its nearest old ones under the last metric as neighbours, besides those
        that are known, and then the features that the equation of the spreading asks for, with the
        old nodes as they are:

        .. math:: h_u = \alpha x_u + (1 - \alpha) \Big(b_{uu} h_u + \sum_j b_{uj} h_j\Big)

        Args:
            x: features of the new nodes, scaled as the old ones were.
            edges: the number of the new node, from 0, and that of the old one, of each given edge.

        Cost: a search for neighbours, and M·num_neighbors·num_components FLOP; nothing grows with
        M·N.
        """
        metric = self.layers[-1].metric
        row, col, weight = self.candidates.attach(x, metric, self.choice, self.learned_scale, edges)
        degree = weight.new_ones(x.shape[0]).index_add(0, row, weight)
        weight = weight * degree[row].rsqrt() * self.graph.degree()[col].rsqrt()
        # A sparse product, because a row of features for every edge would not fit in memory.
        size = (x.shape[0], self.spread.shape[0])
        pairs = torch.stack([row, col])
        rows = torch.sparse_coo_tensor(pairs, weight, size, check_invariants=False)
        walk = 1 - self.choice.restart
        h = self.choice.restart * (x @ self.projection) + walk * (rows @ self.spread)
        h = h / (1 - walk / degree).unsqueeze(-1)
        return _leveled(h, degree) @ self.weight + self.bias

    @torch.no_grad()
    def explain_edge(
        self,
        first: Tensor,  # (in_channels,)
        second: Tensor,  # (in_channels,)
        layer: int = -1,
    ) -> EdgeExplanation:
        r"""Take the learned distance of two nodes apart, by directions and by features.

        .. math:: d^2 = \sum_k \delta_k^2 / u + \sum_c (R^\top \delta)_c^2
            = \sum_k \delta_k \, (\delta / u + R R^\top \delta)_k

        Args:
            first: scaled features of one node.
            second: those of the other.
            layer: of whose metric.

        Returns:
            An explanation whose first direction is the Euclidean distance, and the others those in
            which the classes, one after another, are told apart.

        Cost: 4·in_channels·num_classes FLOP, in float64.
        """
        metric = self.layers[layer].metric
        return take_apart(first, second, metric, 1 / self.candidates.unit)

    @torch.no_grad()
    def explain_node(self, node: int) -> NodeExplanation:
        r"""Take the scores of a node apart: itself, and each neighbour over each kind of edge.

        The spread features of node i satisfy the equation of :meth:`predict`, so that its scores
        are a sum over its neighbours j, with W the classifier:

        .. math:: \Big(\alpha x_i + (1 - \alpha) \sum_{j \ne i}
            \frac{a_{ij}}{\sqrt{d_i d_j}} h_j \Big)
            \frac{W}{\sqrt{d_i} \, (1 - (1 - \alpha) a_{ii} / d_i)} + b

        Args:
            node: which node.

        Returns:
            An exact explanation of the scores that the equation asks for. They are
            :attr:`logits` up to the tolerance of the spreading.

        Cost: the weights of all given edges, and num_components·num_classes FLOP a neighbour.
        """
        neighbors, weight = self.graph.row(node)
        is_self = neighbors == node
        degree, walk = self.graph.degree(), 1 - self.choice.restart
        # All but the node itself, on the right of the equation; what is on its left divides.
        divisor = degree[node].sqrt() * (1 - walk * weight[is_self].sum() / degree[node])
        classifier = (self.weight - self.weight.mean(-1, keepdim=True)) / divisor
        step = walk / (degree[node] * degree[neighbors]).sqrt()
        message = step.unsqueeze(-1) * (self.spread[neighbors] @ classifier)
        by_learned, by_given = torch.zeros_like(message), torch.zeros_like(message)
        ends, weight = self.layers[-1].learned.row(node)
        place = torch.searchsorted(neighbors, ends)
        by_learned[place] = (self.learned_scale * weight).unsqueeze(-1) * message[place]
        given = self.candidates.weighted_given(self.layers[-1].metric, self.choice.given_decay)
        if given is not None:
            ends, weight = given.row(node)
            place = torch.searchsorted(neighbors, ends)
            by_given[place] = weight.unsqueeze(-1) * message[place]
        start = self.choice.restart * (self.candidates.features_of(node) @ self.projection)
        bias, own = self.bias - self.bias.mean(), start @ classifier
        by_learned, by_given = by_learned[~is_self], by_given[~is_self]
        return NodeExplanation(
            scores=bias + own + by_learned.sum(0) + by_given.sum(0),
            bias=bias,
            own=own,
            neighbors=neighbors[~is_self],
            learned=by_learned,
            given=by_given,
        )

    @torch.no_grad()
    def suggest_labels(self, num: int) -> Tensor:  # (num,), int64
        """Return the nodes whose labels would tell most about all others, the best first.

        See :func:`jlgcn.nn.suggest.most_telling_rows`: a label is worth what it takes away from the
        variance of all predictions, so that it is asked for where many nodes are, and where no
        label is yet.

        Args:
            num: how many.

        Cost: num products of (N, num_components) with a square matrix.
        """
        return most_telling_rows(_leveled(self.spread, self.graph.degree()), self.train, num)

    @torch.no_grad()
    def feature_importance(self, layer: int = -1) -> Tensor:  # (in_channels,)
        r"""Return what each feature adds to the squared distance of two nodes, on average.

        The mean of :meth:`explain_edge` over all ordered pairs, with Σ the features' covariance:

        .. math:: 2\, \big((I / u + R R^\top) \Sigma\big)_{kk}

        Cost: 4·N·in_channels·num_classes FLOP; no pair is visited.
        """
        metric = self.layers[layer].metric
        return mean_contributions(self.candidates.x, metric, 1 / self.candidates.unit)


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
        leveled = _leveled(spread, graph.degree())
        weight, bias, losses = fit_ridge(leveled, self.y, self.train, self.val, self.num_classes)
        logits = leveled @ weight + bias
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


def _open(value: T | None, choices: tuple[T, ...]) -> tuple[T, ...]:
    """Return what is to be tried: a value that is set, or the choices."""
    return choices if value is None else (value,)


def _leveled(spread: Tensor, degree: Tensor) -> Tensor:
    """Return spread features without what a normalised graph adds to nodes of high degree.

    Far from their start, all walks tell the same of a node: the square root of its degree.
    """
    return spread / degree.sqrt().unsqueeze(-1)
