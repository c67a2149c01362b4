"""The graphs of the closed form, diffusion, metric and scores, as stages: pure functions of shards.

See :mod:`jlgcn.closed_form.shards`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from jlgcn.closed_form.classifier import Classifier
from jlgcn.closed_form.layer import Scale, Softmax, unit_rows
from jlgcn.closed_form.local import Hops
from jlgcn.closed_form.nystroem import Landmarks
from jlgcn.closed_form.shards import Files, Output, Rows, read_features
from jlgcn.graphs import SparseGraph, personalized_pagerank
from jlgcn.graphs.candidates import nearest_edges
from jlgcn.graphs.diffusion import pagerank_rows
from jlgcn.ops.csr import Pattern
from jlgcn.ops.sparse_matrix import pair_distances

# Entries of differences in memory at a time.
_CHUNK_ENTRIES = 2**22


@dataclass(frozen=True, eq=False)
class ShardedGraph:
    r"""The normalised sum of a learned graph, a given one and self-loops, row range by row range.

    .. math:: \Lambda^{-1/2} (s A + A_0 + I) \Lambda^{-1/2}

    Attributes:
        learned: CSR slices of A.
        given: CSR slices of A_0; None without one.
        scale: s.
    """

    learned: Rows
    given: Rows | None
    scale: float

    def degree_of(self, shard: int) -> Tensor:  # (n,)
        """Return the degrees of the nodes of a shard."""
        degree = self.scale * self.learned.tensors(shard)["degree"] + 1
        return degree if self.given is None else degree + self.given.tensors(shard)["degree"]

    @cached_property
    def _root(self) -> Tensor:  # (N, 1)
        degrees = [self.degree_of(shard) for shard in range(len(self.learned.names))]
        return torch.cat(degrees).rsqrt().unsqueeze(-1)

    def detach(self) -> ShardedGraph:
        """Return the graph; it has no gradients."""
        return self

    def __matmul__(self, x: Tensor) -> Tensor:  # (N, C)
        scaled = x * self._root
        found = torch.empty_like(x)
        for shard in range(len(self.learned.names)):
            rows = slice(*self.learned.bounds[shard : shard + 2])
            product = _csr(self.learned, shard) @ scaled
            product = torch.add(scaled[rows], product, alpha=self.scale)
            if self.given is not None:
                product += _csr(self.given, shard) @ scaled
            torch.mul(product, self._root[rows], out=found[rows])
        return found


def _csr(graph: Rows, shard: int) -> Tensor:  # (n, N)
    found = graph.tensors(shard)
    size = (len(found["crow"]) - 1, graph.bounds[-1])
    return torch.sparse_csr_tensor(
        found["crow"], found["col"], found["weight"], size, check_invariants=False
    )


def given_rows(
    files: Files, edges: list[str], x: list[str], bounds: list[int], shard: int
) -> Output:
    """Return the rows of the given graph in a shard, with squared distances of its edges.

    An edge that is in several files has the largest of its weights.
    """
    parts = []
    for found in map(files.tensors, edges):
        if shard + 1 < len(found["starts"]):  # not of rows that came later
            part = slice(*found["starts"][shard : shard + 2].tolist())
            parts.append([found[name][part] for name in ("row", "col", "weight")])
    if not parts:
        parts.append([torch.zeros(0, dtype=torch.int64)] * 2 + [torch.zeros(0)])
    row, col, weight = (torch.cat(each) for each in zip(*parts, strict=True))
    row, col, weight = _largest(row - bounds[shard], col.long(), weight, bounds[-1])
    rows = Rows(files, x, bounds)
    near, place = col.unique(return_inverse=True)
    distance = pair_distances(rows.shard(shard), row, place, rows.features(near))
    return Output(_csr_tensors(row, col, weight, bounds, shard) | {"distance": distance})


def discount_given(
    files: Files, given: str, z: list[str], bounds: list[int], shard: int, unit: float, decay: float
) -> Output:
    """Discount given edges by learned distance, exp(-ρ d²)."""
    found = files.tensors(given)
    row = torch.repeat_interleave(found["crow"].diff())
    near, place = found["col"].long().unique(return_inverse=True)
    rows = Rows(files, z, bounds)
    added = pair_distances(files.tensors(z[shard])["z"], row, place, rows.gather("z", near))
    weight = found["weight"] * (-decay * (found["distance"] / unit + added)).exp()
    return Output(_csr_tensors(row, found["col"], weight, bounds, shard))


def project_metric(files: Files, x: str, metric: str) -> Output:
    """Return the features of a shard as a metric R sees them, Rᵀx."""
    return Output({"z": read_features(files.tensors(x)) @ files.tensors(metric)["metric"]})


def rank(
    files: Files,
    candidates: str,
    z: list[str] | None,
    bounds: list[int],
    shard: int,
    unit: float,
    num_neighbors: int,
) -> Output:
    """Return directed edges to the nearest candidates, and their order by column."""
    found = files.tensors(candidates)
    index, distance = found["index"].long(), found["distance"] / unit
    if z is not None:
        own, rows = files.tensors(z[shard])["z"], Rows(files, z, bounds)
        size = max(1, _CHUNK_ENTRIES // max(1, index.shape[1] * own.shape[1]))
        for start in range(0, len(index), size):
            part = slice(start, start + size)
            near = rows.gather("z", index[part].clamp(min=0).flatten())
            near = near.view(*index[part].shape, -1)
            distance[part] += (own[part].unsqueeze(1) - near).square().sum(-1)
    row, col, weight = nearest_edges(index, distance, num_neighbors)
    order = torch.from_numpy(col.numpy().argsort(kind="stable"))
    starts = torch.searchsorted(col[order], torch.tensor(bounds))
    edges = {"row": row.int(), "col": col.int(), "weight": weight}
    return Output(edges | {"by_column": order.int(), "starts": starts})


def symmetrize(
    files: Files, ranked: list[str | None], bounds: list[int], shard: int, old: str | None = None
) -> Output:
    """Return the rows of max(A, Aᵀ) in a shard: own edges, and those that end here.

    Args:
        files: the files.
        ranked: directed edges of each shard; None of a shard that has `old` ones.
        bounds: number of the first node of each shard, and N.
        shard: number of the shard.
        old: its rows of a graph that is symmetric already.
    """
    first, name = bounds[shard], ranked[shard]
    own = files.tensors(old if name is None and old is not None else str(name), keep=False)
    row = torch.repeat_interleave(own["crow"].diff()) if name is None else own["row"].long()
    rows, cols, weights = [row], [own["col"].long()], [own["weight"]]
    for other, name in enumerate(ranked):
        if name is None:
            continue
        found = files.tensors(name, keep=False)
        places = found["by_column"][slice(*found["starts"][shard : shard + 2].tolist())].long()
        rows.append(found["col"][places] - first)
        cols.append(found["row"][places] + bounds[other])
        weights.append(found["weight"][places])
    row, col, weight = _largest(torch.cat(rows), torch.cat(cols), torch.cat(weights), bounds[-1])
    tensors = _csr_tensors(row, col, weight, bounds, shard)
    return Output(tensors, {"total": weight.double().sum()})


def _largest(
    row: Tensor, col: Tensor, weight: Tensor, num_nodes: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return entries sorted by row and column, each once, with the largest of its weights."""
    key = row.long() * num_nodes + col
    order = torch.from_numpy(key.numpy().argsort(kind="stable"))
    key, place = key[order].unique_consecutive(return_inverse=True)
    weight = torch.zeros(len(key)).scatter_reduce(0, place, weight[order], "amax")
    row = key.div(num_nodes, rounding_mode="floor")
    return row, key - row * num_nodes, weight


