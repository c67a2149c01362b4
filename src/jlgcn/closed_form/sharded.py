"""The nodes of a fit in shards: which stages run, and what their sums say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from jlgcn.closed_form import shard_graphs, shards
from jlgcn.closed_form.classifier import Classifier
from jlgcn.closed_form.layer import Softmax
from jlgcn.closed_form.options import SelectedOptions
from jlgcn.closed_form.shard_bytes import (
    PROCESS_BYTES,
    blocks_of_columns,
    diffusion_bytes,
    edge_bytes,
)
from jlgcn.closed_form.shard_runner import Runner, sum_of
from jlgcn.closed_form.shards import Stage
from jlgcn.ops.metric import solve_ridge


class JoinedShards(NamedTuple):
    """A learned graph and its sum with the given one, by names of files.

    Attributes:
        learned: rows of the learned graph in each shard.
        scale: factor of its weights in the sum.
        given: rows of the given graph, discounted; None without one.
    """

    learned: list[str]
    scale: float
    given: list[str] | None


class DiffusedShards(NamedTuple):
    """Features diffused over a graph, by names of files.

    Attributes:
        joined: the graph.
        blocks: blocks of columns of all nodes.
    """

    joined: JoinedShards
    blocks: list[str]

    @property
    def learned(self) -> list[str]:
        """Rows of the learned graph in each shard."""
        return self.joined.learned


@dataclass(frozen=True, eq=False)
class OldShards:
    """A fit whose rows stay and get new ones.

    Attributes:
        x: scaled features of each shard.
        projection: principal directions, (in_channels, n_components).
        quantizer: the cells of the index of all rows.
        index: that index.
        order: the order of all rows, see :func:`shards.order_rows`.
        edges: entries of the given graph.
        unit: the unit of distances.
        learned: rows of the last learned graph in each shard.
        diffused: files with the diffused features of each shard.
    """

    x: list[str]
    projection: Tensor
    quantizer: str
    index: str
    order: str
    edges: list[str]
    unit: float
    learned: list[str]
    diffused: list[str]


@dataclass(frozen=True, eq=False)
class ShardedNodes:
    """:class:`jlgcn.closed_form.layer.Nodes` whose features and graphs are files of shards.

    Nodes are rows of the table, numbered cell after cell.

    Attributes:
        runner: what runs the stages.
        bounds: number of the first node of each shard, and N.
        x: scaled features of each shard.
        is_sparse: whether they are sparse.
        features: principal components of each shard.
        projection: principal directions, (in_channels, n_components).
        moment: FᵀF of all principal components, float64.
        total: their sum, float64.
        quantizer: the cells of the index of all rows.
        index: that index.
        order: the order of the table's rows, see :func:`shards.order_rows`.
        candidates: candidate edges of each shard; None of an old one.
        num_candidates: candidates of a row.
        unit: the median squared distance to a near neighbour.
        edges: entries of the given graph; none without one.
        given: rows of the given graph in each shard; None without one.
        old: the fit that the first shards are of, whose rows keep their neighbours and get those
            new rows that choose them; None for a first fit.
    """

    runner: Runner
    bounds: list[int]
    x: list[str]
    is_sparse: bool
    features: list[str]
    projection: Tensor
    moment: Tensor
    total: Tensor
    quantizer: str
    index: str
    order: str
    candidates: list[str | None]
    num_candidates: int
    unit: float
    edges: list[str]
    given: list[str] | None
    old: OldShards | None = None

    @property
    def num_nodes(self) -> int:
        """Number of nodes, N."""
        return self.bounds[-1]

    @property
    def has_given(self) -> bool:
        """Whether there is a given graph."""
        return self.given is not None

    def numbers_of(self, rows: Tensor) -> Tensor:  # (K,), int64
        """Return the numbers of rows of the table."""
        task = {"names": [self.order], "bounds": [0, self.num_nodes], "key": "number"}
        task |= {"index": self.runner.keep({"index": rows})}
        return self._one(shards.pick, task)["rows"].long()

    def join(self, metric: Tensor, options: SelectedOptions) -> JoinedShards:
        """Return the learned graph under a metric, and its sum with the given one."""
        z = None
        num_shards, bounds = len(self.x), self.bounds
        if bool(metric.any()):
            kept = self.runner.keep({"metric": metric})
            z = self._run(shard_graphs.project_metric, [{"x": x, "metric": kept} for x in self.x])
        tasks: list[dict[str, Any]] = [
            {
                "candidates": name,
                "z": z,
                "bounds": bounds,
                "shard": shard,
                "unit": self.unit,
                "num_neighbors": options.n_neighbors,
            }
            for shard, name in enumerate(self.candidates)
            if name is not None
        ]
        learned = [] if self.old is None else self.old.learned
        needed = edge_bytes(self._rows, self.num_candidates, options.n_neighbors)

        def symmetric_tasks(names: list[str]) -> list[dict[str, Any]]:
            ranked = [*(None for _ in learned), *names]
            return [
                {"ranked": ranked, "bounds": bounds, "shard": shard}
                | ({"old": learned[shard]} if shard < len(learned) else {})
                for shard in range(num_shards)
            ]

        done = self.runner.run_through(
            shard_graphs.rank, tasks, shard_graphs.symmetrize, symmetric_tasks, num_bytes=needed
        )
        total = float(sum_of(done, "total"))
        scale = options.learned_degree * self.num_nodes / total if total > 0 else 1.0
        given = self.given
        if given is not None and options.given_decay > 0:
            given = self._discounted(given, z, metric, options.given_decay)
        return JoinedShards([each.name for each in done], scale, given)

    def _discounted(
        self, given: list[str], z: list[str] | None, metric: Tensor, decay: float
    ) -> list[str]:
        if z is None:
            kept = self.runner.keep({"metric": metric})
            z = self._run(shard_graphs.project_metric, [{"x": x, "metric": kept} for x in self.x])
        tasks = [
            {
                "given": name,
                "z": z,
                "bounds": self.bounds,
                "shard": shard,
                "unit": self.unit,
                "decay": decay,
            }
            for shard, name in enumerate(given)
        ]
        return self._run(shard_graphs.discount_given, tasks)

    def diffuse(self, joined: JoinedShards, options: SelectedOptions) -> DiffusedShards:
        """Return the principal components diffused over a graph."""
        tasks = [
            {
                "graph": joined._asdict(),
                "features": self.features,
                "bounds": self.bounds,
                "columns": columns,
                "restart": options.restart,
                "tolerance": options.tolerance,
            }
            | ({} if self.old is None else {"start": self.old.diffused})
            for columns in self._columns(None)
        ]
        blocks = self._run(shard_graphs.diffuse, tasks, num_bytes=self._diffusion_bytes(None))
        return DiffusedShards(joined, blocks)

    def rows(self, diffused: DiffusedShards, index: Tensor) -> Tensor:  # (K, n_components)
        """Return some rows of diffused features."""
        task = {"blocks": diffused.blocks, "index": self.runner.keep({"index": index})}
        found: Tensor = self._one(shard_graphs.pick_diffused, task)["rows"]
        return found

    def diffuse_rows(
        self,
        joined: JoinedShards,
        restarts: Sequence[float],
        index: Tensor,
        tolerance: float,
        num_components: int | None,
    ) -> Tensor:  # (R, K, D)
        """Return some rows of features diffused with several restart probabilities."""
        kept = self.runner.keep({"index": index})
        tasks = [
            {
                "graph": joined._asdict(),
                "features": self.features,
                "bounds": self.bounds,
                "columns": columns,
                "restarts": list(restarts),
                "tolerance": tolerance,
                "index": kept,
            }
            for columns in self._columns(num_components)
        ]
        done = self.runner.run(
            shard_graphs.diffuse_some, tasks, num_bytes=self._diffusion_bytes(num_components)
        )
        return torch.cat([each.summary["rows"] for each in done], -1)

    def learn_metric(
        self,
        diffused: DiffusedShards,
        classifier: Softmax,
        known: Tensor,
        labels: Tensor,
        options: SelectedOptions,
    ) -> Tensor:  # (in_channels, C)
        """Return R: the ridge regression of class probabilities on the features of all nodes."""
        parts = {"weight": classifier.weight, "bias": classifier.bias}
        parts |= {"known": known, "labels": labels}
        if classifier.scale is not None:
            factor = torch.tensor(classifier.scale.factor, dtype=torch.float64)
            parts |= {"center": classifier.scale.center, "factor": factor}
        kept = self.runner.keep(parts)
        tasks = [
            {
                "blocks": diffused.blocks,
                "features": name,
                "bounds": self.bounds,
                "shard": shard,
                "classifier": kept,
            }
            for shard, name in enumerate(self.features)
        ]
        done = self.runner.run(shard_graphs.class_moments, tasks, num_bytes=self._shard_bytes)
        mean = sum_of(done, "total") / self.num_nodes
        cross = sum_of(done, "cross") - self.total.unsqueeze(-1) * mean
        solved = solve_ridge(self.moment.clone(), cross)
        variance = float((solved * (self._covariance @ solved)).sum())
        scale = (float(options.metric_weight) / max(variance, 1e-30)) ** 0.5
        metric: Tensor = self.projection @ (solved * scale).to(self.projection.dtype)
        return metric

    def components(self, index: Tensor) -> Tensor:  # (K, n_components)
        """Return principal components of some nodes."""
        return self._pick(self.features, "features", index)

    def variance(self) -> float:
        """Return the total variance of the principal components."""
        return float(self._covariance.trace())

    def blocks(
        self, index: Tensor, *, has_neighbors: bool, of_components: bool
    ) -> list[Tensor]:  # (K, F)
        """Return some rows of the blocks of :class:`jlgcn.closed_form.local.Hops`."""
        names, key = (self.features, "features") if of_components else (self.x, "x")
        if not has_neighbors:
            return [self._pick(names, key, index)]
        task = {"x": names, "given": self.given, "bounds": self.bounds, "key": key}
        task["index"] = self.runner.keep({"index": index})
        found = self._one(shard_graphs.pick_blocks, task)
        return [found[str(number)] for number in range(len(found))]

    def scores(self, diffused: DiffusedShards, classifier: Classifier) -> tuple[list[str], ...]:
        """Return files of class scores and diffused rows, and of what neighbours are told.

        Args:
            diffused: diffused features.
            classifier: the fitted classifier.

        Returns:
            Names of files of scores, and of the terms of :func:`shard_graphs.block_means`: none
            without a given graph.
        """
        kept = self.runner.keep(classifier_tensors(classifier))
        num_shards, said = len(self.x), None
        if len(classifier.blocks) > 1:
            terms = self._run(shard_graphs.block_terms, [{"x": x, "blocks": kept} for x in self.x])
            tasks: list[dict[str, Any]] = [
                {"given": self.given, "terms": terms, "bounds": self.bounds, "shard": shard}
                for shard in range(num_shards)
            ]
            said = self._run(shard_graphs.block_means, tasks)
        tasks = [
            {
                "classifier": kept,
                "gamma": classifier.landmarks.gamma,
                "graph": diffused.joined._asdict(),
                "diffused": diffused.blocks,
                "features": self.features[shard],
                "x": self.x[shard],
                "given": None if said is None else self.given,
                "said": said,
                "bounds": self.bounds,
                "shard": shard,
            }
            for shard in range(num_shards)
        ]
        return self._run(shard_graphs.score, tasks), said or []

    @property
    def _covariance(self) -> Tensor:
        mean = self.total / self.num_nodes
        return self.moment / self.num_nodes - torch.outer(mean, mean)

    def _pick(self, names: list[str], key: str, index: Tensor) -> Tensor:
        kept = self.runner.keep({"index": index})
        task = {"names": names, "bounds": self.bounds, "key": key, "index": kept}
        rows: Tensor = self._one(shards.pick, task)["rows"]
        return rows

    def _columns(self, num_components: int | None) -> list[list[int]]:
        count = self.projection.shape[1]
        count = count if num_components is None else min(num_components, count)
        return blocks_of_columns(self.num_nodes, count)

    def _diffusion_bytes(self, num_components: int | None) -> int:
        return diffusion_bytes(self.num_nodes, self._columns(num_components))

    @property
    def _rows(self) -> int:
        return max(b - a for a, b in pairwise(self.bounds))

    @property
    def _shard_bytes(self) -> int:
        return PROCESS_BYTES + self._rows * 8 * sum(self.projection.shape)

    def _run(
        self, stage: Stage, tasks: Sequence[dict[str, Any]], num_bytes: int | None = None
    ) -> list[str]:
        num_bytes = self._shard_bytes if num_bytes is None else num_bytes
        return [done.name for done in self.runner.run(stage, tasks, num_bytes=num_bytes)]

    def _one(self, stage: Stage, task: dict[str, Any]) -> Mapping[str, Tensor]:
        (done,) = self.runner.run(stage, [task], num_bytes=self._shard_bytes)
        return done.summary


def classifier_tensors(classifier: Classifier) -> dict[str, Tensor]:
    """Return the tensors of a classifier by name."""
    return {
        "classifier/graph": classifier.graph,
        "classifier/blocks": classifier.blocks,
        "classifier/landmarks": classifier.landmarks.points,
        "classifier/kernel": classifier.kernel,
        "classifier/bias": classifier.bias,
    }
