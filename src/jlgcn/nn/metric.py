"""The metric of a graph learner: low-rank, or Euclidean plus low-rank."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn

from jlgcn.graphs.explanation import EdgeExplanation, decompose_distance, mean_contributions
from jlgcn.nn.euclidean import near_distance, scaled_points
from jlgcn.nn.features import Features, as_features, product, project
from jlgcn.nn.health import sampled_distances
from jlgcn.nn.options import METRIC_INITS, MetricInit
from jlgcn.ops.metric import regress_metric
from jlgcn.ops.precision import no_autocast
from jlgcn.ops.svd import principal_directions

# Squared distance under the initial R of "euclidean", as a share of the Euclidean one.
_INITIAL_SHARE = 1e-4

# Principal components that R is regressed on.
_NUM_COMPONENTS = 256


class MahalanobisMetric(nn.Module):
    r"""The learned distance of :class:`jlgcn.nn.GraphLearner`, which documents its arguments.

    .. math:: d_{ij}^2 = c \|f_i - f_j\|^2 + \|R^\top (f_i - f_j)\|^2, \qquad M = R R^\top + c I

    with c = 1/u for ``metric_init="euclidean"``, and 0 otherwise. M is never formed;
    :attr:`metric` is the linear map Rᵀ.
    """

    def __init__(
        self, in_channels: int, rank: int, metric_init: MetricInit, median_distance: float
    ) -> None:
        super().__init__()
        if not 0 < median_distance < math.inf:
            raise ValueError(f"median_distance must be above 0, but it is {median_distance}; try 1")
        if metric_init not in METRIC_INITS:
            choices = ", ".join(METRIC_INITS)
            raise ValueError(f"metric_init must be one of {choices}, but it is {metric_init!r}")
        if metric_init == "identity" and rank != in_channels:
            raise ValueError(
                f"an identity metric needs rank = in_channels, but rank is {rank} and in_channels "
                f'is {in_channels}; set rank={in_channels}, or use metric_init="median"'
            )
        self.in_channels = in_channels
        self.rank = rank
        self.metric_init: MetricInit = metric_init
        self.median_distance = median_distance
        self.metric = nn.Linear(in_channels, rank, bias=False)
        # Whether the metric was calibrated: a buffer, saved with the scaled weights, and a Python
        # flag, which a forward pass reads without synchronising with the device.
        self.is_scaled: Tensor
        self.is_calibrated: bool
        self.register_buffer("is_scaled", self.metric.weight.new_ones((), dtype=torch.bool))
        #: u, the squared distance that counts as 1; only with "euclidean", so that models of other
        #: metrics keep their tensors.
        self.unit: Tensor | None
        is_euclidean = metric_init == "euclidean"
        self.register_buffer("unit", self.metric.weight.new_ones(()) if is_euclidean else None)
        #: All-gather of features, if processes share the rows; None in a single process.
        self.gather_rows: Callable[[Tensor], Tensor] | None = None

    def reset_parameters(self) -> None:
        """Reinitialise the metric; with "median" and "euclidean" it must be calibrated again."""
        if self.metric_init == "identity":
            nn.init.eye_(self.metric.weight)
        else:
            bound = self.in_channels**-0.5
            if self.metric_init == "euclidean":
                bound = (3 * _INITIAL_SHARE / self.rank) ** 0.5
            nn.init.uniform_(self.metric.weight, -bound, bound)
        if self.unit is not None:
            self.unit.fill_(1.0)
        is_calibrated = self.metric_init not in ("median", "euclidean")
        self.is_scaled.fill_(is_calibrated)
        self.is_calibrated = is_calibrated

    @torch.no_grad()
    def calibrate(
        self,
        x: Features,  # (*batch, N, in_channels)
        valid: Tensor | None = None,  # (*batch, N), bool
    ) -> Self:
        """Scale the metric of ``metric_init="median"`` or ``"euclidean"`` to features.

        Afterwards the median squared distance is `median_distance`: over evenly spaced pairs of
        rows with "median", and over the 20 nearest neighbours of a row with "euclidean". No effect
        on other metrics, or on one that is calibrated already. :meth:`jlgcn.nn.JLGCN.calibrate` and
        :func:`jlgcn.training.fit_nodes` call it for every layer.

        Args:
            x: features; of a batch, the first graph is used.
            valid: False marks padding.

        Returns:
            The learner itself.

        Cost: one projection, and ten thousand distances; with "euclidean", a search for the
        neighbours of at most 4,096 rows.
        """
        if self.is_calibrated:
            return self
        x = as_features(x, self.metric.weight, self.in_channels)
        if self.gather_rows is not None and isinstance(x, Tensor):
            x = self.gather_rows(x.detach())
        if self.unit is None:
            self._scale_to_median(x, valid)
        else:
            first = x.reshape(-1, *x.shape[-2:])[0] if isinstance(x, Tensor) else x
            if valid is not None and isinstance(first, Tensor):
                first = first[valid.reshape(-1, x.shape[-2])[0]]
            self.unit.fill_(near_distance(first) / self.median_distance)
            self.metric.weight.mul_(self.unit.rsqrt())
        self.is_scaled.fill_(True)
        self.is_calibrated = True
        return self

    def _scale_to_median(self, x: Features, valid: Tensor | None) -> None:
        rows = product(x, self.metric.weight).reshape(-1, x.shape[-2], self.rank)[0]
        if valid is not None:
            rows = rows[valid.reshape(-1, x.shape[-2])[0]]
        distance = sampled_distances(rows)
        median = torch.cat(distance).median() if distance else rows.new_zeros(())
        if float(median) > 0:
            self.metric.weight.mul_((self.median_distance / median).sqrt())

    def project(
        self,
        x: Features,  # (*batch, N, in_channels)
    ) -> Tensor:  # (*batch, N, rank) or (*batch, N, in_channels + rank)
        """Project features to points z, whose Euclidean distances are the learned ones.

        z = Rᵀf, and with ``metric_init="euclidean"`` [f/√u, Rᵀf]. Features far from the origin are
        centred first, so that distances do not cancel.
        """
        x = as_features(x, self.metric.weight, self.in_channels)
        if not self.is_calibrated:
            raise RuntimeError(
                f'metric_init="{self.metric_init}" scales the metric to features, but calibrate '
                "was not called; call calibrate(x) before the first forward, or set "
                'metric_init="random"'
            )
        may_centre = self.gather_rows is None and not torch.compiler.is_compiling()
        with no_autocast(x.device):  # distances of points that bfloat16 rounded would be wrong
            z = project(x, self.metric.weight, may_centre=may_centre)
            if self.unit is None:
                return z
            return torch.cat([scaled_points(x, self.unit, may_centre=may_centre), z], -1)

    @torch.no_grad()
    def regress_metric(
        self,
        x: Features,  # (N, in_channels)
        probability: Tensor,  # (N, num_classes)
        *,
        variance: float = 1.0,
    ) -> Self:
        r"""Set R to the ridge regression of class probabilities on the features of all nodes.

        Self-training, for ``metric_init="euclidean"``: gradients of few labels alone make a worse
        metric than none. Call it a few times while a network trains, with its predictions.

        .. math:: R \propto (F^\top F + \rho I)^{-1} F^\top (P - \bar P)

        on up to 256 principal components. Columns of R beyond the classes become 0, and get no
        gradient from then on.

        Args:
            x: features.
            probability: class probabilities of all nodes, at most `rank` classes; of training
                nodes, 1 for their class.
            variance (float ≥ 0, default 1): total variance of the features under R, in units of
                the squared distance to a near neighbour. 1 suits embeddings, 0.1 words.

        Returns:
            The learner itself.

        Cost: one SVD of the features (:func:`jlgcn.ops.svd.principal_directions`), and 2·N·256²
        FLOP.

        Example:
            >>> from jlgcn.nn import GraphLearner
            >>> x, probability = torch.randn(50, 8), torch.eye(2).repeat(25, 1)
            >>> learner = GraphLearner(8, rank=2, metric_init="euclidean").calibrate(x)
            >>> z = learner.regress_metric(x, probability, variance=3.0).project(x).detach()
            >>> round(float(z[:, 8:].var(0, correction=0).sum()), 3)  # beyond the features
            3.0
        """
        if self.unit is None or not self.is_calibrated:
            raise ValueError(
                'regress_metric needs metric_init="euclidean" and calibrate(x) before, but '
                f"metric_init is {self.metric_init!r}, "
                f"{'calibrated' if self.is_calibrated else 'not calibrated'}"
            )
        x = as_features(x, self.metric.weight, self.in_channels)
        num_classes = probability.shape[-1]
        if probability.shape != (x.shape[0], num_classes) or num_classes > self.rank:
            raise ValueError(
                f"probability must have {x.shape[0]} rows and at most {self.rank} columns, but its "
                f"shape is {tuple(probability.shape)}; set rank to the number of classes"
            )
        if not variance >= 0:
            raise ValueError(f"variance must be at least 0, but it is {variance}; try 1")
        directions = principal_directions(x, _NUM_COMPONENTS, 1.0)
        components = x @ directions
        found = regress_metric(components, probability.to(components), variance)
        self.metric.weight.zero_()
        self.metric.weight[:num_classes] = (directions @ found).mT
        return self

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        super()._load_from_state_dict(*args, **kwargs)
        self.is_calibrated = bool(self.is_scaled)

    @property
    def _euclidean(self) -> float | None:
        """The factor c of the Euclidean part, 1/u; None without one."""
        return None if self.unit is None else 1 / float(self.unit.double())

    @torch.no_grad()
    def explain_edge(
        self,
        first: Tensor,  # (in_channels,)
        second: Tensor,  # (in_channels,)
    ) -> EdgeExplanation:
        r"""Decompose the learned distance of two nodes exactly, by direction and by feature.

        With δ = f_i - f_j and M = RRᵀ + cI,

        .. math::
            d^2 = c \|\delta\|^2 + \sum_s (R^\top \delta)_s^2 = \sum_k \delta_k (M \delta)_k

        With ``metric_init="euclidean"`` c = 1/u, and the Euclidean part is the first direction;
        otherwise c = 0. A feature in which the nodes agree contributes nothing.

        Args:
            first: features of one node, scaled as in training.
            second: features of the other.

        Cost: 4·in_channels·rank FLOP, in float64.

        Example:
            >>> from jlgcn.nn import GraphLearner
            >>> learner = GraphLearner(2, 2, metric_init="identity")
            >>> learner.explain_edge(torch.tensor([0.0, 1.0]), torch.tensor([2.0, 1.0])).features
            tensor([4., 0.], dtype=torch.float64)
        """
        for name, row in (("first", first), ("second", second)):
            if not isinstance(row, Tensor):
                raise TypeError(
                    f"{name} must be the {self.in_channels} features of one node, but it is a "
                    f"{type(row).__name__}; pass features x[i] and x[j], not indices"
                )
            if row.shape != (self.in_channels,):
                raise ValueError(
                    f"{name} must be the {self.in_channels} features of one node, but its shape is "
                    f"{tuple(row.shape)}"
                )
        return decompose_distance(first, second, self.metric.weight.T, self._euclidean)

    @torch.no_grad()
    def feature_importance(
        self,
        x: Features,  # (N, in_channels)
    ) -> Tensor:  # (in_channels,)
        r"""Return the mean contribution of each feature to the squared distance of two nodes.

        The mean of :meth:`explain_edge` over all ordered pairs, with Σ the features' covariance:

        .. math::
            \frac{1}{N^2} \sum_{ij} \delta_k (M \delta)_k = 2\, (M \Sigma)_{kk}

        The contributions sum to the mean squared distance.

        Args:
            x: features of all nodes, scaled as in training.

        Cost: 4·N·in_channels·rank FLOP; no pair is visited.

        Example:
            >>> from jlgcn.nn import GraphLearner
            >>> learner = GraphLearner(2, 2, metric_init="identity")
            >>> learner.feature_importance(torch.tensor([[0.0, 7.0], [2.0, 7.0]]))
            tensor([2., 0.], dtype=torch.float64)
        """
        return mean_contributions(x, self.metric.weight.T, self._euclidean or 0.0)