def _csr_tensors(
    row: Tensor, col: Tensor, weight: Tensor, bounds: list[int], shard: int
) -> dict[str, Tensor]:
    num_rows = bounds[shard + 1] - bounds[shard]
    crow = functional.pad(torch.bincount(row, minlength=num_rows).cumsum(0), (1, 0))
    degree = torch.zeros(num_rows).index_add(0, row, weight)
    return {"crow": crow.int(), "col": col.int(), "weight": weight, "degree": degree}


# Diffusion


def diffuse(
    files: Files,
    graph: dict[str, Any],
    features: list[str],
    bounds: list[int],
    columns: list[int],
    restart: float,
    tolerance: float,
    start: list[str] | None = None,
) -> Output:
    """Diffuse a block of columns of the principal components of all nodes.

    From a `start`, diffused features of the first shards, if there is one.
    """
    x = Rows(files, features, bounds).columns("features", *columns)
    first = None
    if start is not None:
        old = Rows(files, start, bounds[: len(start) + 1]).columns("diffused", *columns)
        first = torch.cat([old, restart * x[len(old) :]])
    found = personalized_pagerank(
        _graph(files, graph, bounds), x, restart, tolerance=tolerance, start=first
    )
    return Output({"diffused": found})


def diffuse_some(
    files: Files,
    graph: dict[str, Any],
    features: list[str],
    bounds: list[int],
    columns: list[int],
    restarts: list[float],
    tolerance: float,
    index: str,
) -> Output:
    """Return some rows of diffused columns for several restart probabilities."""
    x = Rows(files, features, bounds).columns("features", *columns)
    wanted = files.tensors(index)["index"]
    found = pagerank_rows(_graph(files, graph, bounds), x, restarts, wanted, tolerance=tolerance)
    return Output(summary={"rows": found})


