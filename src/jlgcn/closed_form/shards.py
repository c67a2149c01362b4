"""The steps of the closed form that see all nodes, as pure functions of shards.

A stage reads tensors from named files and returns tensors: those of a new file, and a small summary
for the driver. Nodes are numbered shard after shard. A row of a graph belongs to the shard of its
node, columns are numbers of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
import scipy.sparse
import torch
from torch import Tensor
from torch.nn import functional

from jlgcn.closed_form.classifier import Classifier
from jlgcn.closed_form.layer import Scale, Softmax, unit_rows
from jlgcn.closed_form.local import Hops
from jlgcn.closed_form.nystroem import Landmarks
from jlgcn.closed_form.scaling import FeatureScaler
from jlgcn.graphs import SparseGraph, personalized_pagerank
from jlgcn.graphs.candidates import UNIT_NEIGHBORS, Features, nearest_edges
from jlgcn.graphs.diffusion import pagerank_rows
from jlgcn.ops import SparseFeatures
from jlgcn.ops.cells import CellIndex, train_cells
from jlgcn.ops.csr import Pattern
from jlgcn.ops.sparse_matrix import pair_distances

#: Most equal rows of a shard that are in the index: more would make a cell that takes O(N²).
MAX_EQUAL = 256

# Principal components by which sparse rows are searched.
_SEARCHED_COMPONENTS = 128

# Entries of differences, and queries of a search, in memory at a time.
_CHUNK_ENTRIES = 2**22
_CHUNK_QUERIES = 2**14

# Distances by which all shards together estimate the unit.
_UNIT_ENTRIES = 2**21


@dataclass(frozen=True, eq=False)
class Output:
    """What a stage returns.

    Attributes:
        tensors: the content of its file.
        summary: small tensors for the driver.
        write: writes the content of a file that holds no tensors; None for `tensors`.
        suffix: how the name of a file for others ends, which has no summary; "" for our own.
    """

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    summary: Mapping[str, Tensor] = field(default_factory=dict)
    write: Callable[[BinaryIO], None] | None = None
    suffix: str = ""


class Files(Protocol):
    """The files of earlier stages, by name."""

    def tensors(self, name: str) -> Mapping[str, Tensor]:
        """Return tensors that are mapped: read from disk as far as they are used."""

    def path(self, name: str) -> Path:
        """Return the path of a file on this machine."""


Stage = Callable[..., Output]


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of all nodes, in a file for each shard.

    Attributes:
        files: the files.
        names: name of each shard's file.
        bounds: number of the first node of each shard, and N.
    """

    files: Files
    names: Sequence[str]
    bounds: Sequence[int]

    def tensors(self, shard: int) -> Mapping[str, Tensor]:
        """Return the tensors of a shard."""
        return self.files.tensors(self.names[shard])

    def gather(self, key: str, index: Tensor) -> Tensor:  # (K, …)
        """Return some rows of a tensor, in any order."""
        found: Tensor | None = None
        for shard, places, local in self.by_shard(index):
            rows = self.tensors(shard)[key][local]
            if found is None:
                found = rows.new_empty(len(index), *rows.shape[1:])
            found[places] = rows
        if found is None:
            found = self.tensors(0)[key][:0].clone()
        return found

    def all(self, key: str) -> Tensor:  # (N, …)
        """Return all rows of a tensor."""
        return torch.cat([self.files.tensors(name)[key] for name in self.names])

    def columns(self, key: str, first: int, last: int) -> Tensor:  # (N, last - first)
        """Return some columns of all rows."""
        parts = [self.files.tensors(name)[key][:, first:last] for name in self.names]
        return torch.cat(parts)

    def shard(self, number: int) -> Features:
        """Return the features of a shard."""
        return _features(self.tensors(number))

    def features(self, index: Tensor) -> Features:
        """Return the features of some nodes, in any order."""
        if "x" in self.tensors(0):
            return self.gather("x", index)
        parts, order = [], []
        for shard, places, local in self.by_shard(index):
            parts.append(_as_scipy(self.tensors(shard))[local.numpy()])
            order.append(places)
        if not parts:
            return SparseFeatures.from_scipy(_as_scipy(self.tensors(0))[:0])
        return SparseFeatures.from_scipy(
            scipy.sparse.vstack(parts)[torch.cat(order).argsort().numpy()]
        )

    def by_shard(self, index: Tensor) -> list[tuple[int, Tensor, Tensor]]:
        """Return, for every shard that has some of the nodes, their places and local numbers."""
        bounds = torch.tensor(self.bounds)
        shard = (torch.searchsorted(bounds, index, right=True) - 1).numpy().astype(np.uint16)
        order = torch.from_numpy(shard.argsort(kind="stable"))  # a radix sort
        counts = np.bincount(shard, minlength=len(self.names)).tolist()
        parts = zip(range(len(counts)), order.split(counts), strict=True)
        return [(s, places, index[places] - self.bounds[s]) for s, places in parts if len(places)]


