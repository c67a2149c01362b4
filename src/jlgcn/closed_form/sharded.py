"""The nodes of a fit in shards: which stages run, and what their sums say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from jlgcn.closed_form import shards
from jlgcn.closed_form.classifier import Classifier
from jlgcn.closed_form.layer import DIFFUSED_COLUMNS, Softmax
from jlgcn.closed_form.options import SelectedOptions
from jlgcn.closed_form.shards import Stage
from jlgcn.ops.cells import number_of_cells, rows_for_training
from jlgcn.ops.metric import solve_ridge
from jlgcn.ops.svd import directions_by_products

# Bytes of a diffusion: so many columns of all nodes in float32, six times (the right-hand side,
# three iterates, a product and its scaled operand). A narrower block takes less.
_DIFFUSION_BYTES = 4 * 2**30
_BYTES_OF_ENTRY = 24
_MIN_BLOCKS = 4
_MIN_COLUMNS = 4

# What a stage takes besides its data: PyTorch and FAISS.
_PROCESS_BYTES = 400 * 2**20


class Done(NamedTuple):
    """A stage that ran: the name of its file, and its summary."""

    name: str
    summary: Mapping[str, Tensor]


class Runner(Protocol):
    """What runs stages: in this process, in a pool, on a cluster."""

    def run(
        self, stage: Stage, arguments: Sequence[dict[str, Any]], *, num_bytes: int
    ) -> list[Done]:
        """Run a stage with each of several arguments, in any order and place.

        Args:
            stage: a function of :mod:`jlgcn.closed_form.shards`, or one like it.
            arguments: keyword arguments of each task: names of files, numbers and text.
            num_bytes: memory that a task takes.
        """

    def keep(self, tensors: Mapping[str, Tensor]) -> str:
        """Write tensors of the driver to a file, and return its name."""


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
class ShardedNodes:
    """:class:`jlgcn.closed_form.layer.Nodes` whose features and graphs are files of shards.

    Attributes:
        runner: what runs the stages.
        bounds: number of the first node of each shard, and N.
        x: scaled features of each shard.
        is_sparse: whether they are sparse.
        features: principal components of each shard.
        projection: principal directions, (in_channels, n_components).
        moment: FᵀF of all principal components, float64.
        total: their sum, float64.
        index: the index of all rows.
        candidates: candidate edges of each shard.
        unit: the median squared distance to a near neighbour.
        given: rows of the given graph in each shard; None without one.
    """

    runner: Runner
    bounds: list[int]
    x: list[str]
    is_sparse: bool
    features: list[str]
    projection: Tensor
    moment: Tensor
    total: Tensor
    index: str
    candidates: list[str]
    unit: float
    given: list[str] | None

    @classmethod
    def prepare(
        cls,
        runner: Runner,
        raw: Sequence[str],
        bounds: list[int],
        scaler: str,
        settings: dict[str, Any],
        *,
        num_features: int,
        is_sparse: bool,
        num_components: int,
        num_candidates: int,
        edges: str | None,
    ) -> ShardedNodes:
        """Scale and project features, and search neighbours.

        Args:
            runner: what runs the stages.
            raw: features of each shard, not scaled.
            bounds: number of the first node of each shard, and N.
            scaler: file with shift and scale of the scaler.
            settings: its other fields.
            num_features: in_channels.
            is_sparse: whether scaled features are sparse.
            num_components: principal components that are diffused.
            num_candidates: neighbours that are searched.
            edges: file of the given graph's entries, sorted by row, with the first of each shard;
                None without a graph.
        """
        num_nodes = bounds[-1]
        rows = max(b - a for a, b in pairwise(bounds))
        width = num_features * 4
        one = _PROCESS_BYTES + rows * 4 * (width + 12 * num_candidates)
        scaled = runner.run(
            shards.scale_features,
            [{"raw": name, "scaler": scaler, "settings": settings} for name in raw],
            num_bytes=one,
        )
        x = [done.name for done in scaled]

        def product(basis: Tensor) -> Tensor:
            kept = runner.keep({"basis": basis})
            tasks = [{"x": name, "basis": kept} for name in x]
            found = runner.run(shards.gram_product, tasks, num_bytes=one)
            return _sum(found, "product")

        def gram(basis: Tensor | None) -> Tensor:
            if basis is None:
                return _sum(scaled, "gram")
            kept = runner.keep({"basis": basis})
            tasks = [{"x": name, "basis": kept} for name in x]
            return _sum(runner.run(shards.gram_of_image, tasks, num_bytes=one), "gram")

        projection = directions_by_products(
            product, gram, num_features, min(num_components, num_nodes), like=torch.zeros(0)
        )
        kept = runner.keep({"projection": projection})
        tasks = [{"x": name, "projection": kept} for name in x]
        projected = runner.run(shards.project, tasks, num_bytes=one)
        features = [done.name for done in projected]
        key, points = ("features", features) if is_sparse else ("x", x)
        found = _search(runner, points, key, x, bounds, num_candidates, width, one)
        index, candidates, unit = found
        given = None
        if edges is not None:
            done = runner.run(
                shards.given_rows,
                [
                    {"edges": edges, "x": x, "bounds": bounds, "shard": shard}
                    for shard in range(len(x))
                ],
                num_bytes=one,
            )
            given = [each.name for each in done]
        return cls(
            runner=runner,
            bounds=bounds,
            x=x,
            is_sparse=is_sparse,
            features=features,
            projection=projection,
            moment=_sum(projected, "moment"),
            total=_sum(projected, "total"),
            index=index,
            candidates=candidates,
            unit=unit,
            given=given,
        )

    @property
    def num_nodes(self) -> int:
        """Number of nodes, N."""
        return self.bounds[-1]

    @property
    def has_given(self) -> bool:
        """Whether there is a given graph."""
        return self.given is not None

    def join(self, metric: Tensor, options: SelectedOptions) -> JoinedShards:
        """Return the learned graph under a metric, and its sum with the given one."""
        z = None
        num_shards, bounds = len(self.x), self.bounds
        if bool(metric.any()):
            kept = self.runner.keep({"metric": metric})
            z = self._run(shards.project_metric, [{"x": x, "metric": kept} for x in self.x])
        tasks = [
            {
                "candidates": self.candidates[shard],
                "z": z,
                "bounds": bounds,
                "shard": shard,
                "unit": self.unit,
                "num_neighbors": options.n_neighbors,
            }
            for shard in range(num_shards)
        ]
        ranked = self._run(shards.rank, tasks)
        tasks = [
            {"ranked": ranked, "bounds": bounds, "shard": shard} for shard in range(num_shards)
        ]
        edge_bytes = 200 * options.n_neighbors * self._rows
        done = self.runner.run(shards.symmetrize, tasks, num_bytes=_PROCESS_BYTES + edge_bytes)
        total = float(_sum(done, "total"))
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
            z = self._run(shards.project_metric, [{"x": x, "metric": kept} for x in self.x])
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
        return self._run(shards.discount_given, tasks)

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
            for columns in self._columns(None)
        ]
        blocks = self._run(shards.diffuse, tasks, num_bytes=self._diffusion_bytes(None))
        return DiffusedShards(joined, blocks)

    def rows(self, diffused: DiffusedShards, index: Tensor) -> Tensor:  # (K, n_components)
        """Return some rows of diffused features."""
        task = {"blocks": diffused.blocks, "index": self.runner.keep({"index": index})}
        found: Tensor = self._one(shards.pick_diffused, task)["rows"]
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
            shards.diffuse_some, tasks, num_bytes=self._diffusion_bytes(num_components)
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
        done = self.runner.run(shards.class_moments, tasks, num_bytes=self._shard_bytes)
        mean = _sum(done, "total") / self.num_nodes
        cross = _sum(done, "cross") - self.total.unsqueeze(-1) * mean
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
        found = self._one(shards.pick_blocks, task)
        return [found[str(number)] for number in range(len(found))]

    def scores(self, diffused: DiffusedShards, classifier: Classifier) -> tuple[list[str], ...]:
        """Return files of class scores and diffused rows, and of what neighbours are told.

        Args:
            diffused: diffused features.
            classifier: the fitted classifier.

        Returns:
            Names of files of scores, and of the terms of :func:`shards.block_means`, which are
            none without a given graph.
        """
        kept = self.runner.keep(classifier_tensors(classifier))
        num_shards, said = len(self.x), None
        if len(classifier.blocks) > 1:
            terms = self._run(shards.block_terms, [{"x": x, "blocks": kept} for x in self.x])
            tasks: list[dict[str, Any]] = [
                {"given": self.given, "terms": terms, "bounds": self.bounds, "shard": shard}
                for shard in range(num_shards)
            ]
            said = self._run(shards.block_means, tasks)
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
        return self._run(shards.score, tasks), said or []

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
        """Return first and last column of every block: few of many nodes, for their memory."""
        count = self.projection.shape[1]
        count = count if num_components is None else min(num_components, count)
        width = min(DIFFUSED_COLUMNS, -(-count // _MIN_BLOCKS))
        while width > _MIN_COLUMNS and width * self.num_nodes * _BYTES_OF_ENTRY > _DIFFUSION_BYTES:
            width = -(-width // 2)
        return [[first, min(first + width, count)] for first in range(0, count, width)]

    def _diffusion_bytes(self, num_components: int | None) -> int:
        first, last = self._columns(num_components)[0]
        return _PROCESS_BYTES + self.num_nodes * ((last - first) * _BYTES_OF_ENTRY + 8)

    @property
    def _rows(self) -> int:
        return max(b - a for a, b in pairwise(self.bounds))

    @property
    def _shard_bytes(self) -> int:
        return _PROCESS_BYTES + self._rows * 8 * sum(self.projection.shape)

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


def _search(
    runner: Runner,
    points: list[str],
    key: str,
    x: list[str],
    bounds: list[int],
    num_candidates: int,
    width: int,
    num_bytes: int,
) -> tuple[str, list[str], float]:
    """Return the index, the candidates of every shard, and the unit of distances."""
    num_cells = number_of_cells(bounds[-1])
    num_rows = rows_for_training(num_cells)
    task: dict[str, Any] = {"names": points, "bounds": bounds, "key": key}
    task |= {"num_cells": num_cells, "num_rows": num_rows}
    needed = _PROCESS_BYTES + 3 * num_rows * width
    quantizer = runner.run(shards.train_index, [task], num_bytes=needed)[0].name
    tasks: list[dict[str, Any]] = [
        {"points": name, "x": own, "key": key, "first": first, "quantizer": quantizer}
        for name, own, first in zip(points, x, bounds, strict=False)
    ]
    filled = [done.name for done in runner.run(shards.fill_index, tasks, num_bytes=num_bytes)]
    # FAISS grows lists by doubling them.
    needed = _PROCESS_BYTES + 2 * bounds[-1] * (width + 8)
    task = {"filled": filled, "quantizer": quantizer}
    index = runner.run(shards.merge_index, [task], num_bytes=needed)[0].name
    tasks = [
        {
            "index": index,
            "points": name,
            "key": key,
            "x": x,
            "bounds": bounds,
            "shard": shard,
            "num_candidates": min(num_candidates, bounds[-1] - 1),
        }
        for shard, name in enumerate(points)
    ]
    done = runner.run(shards.search, tasks, num_bytes=num_bytes)
    near = torch.cat([each.summary["near"] for each in done])
    unit = float(near.median()) if len(near) else 0.0
    return index, [each.name for each in done], unit if unit > 0 else 1.0


def _sum(done: Sequence[Done], key: str) -> Tensor:
    total = done[0].summary[key].clone()
    for each in done[1:]:
        total += each.summary[key]
    return total