def _graph(files: Files, graph: dict[str, Any], bounds: list[int]) -> ShardedGraph:
    given = None if graph["given"] is None else Rows(files, graph["given"], bounds)
    return ShardedGraph(Rows(files, graph["learned"], bounds), given, graph["scale"])


def pick_diffused(files: Files, blocks: list[str], index: str) -> Output:
    """Return some rows of diffused features."""
    wanted = files.tensors(index)["index"]
    parts = [files.tensors(name)["diffused"][wanted] for name in blocks]
    return Output(summary={"rows": torch.cat(parts, -1)})


# Metric and scores


def class_moments(
    files: Files,
    blocks: list[str],
    features: str,
    bounds: list[int],
    shard: int,
    classifier: str,
) -> Output:
    """Return sums over a shard of class probabilities P, and of FᵀP; known labels replace P."""
    found = files.tensors(classifier)
    scale = Scale(found["center"], float(found["factor"])) if "center" in found else None
    probability = Softmax(found["weight"], found["bias"], scale)(
        unit_rows(_diffused(files, blocks, bounds, shard))
    )
    known = found["known"] - bounds[shard]
    is_here = (known >= 0) & (known < len(probability))
    labels = functional.one_hot(found["labels"][is_here], probability.shape[1])
    probability[known[is_here]] = labels.to(probability.dtype)
    x, p = files.tensors(features)["features"].double(), probability.double()
    return Output(summary={"cross": x.mT @ p, "total": p.sum(0)})


def _diffused(files: Files, blocks: list[str], bounds: Sequence[int], shard: int) -> Tensor:
    rows = slice(*bounds[shard : shard + 2])
    return torch.cat([files.tensors(name)["diffused"][rows] for name in blocks], -1)