def _features(tensors: Mapping[str, Tensor]) -> Features:
    return tensors["x"] if "x" in tensors else SparseFeatures.from_scipy(_as_scipy(tensors))


def _as_scipy(tensors: Mapping[str, Tensor]) -> Any:  # noqa: ANN401
    value, col, crow = (tensors[name].numpy() for name in ("value", "col", "crow"))
    return scipy.sparse.csr_array((value, col, crow), shape=(len(crow) - 1, int(tensors["width"])))


def features_to_tensors(x: Features) -> dict[str, Tensor]:
    """Return the tensors of a file of features."""
    if isinstance(x, Tensor):
        return {"x": x}
    width = torch.tensor(x.shape[1])
    return {"crow": x.crow.int(), "col": x.col.int(), "value": x.value, "width": width}


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


# Features


def scale_features(files: Files, raw: str, scaler: str, settings: dict[str, Any]) -> Output:
    """Scale the features of a shard, with the Gram matrix of few columns."""
    x = scaled(files, scaler, settings, _features(files.tensors(raw)))
    summary = {"gram": _gram(x)} if x.shape[1] < 1024 else {}
    return Output(features_to_tensors(x), summary)


def scaled(files: Files, scaler: str, settings: dict[str, Any], x: Features) -> Features:
    """Return features, scaled; those of a kind that is not for words become dense."""
    found = files.tensors(scaler)
    if isinstance(x, SparseFeatures) and settings["kind"] != "words":
        x = torch.from_numpy(x.to_scipy().toarray())
    return FeatureScaler(shift=found["shift"], scale=found["scale"], **settings)(x)


def gram_product(files: Files, x: str, basis: str) -> Output:
    """Return Xᵀ (X Q) of a shard, for a basis Q."""
    features, q = _features(files.tensors(x)), files.tensors(basis)["basis"]
    return Output(summary={"product": features.mT @ (features @ q)})


def gram_of_image(files: Files, x: str, basis: str) -> Output:
    """Return (X Q)ᵀ (X Q) of a shard, for a basis Q."""
    return Output(
        summary={"gram": _gram(_features(files.tensors(x)) @ files.tensors(basis)["basis"])}
    )


def project(files: Files, x: str, projection: str) -> Output:
    """Return the principal components of a shard, and their moments."""
    components = _features(files.tensors(x)) @ files.tensors(projection)["projection"]
    summary = {"moment": _gram(components), "total": components.double().sum(0)}
    return Output({"features": components}, summary)


def _gram(x: Features) -> Tensor:
    if isinstance(x, SparseFeatures):
        return torch.from_numpy((x.to_scipy().T @ x.to_scipy()).toarray()).double()
    return x.double().mT @ x.double()


def pick(files: Files, names: list[str], bounds: list[int], key: str, index: str) -> Output:
    """Return some rows of a tensor, or of the features for the key "x"."""
    rows, wanted = Rows(files, names, bounds), files.tensors(index)["index"]
    if key != "x":
        return Output(summary={"rows": rows.gather(key, wanted)})
    return Output(summary={"rows": Hops(rows.features(wanted), None).rows(_range(wanted))[0]})


