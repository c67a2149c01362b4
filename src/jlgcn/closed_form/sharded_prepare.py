"""Features, candidates and given edges of nodes in shards: a first fit, or rows added to one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from jlgcn.closed_form import shard_graphs, shards
from jlgcn.closed_form.sharded import (
    PROCESS_BYTES,
    Done,
    OldShards,
    Runner,
    ShardedNodes,
    sum_of,
)
from jlgcn.ops.cells import number_of_cells, rows_for_training
from jlgcn.ops.svd import directions_by_products


def prepare_nodes(
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
    edges: list[str],
    old: OldShards | None = None,
) -> ShardedNodes:
    """Scale and project features, and search neighbours.

    Args:
        runner: what runs the stages.
        raw: features of each (new) shard, not scaled.
        bounds: number of the first node of each shard, and N.
        scaler: file with shift and scale of the scaler.
        settings: its other fields.
        num_features: in_channels.
        is_sparse: whether scaled features are sparse.
        num_components: principal components that are diffused.
        num_candidates: neighbours that are searched.
        edges: files of the given graph's entries, sorted by row, with the first of each shard; none
            without a graph.
        old: the fit that rows are added to: its shards come first, and keep scaling, projection,
            cells and unit.
    """
    rows = max(b - a for a, b in pairwise(bounds))
    width = num_features * 4
    one = shard_bytes(rows, num_features, num_candidates)
    tasks: list[dict[str, Any]] = [
        {"raw": name, "scaler": scaler, "settings": settings} for name in raw
    ]
    scaled = runner.run(shards.scale_features, tasks, num_bytes=one)
    x = [*([] if old is None else old.x), *(done.name for done in scaled)]
    if old is None:
        projection = _directions(runner, scaled, num_features, min(num_components, bounds[-1]), one)
    else:
        projection = old.projection
    kept = runner.keep({"projection": projection})
    tasks = [{"x": name, "projection": kept} for name in x]
    projected = runner.run(shards.project, tasks, num_bytes=one)
    features = [done.name for done in projected]
    key, points = ("features", features) if is_sparse else ("x", x)
    quantizer, index = _index(runner, points, key, x, bounds, width, one, old)
    candidates, unit = _search(
        runner, index, points, key, x, bounds, num_candidates, one, 0 if old is None else len(old.x)
    )
    given = None
    if edges:
        tasks = [
            {"edges": edges, "x": x, "bounds": bounds, "shard": shard} for shard in range(len(x))
        ]
        done = runner.run(shard_graphs.given_rows, tasks, num_bytes=one)
        given = [each.name for each in done]
    return ShardedNodes(
        runner=runner,
        bounds=bounds,
        x=x,
        is_sparse=is_sparse,
        features=features,
        projection=projection,
        moment=sum_of(projected, "moment"),
        total=sum_of(projected, "total"),
        quantizer=quantizer,
        index=index,
        candidates=candidates,
        num_candidates=num_candidates,
        unit=unit if old is None else old.unit,
        given=given,
        old=old,
    )


def shard_bytes(rows: int, num_features: int, num_candidates: int) -> int:
    """Return the memory of a stage that sees the features of a shard, or its candidates."""
    return PROCESS_BYTES + rows * 16 * (num_features + 3 * num_candidates)


def index_bytes(num_nodes: int, num_features: int) -> int:
    """Return the memory in which an index is merged; FAISS grows lists by doubling them."""
    return PROCESS_BYTES + 8 * num_nodes * (num_features + 2)


def _directions(
    runner: Runner, scaled: Sequence[Done], num_features: int, num_components: int, num_bytes: int
) -> Tensor:
    """Return principal directions, by products that add over shards."""

    def total(stage: shards.Stage, key: str, basis: Tensor) -> Tensor:
        kept = runner.keep({"basis": basis})
        tasks = [{"x": done.name, "basis": kept} for done in scaled]
        return sum_of(runner.run(stage, tasks, num_bytes=num_bytes), key)

    def gram(basis: Tensor | None) -> Tensor:
        if basis is None:
            return sum_of(scaled, "gram")
        return total(shards.gram_of_image, "gram", basis)

    return directions_by_products(
        lambda basis: total(shards.gram_product, "product", basis),
        gram,
        num_features,
        num_components,
        like=torch.zeros(0),
    )


def _index(
    runner: Runner,
    points: list[str],
    key: str,
    x: list[str],
    bounds: list[int],
    width: int,
    num_bytes: int,
    old: OldShards | None,
) -> tuple[str, str]:
    """Return cells and index of all rows; new rows are added to the old cells."""
    if old is None:
        num_cells = number_of_cells(bounds[-1])
        num_rows = rows_for_training(num_cells)
        task: dict[str, Any] = {"names": points, "bounds": bounds, "key": key}
        task |= {"num_cells": num_cells, "num_rows": num_rows}
        needed = PROCESS_BYTES + 3 * num_rows * width
        quantizer = runner.run(shards.train_index, [task], num_bytes=needed)[0].name
        first_new, index = 0, None
    else:
        first_new, quantizer, index = len(old.x), old.quantizer, old.index
    tasks: list[dict[str, Any]] = [
        {"points": points[s], "x": x[s], "key": key, "first": bounds[s], "quantizer": quantizer}
        for s in range(first_new, len(x))
    ]
    filled = [done.name for done in runner.run(shards.fill_index, tasks, num_bytes=num_bytes)]
    if index is not None and not filled:
        return quantizer, index
    needed = index_bytes(bounds[-1], width // 4)
    task = {"filled": filled, "quantizer": quantizer, "index": index}
    return quantizer, runner.run(shards.merge_index, [task], num_bytes=needed)[0].name


def _search(
    runner: Runner,
    index: str,
    points: list[str],
    key: str,
    x: list[str],
    bounds: list[int],
    num_candidates: int,
    num_bytes: int,
    first_new: int,
) -> tuple[list[str | None], float]:
    """Return the candidates of every new shard, and the unit of distances."""
    tasks: list[dict[str, Any]] = [
        {
            "index": index,
            "points": points[shard],
            "key": key,
            "x": x,
            "bounds": bounds,
            "shard": shard,
            "num_candidates": min(num_candidates, bounds[-1] - 1),
        }
        for shard in range(first_new, len(x))
    ]
    done = runner.run(shards.search, tasks, num_bytes=num_bytes)
    near = torch.cat([torch.zeros(0), *(each.summary["near"] for each in done)])
    unit = float(near.median()) if len(near) else 0.0
    found = [None if s < first_new else done[s - first_new].name for s in range(len(x))]
    return found, unit if unit > 0 else 1.0