def pick_blocks(
    files: Files, x: list[str], given: list[str], bounds: list[int], key: str, index: str
) -> Output:
    """Return some rows of the blocks of :class:`Hops`: features, their means, and means of those.

    Only these nodes, their neighbours and those of these are read.
    """
    wanted = files.tensors(index)["index"]
    graph, last = Rows(files, given, bounds), bounds[-1]
    once = _entries(graph, wanted.unique())
    twice = _entries(graph, once[1].unique())
    row, col, weight = (torch.cat(parts) for parts in zip(once, twice, strict=True))
    # Rows of both, each entry once; rows of the last hop stay empty, for nobody multiplies them.
    key_of, places = np.unique((row * last + col).numpy(), return_index=True)
    row, col = (torch.from_numpy(part) for part in np.divmod(key_of, last))
    nodes = torch.cat([wanted, row, col]).unique()
    row, col = torch.searchsorted(nodes, row), torch.searchsorted(nodes, col)
    crow = functional.pad(torch.bincount(row, minlength=len(nodes)).cumsum(0), (1, 0))
    pattern = Pattern(crow, row, col, col, len(nodes))
    part = SparseGraph.from_pattern(pattern, weight[torch.from_numpy(places)])
    rows = Rows(files, x, bounds)
    features = rows.features(nodes) if key == "x" else rows.gather(key, nodes)
    found = Hops(features, part).rows(torch.searchsorted(nodes, wanted))
    return Output(summary={str(number): block for number, block in enumerate(found)})


def _entries(graph: Rows, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return row, column and weight of all entries in some rows, which ascend."""
    rows, cols, weights = [index[:0]], [index[:0]], [torch.zeros(0)]
    for shard, places, local in graph.by_shard(index):
        found = graph.tensors(shard)
        start, stop = found["crow"][local].long(), found["crow"][local + 1].long()
        count = stop - start
        begin = torch.repeat_interleave(start - count.cumsum(0) + count, count)
        entry = torch.arange(int(count.sum())) + begin
        rows.append(torch.repeat_interleave(index[places], count))
        cols.append(found["col"][entry].long())
        weights.append(found["weight"][entry])
    return torch.cat(rows), torch.cat(cols), torch.cat(weights)


def block_terms(files: Files, x: str, blocks: str) -> Output:
    """Return X W_1 and X W_2 of a shard, see :meth:`Hops.block_scores`."""
    features, weight = read_features(files.tensors(x)), files.tensors(blocks)["classifier/blocks"]
    return Output({"first": features @ weight[1], "second": features @ weight[2]})


def block_means(
    files: Files, given: list[str], terms: list[str], bounds: list[int], shard: int
) -> Output:
    """Return X W_1 + P X W_2 of a shard: what its nodes say to their neighbours."""
    mean = _mean(Rows(files, given, bounds), shard, Rows(files, terms, bounds).all("second"))
    return Output({"said": files.tensors(terms[shard])["first"] + mean})


def _mean(given: Rows, shard: int, x: Tensor) -> Tensor:  # (n, C)
    degree = given.tensors(shard)["degree"].clamp(min=1e-30)
    return (_csr(given, shard) @ x) / degree.unsqueeze(-1)


def read_classifier(tensors: Mapping[str, Tensor], gamma: float) -> Classifier:
    """Return the classifier in a file."""
    names = ("graph", "blocks", "landmarks", "kernel", "bias")
    graph, blocks, landmarks, kernel, bias = (tensors[f"classifier/{name}"] for name in names)
    return Classifier(graph, blocks, Landmarks(landmarks, gamma), kernel, bias)


def score(
    files: Files,
    classifier: str,
    gamma: float,
    graph: dict[str, Any],
    diffused: list[str],
    features: str,
    x: str,
    given: list[str] | None,
    said: list[str] | None,
    bounds: list[int],
    shard: int,
) -> Output:
    """Return class scores, diffused features and degrees of the nodes of a shard."""
    found = read_classifier(files.tensors(classifier), gamma)
    own = _diffused(files, diffused, bounds, shard)
    logits = unit_rows(own) @ found.graph + found.bias
    logits = logits + found.own_scores(files.tensors(features)["features"])
    if len(found.blocks):
        logits = logits + read_features(files.tensors(x)) @ found.blocks[0]
    if given is not None and said is not None:
        everything = Rows(files, said, bounds).all("said")
        logits = logits + _mean(Rows(files, given, bounds), shard, everything)
    degree = _graph(files, graph, bounds).degree_of(shard)
    return Output({"logits": logits, "diffused": own, "degree": degree})