def _range(like: Tensor) -> Tensor:
    return torch.arange(len(like))


# Candidates


def train_index(
    files: Files, names: list[str], bounds: list[int], key: str, num_cells: int, num_rows: int
) -> Output:
    """Return the coarse quantiser of an inverted file, trained on evenly spaced rows."""
    count = min(num_rows, bounds[-1])
    index = torch.arange(count) * bounds[-1] // count
    points = _searched(Rows(files, names, bounds).gather(key, index), key)
    return Output({"quantizer": train_cells(points, num_cells)})


def fill_index(files: Files, points: str, x: str, key: str, first: int, quantizer: str) -> Output:
    """Assign the rows of a shard to cells.

    Rows of zeros of sparse features, which are nobody's neighbours, are left out, and so are more
    than :data:`MAX_EQUAL` equal rows.
    """
    found = _searched(files.tensors(points)[key], key).contiguous()
    kept = _few_equal(found)
    features = files.tensors(x)
    if "crow" in features:
        kept &= features["crow"].diff() > 0
    row = kept.nonzero().flatten()
    cell = CellIndex.assign(files.tensors(quantizer)["quantizer"], found[row])
    return Output({"points": found[row], "row": row + first, "cell": cell})


def _searched(rows: Tensor, key: str) -> Tensor:
    """Return the columns that are searched: all of dense features, some principal components."""
    return rows.float() if key == "x" else rows[:, :_SEARCHED_COMPONENTS].float()


def searched(x: Features, components: Tensor) -> Tensor:
    """Return the columns of new rows that are searched, of their features or components."""
    return _searched(x, "x") if isinstance(x, Tensor) else _searched(components, "features")


def _few_equal(points: Tensor) -> Tensor:  # (n,), bool
    """Return which rows are among the first of those that are equal to them."""
    rows = points.numpy().view(np.dtype((np.void, 4 * points.shape[1]))).ravel()
    equal = np.unique(rows, return_inverse=True)[1]
    order = equal.argsort(kind="stable")
    starts = np.searchsorted(equal[order], np.arange(equal.max(initial=-1) + 1))
    rank = np.empty(len(equal), dtype=np.int64)
    rank[order] = np.arange(len(equal)) - starts[equal[order]]
    return torch.from_numpy(rank < MAX_EQUAL)


def merge_index(files: Files, filled: list[str], quantizer: str) -> Output:
    """Merge the cells of all shards into the file of one index, which is then mapped."""
    index = CellIndex.empty(files.tensors(quantizer)["quantizer"])
    for name in filled:
        part = files.tensors(name)
        index.add(part["points"], part["row"], part["cell"])
    return Output(write=index.write)


