"""Features, candidates and given edges of nodes in shards: a first fit, or rows added to one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from jlgcn.closed_form import shard_graphs, shards
from jlgcn.closed_form.shard_bytes import EDGES_BYTES, PROCESS_BYTES, index_bytes, shard_bytes
from jlgcn.closed_form.shard_runner import Done, Runner, sum_of
from jlgcn.closed_form.sharded import OldShards, ShardedNodes
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
    """Scale and project features, number rows cell after cell, and search neighbours.

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
        edges: files of (new) entries of the given graph between rows of the table, sorted by row;
            none without.
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
    key = "features" if is_sparse else "x"
    points = features if is_sparse else x
    first_new = 0 if old is None else len(old.x)
    quantizer = _train_cells(runner, points, key, bounds, width) if old is None else old.quantizer
    tasks = [
        {"points": points[s], "x": x[s], "key": key, "quantizer": quantizer}
        for s in range(first_new, len(x))
    ]
    cells = [done.name for done in runner.run(shards.assign_cells, tasks, num_bytes=one)]
    task = {"cells": cells, "bounds": bounds}
    task |= {} if old is None else {"cells": [], "old": old.order}
    order = _one(runner, shards.order_rows, task, PROCESS_BYTES + 40 * bounds[-1])
    near = cells
    if old is None:
        x, features, near, cells = (
            _renumbered(runner, names, key, order, bounds, one)
            for names, key in ((x, "x"), (features, "features"), (cells, "near"), (cells, "cell"))
        )
        points = features if is_sparse else x
    index = None if old is None else old.index
    if index is None or cells:
        task = {"points": points[first_new:], "key": key, "cells": cells, "index": index}
        task |= {"first": bounds[first_new:-1], "quantizer": quantizer}
        index = _one(runner, shards.merge_index, task, index_bytes(bounds[-1], num_features))
    candidates, unit = _search(
        runner, index, points, key, near, x, bounds, num_candidates, one, first_new
    )
    entries = [] if old is None else list(old.edges)
    for name in edges:
        task = {"edges": name, "order": order, "bounds": bounds}
        entries.append(_one(runner, shards.renumber_edges, task, EDGES_BYTES))
    given = None
    if entries:
        tasks = [
            {"edges": entries, "x": x, "bounds": bounds, "shard": shard} for shard in range(len(x))
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
        order=order,
        candidates=candidates,
        num_candidates=num_candidates,
        unit=unit if old is None else old.unit,
        edges=entries,
        given=given,
        old=old,
    )


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


def _train_cells(runner: Runner, points: list[str], key: str, bounds: list[int], width: int) -> str:
    num_cells = number_of_cells(bounds[-1])
    num_rows = rows_for_training(num_cells)
    task: dict[str, Any] = {"names": points, "bounds": bounds, "key": key}
    task |= {"num_cells": num_cells, "num_rows": num_rows}
    return _one(runner, shards.train_index, task, PROCESS_BYTES + 3 * num_rows * width)


def _renumbered(
    runner: Runner, names: list[str], key: str, order: str, bounds: list[int], num_bytes: int
) -> list[str]:
    tasks = [
        {"names": names, "key": key, "order": order, "bounds": bounds, "shard": shard}
        for shard in range(len(names))
    ]
    return [done.name for done in runner.run(shards.renumber, tasks, num_bytes=num_bytes)]


def _one(runner: Runner, stage: shards.Stage, task: dict[str, Any], num_bytes: int) -> str:
    (done,) = runner.run(stage, [task], num_bytes=num_bytes)
    return done.name


def _search(
    runner: Runner,
    index: str,
    points: list[str],
    key: str,
    cells: list[str],
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
            "cells": cells[shard - first_new],
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