def search(
    files: Files,
    index: str,
    points: str,
    key: str,
    x: list[str],
    bounds: list[int],
    shard: int,
    num_candidates: int,
) -> Output:
    """Search the nearest neighbours of a shard's rows; -1, and inf, where there are fewer."""
    found, own = CellIndex.read(files.path(index)), _searched(files.tensors(points)[key], key)
    rows = torch.arange(bounds[shard], bounds[shard + 1])
    places, distances = [], []
    features = Rows(files, x, bounds)
    is_sparse = "crow" in files.tensors(x[shard])
    for start in range(0, len(own), _CHUNK_QUERIES):
        chunk = rows[start : start + _CHUNK_QUERIES]
        place, distance = found.search(own[start : start + _CHUNK_QUERIES], num_candidates + 1)
        place, distance = _without_self(place, distance, chunk)
        if is_sparse:
            distance = _exact_distances(features, chunk, place)
        places.append(place.int())
        distances.append(distance)
    place, distance = torch.cat(places), torch.cat(distances)
    step = max(1, bounds[-1] * UNIT_NEIGHBORS // _UNIT_ENTRIES)
    near = distance[::step].topk(min(UNIT_NEIGHBORS, distance.shape[1]), largest=False).values
    return Output({"index": place, "distance": distance}, {"near": near[near.isfinite()]})


def _without_self(
    index: Tensor, distance: Tensor, rows: Tensor
) -> tuple[Tensor, Tensor]:  # (n, K) each
    """Drop each row's own number, or its last (farthest) neighbour where it is not there."""
    is_self = index == rows.unsqueeze(-1)
    is_self[:, -1] |= ~is_self.any(-1)
    index, distance = (
        each[~is_self].view(len(index), index.shape[1] - 1) for each in (index, distance)
    )
    return index, distance.masked_fill(index < 0, torch.inf)


def _exact_distances(features: Rows, rows: Tensor, index: Tensor) -> Tensor:  # (n, K)
    near, place = index.clamp(min=0).unique(return_inverse=True)
    own, others = features.features(rows), features.features(near)
    assert isinstance(own, SparseFeatures)
    row = _range(rows).repeat_interleave(index.shape[1])
    distance = pair_distances(own, row, place.flatten(), others).view(index.shape)
    is_missing = (index < 0) | (own.crow.diff() == 0).unsqueeze(-1)
    return distance.masked_fill(is_missing, torch.inf)


# Graphs


def given_rows(files: Files, edges: str, x: list[str], bounds: list[int], shard: int) -> Output:
    """Return the rows of the given graph in a shard, with squared distances of its edges."""
    found, rows = files.tensors(edges), Rows(files, x, bounds)
    part = slice(*found["starts"][shard : shard + 2].tolist())
    row, col = found["row"][part] - bounds[shard], found["col"][part].long()
    near, place = col.unique(return_inverse=True)
    distance = pair_distances(rows.shard(shard), row, place, rows.features(near))
    weight = found["weight"][part].clone()
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
    return Output({"z": _features(files.tensors(x)) @ files.tensors(metric)["metric"]})


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


def symmetrize(files: Files, ranked: list[str], bounds: list[int], shard: int) -> Output:
    """Return the rows of max(A, Aᵀ) in a shard: own edges, and those that end here."""
    own, first = files.tensors(ranked[shard]), bounds[shard]
    rows, cols, weights = [own["row"].long()], [own["col"].long()], [own["weight"]]
    for other, name in enumerate(ranked):
        found = files.tensors(name)
        places = found["by_column"][slice(*found["starts"][shard : shard + 2].tolist())].long()
        rows.append(found["col"][places] - first)
        cols.append(found["row"][places] + bounds[other])
        weights.append(found["weight"][places])
    num_nodes = bounds[-1]
    key = torch.cat(rows).long() * num_nodes + torch.cat(cols)
    order = torch.from_numpy(key.numpy().argsort(kind="stable"))
    key, place = key[order].unique_consecutive(return_inverse=True)
    weight = torch.zeros(len(key)).scatter_reduce(0, place, torch.cat(weights)[order], "amax")
    row = key.div(num_nodes, rounding_mode="floor")
    tensors = _csr_tensors(row, key - row * num_nodes, weight, bounds, shard)
    return Output(tensors, {"total": weight.double().sum()})


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
) -> Output:
    """Diffuse a block of columns of the principal components of all nodes."""
    x = Rows(files, features, bounds).columns("features", *columns)
    operator = _graph(files, graph, bounds)
    return Output({"diffused": personalized_pagerank(operator, x, restart, tolerance=tolerance)})


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
    features, weight = _features(files.tensors(x)), files.tensors(blocks)["classifier/blocks"]
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
        logits = logits + _features(files.tensors(x)) @ found.blocks[0]
    if given is not None and said is not None:
        everything = Rows(files, said, bounds).all("said")
        logits = logits + _mean(Rows(files, given, bounds), shard, everything)
    degree = _graph(files, graph, bounds).degree_of(shard)
    return Output({"logits": logits, "diffused": own, "degree": degree})
