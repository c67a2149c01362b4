"""Our own code against the library that does the same, side by side, where ours was kept.

    python -m benchmarks.libraries --json results/benchmarks/libraries.json

One thread. Exact neighbours against scikit-learn's brute force, principal directions against its
randomized SVD, inverted files of FAISS with flat and HNSW coarse quantisers, their cells trained on
two levels against FAISS's k-means, GCN, GAT and EdgeConv against the layers of PyTorch Geometric,
and the map of a page against NetworkX. A ratio is the library's time over ours: above 1, ours is
faster. Cora's accuracies are those of its validation nodes; no test label is read. ``--scale 0.01``
is a smoke test. Parts that are not run keep their figures in the file.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout, elu, relu

from benchmarks.knn_graph import clustered_points
from benchmarks.measure import Run, median_ratio, table, times_side_by_side, write_json
from evaluation.npz import load_npz
from evaluation.suite.data import newsgroups
from jlgcn.closed_form import FeatureScaler
from jlgcn.io.files import data_root
from jlgcn.ops import SparseFeatures, nearest_neighbors
from jlgcn.ops.cells import CellIndex, number_of_cells, rows_for_training, train_cells
from jlgcn.ops.svd import principal_directions
from jlgcn.paper import load_planetoid
from jlgcn.paper.baselines import GAT, GCN
from jlgcn.paper.cloud_baselines import EdgeConv, neighbors

NUM_NEIGHBORS = 20
Row = dict[str, Any]


def compared(ours: Run, library: Run, repeats: int) -> Row:
    """Return median seconds of both, and how many times longer the library takes."""
    seconds = times_side_by_side({"ours": ours, "library": library}, repeats)
    return {
        "seconds": statistics.median(seconds["ours"]),
        "library_seconds": statistics.median(seconds["library"]),
        "ratio": median_ratio(seconds["library"], seconds["ours"]),
    }


def exact_neighbors(scale: float) -> list[Row]:
    """Compare the exact search with scikit-learn's."""
    from sklearn.neighbors import NearestNeighbors

    def brute(z: Tensor) -> NDArray[np.int64]:
        search = NearestNeighbors(n_neighbors=NUM_NEIGHBORS, algorithm="brute").fit(z.numpy())
        found: NDArray[np.int64] = search.kneighbors(return_distance=False)
        return found

    rows = []
    sizes = [(n, d, torch.float32) for n in (2_000, 10_000, 40_000) for d in (16, 64, 500)]
    for full_size, width, dtype in [*sizes, (10_000, 64, torch.float64)]:
        num_rows = max(100, int(scale * full_size))
        z = torch.randn(num_rows, width, generator=torch.Generator().manual_seed(0), dtype=dtype)
        ours = partial(nearest_neighbors, z, NUM_NEIGHBORS, search="exact")
        same = (ours().sort(-1).values.numpy() == np.sort(brute(z), -1)).all(-1).mean()
        figures = compared(ours, partial(brute, z), 3 if num_rows < 20_000 else 1)
        case = {"rows": num_rows, "columns": width, "dtype": str(dtype)}
        rows.append(case | figures | {"rows_with_equal_neighbors": float(same)})
    # A row that stands twice must have its twin, and not itself, among its neighbours.
    twins = torch.randn(200, 8, generator=torch.Generator().manual_seed(0)).repeat(2, 1)
    twin = (np.arange(400) + 200) % 400
    found = {"ours": nearest_neighbors(twins, NUM_NEIGHBORS).numpy(), "library": brute(twins)}
    ties = {name: bool((index == twin[:, None]).any(-1).all()) for name, index in found.items()}
    return [*rows, {"rows": 400, "columns": 8, "every row twice, finds its twin": ties}]


def tfidf(num_rows: int, num_words: int, topics: int = 20, length: int = 40) -> Any:  # noqa: ANN401
    """Return weighted words of documents, drawn by Zipf's law from a vocabulary for each topic."""
    rng = np.random.default_rng(0)
    frequency = 1 / np.arange(1, num_words + 1)
    frequency /= frequency.sum()
    drawn = []
    for _ in range(topics):
        own = 0.5 * frequency + 0.5 * rng.permutation(frequency)
        drawn.append(rng.choice(num_words, (num_rows // topics, length), p=own))
    words = np.concatenate(drawn)
    ends = np.arange(len(words)).repeat(length), words.ravel()
    counts = scipy.sparse.csr_array((np.ones(words.size), ends), shape=(len(words), num_words))
    rarity = np.log(len(words) / np.maximum(1, (counts > 0).sum(0)))
    weighted = counts @ scipy.sparse.diags_array(rarity)
    lengths = scipy.sparse.linalg.norm(weighted, axis=1)
    return (scipy.sparse.diags_array(1 / lengths) @ weighted).tocsr().astype(np.float32)


def captured(x: Any, directions: NDArray[Any]) -> float:  # noqa: ANN401
    """Return which share of the squared entries lies in the span of some directions."""
    basis = np.linalg.qr(directions.astype(np.float64))[0].astype(np.float32)
    total = float((x.multiply(x) if scipy.sparse.issparse(x) else x * x).sum(dtype=np.float64))
    return float(np.square(x @ basis, dtype=np.float64).sum()) / total


def svd(scale: float) -> list[Row]:
    """Compare principal directions with scikit-learn's randomized SVD, at equal quality."""
    from sklearn.utils.extmath import randomized_svd

    def library(x: Any, num_components: int) -> NDArray[Any]:  # noqa: ANN401
        options = {"n_iter": 4, "power_iteration_normalizer": "LU", "random_state": 0}
        right: NDArray[Any] = randomized_svd(x, num_components, flip_sign=False, **options)[2].T
        return right

    words = tfidf(max(1_500, int(scale * 60_000)), max(1_100, int(scale * 10_000)))
    size = (max(1_200, int(scale * 20_000)), max(1_100, int(scale * 3_000)))
    rng = np.random.default_rng(0)
    dense = rng.standard_normal(size, np.float32) * np.linspace(1, 0, size[1], dtype=np.float32)
    rows = []
    for x, num_components in ((words, 128), (words, 512), (dense, 256)):
        is_sparse = scipy.sparse.issparse(x)
        own = SparseFeatures.from_scipy(x) if is_sparse else torch.from_numpy(x)
        ours = partial(principal_directions, own, num_components)
        theirs = partial(library, x, num_components)
        rows.append(
            {"rows": x.shape[0], "columns": x.shape[1], "is_sparse": is_sparse}
            | {"components": num_components, "captured": captured(x, ours().numpy())}
            | {"library_captured": captured(x, theirs())}
            | compared(ours, theirs, 2)
        )
    return rows


def quantisers(scale: float) -> list[Row]:
    """Compare coarse quantisers of FAISS: train, add, search, and the recall of 2,000 rows."""
    import faiss

    rows = []
    for full_size, width in ((200_000, 64), (1_000_000, 32)):
        num_rows = int(scale * full_size)
        points = clustered_points(num_rows, width).numpy()
        rng = np.random.default_rng(0)
        asked = rng.choice(num_rows, min(num_rows, 20_000), replace=False)
        checked = asked[:2_000]
        exact = faiss.IndexFlatL2(width)
        exact.add(points)
        true = exact.search(points[checked], NUM_NEIGHBORS + 1)[1]
        cells = 2 * math.isqrt(num_rows)
        for kind, num_cells, num_probes in (
            ("flat", cells, 16),
            ("hnsw", cells, 16),
            ("flat", 2 * cells, 32),
            ("hnsw", 2 * cells, 32),
        ):
            start = time.perf_counter()
            flat = faiss.IndexFlatL2(width)
            quantiser: Any = flat if kind == "flat" else faiss.IndexHNSWFlat(width, 32)
            index: Any = faiss.IndexIVFFlat(quantiser, width, num_cells)
            index.nprobe = num_probes
            index.cp.max_points_per_centroid = 64
            index.cp.min_points_per_centroid = 1
            if kind == "hnsw":
                quantiser.hnsw.efSearch = 2 * num_probes
                index.quantizer_trains_alone = 2  # k-means by the flat index; its centres are added
                index.clustering_index = flat
            index.train(points)
            trained = time.perf_counter()
            index.add(points)
            added = time.perf_counter()
            found = index.search(points[asked], NUM_NEIGHBORS + 1)[1][: len(checked)]
            search = (time.perf_counter() - added) * num_rows / len(asked)
            hits = [
                len(set(a) & set(b)) for a, b in zip(found.tolist(), true.tolist(), strict=True)
            ]
            rows.append(
                {"rows": num_rows, "columns": width, "quantiser": kind, "cells": num_cells}
                | {"probes": num_probes, "recall": sum(hits) / true.size}
                | {"train_seconds": trained - start, "add_seconds": added - trained}
                | {"search_seconds": search, "seconds": added - start + search}
            )
    return rows


def trained_cells(scale: float) -> list[Row]:
    """Compare two-level k-means with that of FAISS: time, and the recall of 1,000 rows."""
    import faiss

    data = {"clustered": clustered_points(int(scale * 300_000), 64)}
    if (root := data_root()).is_dir():
        texts, packages = newsgroups(root).x, load_npz(root / "graphs/debian_packages.npz").x
        assert isinstance(texts, np.ndarray)
        words = FeatureScaler.fit(packages, "words")(packages)
        data |= {
            "newsgroups": torch.from_numpy(texts),
            "packages": words @ principal_directions(words, 128),
        }
    rows = []
    for name, points in data.items():
        num_cells, all_rows = number_of_cells(len(points)), points.numpy()
        step = max(1, len(points) // rows_for_training(num_cells))
        trained_on = points[::step].contiguous()

        def theirs(on: Tensor = trained_on, num_cells: int = num_cells) -> Tensor:
            flat = faiss.IndexFlatL2(on.shape[1])
            clustering = faiss.Clustering(on.shape[1], num_cells)
            clustering.min_points_per_centroid = 1
            clustering.train(on.numpy(), flat)
            return torch.from_numpy(faiss.serialize_index(flat))

        ours = partial(train_cells, trained_on, num_cells)
        asked = np.random.default_rng(0).choice(len(points), 1000, replace=False)
        true = faiss.knn(all_rows[asked], all_rows, NUM_NEIGHBORS + 1)[1]
        recall = []
        for quantizer in (ours(), theirs()):
            index = CellIndex.empty(quantizer)
            cell = CellIndex.assign(quantizer, points)[:, 0]
            index.add(points, torch.arange(len(points)), cell)
            found = index.search(points[asked], NUM_NEIGHBORS + 1)[0].numpy()
            recall.append((found[:, :, None] == true[:, None]).any(1).mean())
        rows.append(
            {"data": name, "rows": len(points), "columns": points.shape[1], "cells": num_cells}
            | {"recall": recall[0], "library_recall": recall[1]}
            | compared(ours, theirs, 3)
        )
    return rows


class PlainGCN(nn.Module):
    """The same layers, called as PyTorch Geometric has it: a message for every edge."""

    def __init__(self, model: nn.Module, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.model = model
        self.activation = activation

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return logits."""
        model: Any = self.model
        y = model.first(dropout(x, model.dropout, self.training), edge_index)
        y = dropout(self.activation(y), model.dropout, self.training)
        logits: Tensor = model.second(y, edge_index)
        return logits


def citation_networks(scale: float) -> list[Row]:
    """Compare GCN and GAT on Cora: seconds an epoch, and validation accuracy over three seeds."""
    data = load_planetoid("cora")
    graph = data.graph()
    x = nn.functional.normalize(data.x, dim=-1)
    words = SparseFeatures.from_dense(x)
    epochs = max(2, int(scale * 100))

    def prepare(model: nn.Module, inputs: tuple[Any, Any], lr: float) -> Callable[[], float]:
        optimizer = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=5e-4)

        def epoch() -> float:
            model.train()
            loss = cross_entropy(model(*inputs)[data.train], data.y[data.train])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            model.eval()
            with torch.no_grad():
                predicted = model(*inputs)[data.val].argmax(-1)
            return float((predicted == data.y[data.val]).float().mean())

        return epoch

    rows = []
    for name, make, activation, lr in (("GCN", GCN, relu, 0.01), ("GAT", GAT, elu, 0.005)):
        accuracy: dict[str, list[float]] = {"ours": [], "library": []}
        seconds: dict[str, list[float]] = {"ours": [], "library": []}
        for seed in range(3):
            torch.manual_seed(seed)
            own = prepare(make(x.shape[1], data.num_classes), (words, graph), lr)
            torch.manual_seed(seed)
            layers = PlainGCN(make(x.shape[1], data.num_classes), activation)
            plain = prepare(layers, (x, graph.edge_index), lr)
            curves: dict[str, list[float]] = {"ours": [], "library": []}
            cases: dict[str, Run] = {
                "ours": partial(_keep, own, curves["ours"]),
                "library": partial(_keep, plain, curves["library"]),
            }
            for case, taken in times_side_by_side(cases, epochs).items():
                seconds[case] += taken
                accuracy[case].append(max(curves[case]))
        rows.append(
            {"network": name, "epochs": epochs, "seconds": statistics.median(seconds["ours"])}
            | {"library_seconds": statistics.median(seconds["library"])}
            | {"ratio": median_ratio(seconds["library"], seconds["ours"])}
            | {"val_accuracy": accuracy["ours"], "library_val_accuracy": accuracy["library"]}
        )
    return rows


def _keep(run: Callable[[], float], found: list[float]) -> None:
    found.append(run())


def edge_convolution(scale: float) -> list[Row]:
    """Compare EdgeConv, forward and backward, on clouds of 256 points with 20 neighbours."""
    from torch_geometric.nn import EdgeConv as PlainEdgeConv

    num_clouds, num_points, before, after = max(2, int(scale * 16)), 256, 64, 128
    x = torch.randn(num_clouds, num_points, before, requires_grad=True)
    index = neighbors(x, NUM_NEIGHBORS)
    conv = EdgeConv(before, after)
    layers = nn.Sequential(
        nn.Linear(2 * before, after, bias=False), nn.BatchNorm1d(after), nn.LeakyReLU(0.2)
    )
    plain = PlainEdgeConv(layers, aggr="max")
    first = num_points * torch.arange(num_clouds).view(-1, 1, 1)
    target = (torch.arange(num_points).view(1, -1, 1) + first).expand(index.shape)
    edges = torch.stack([(index + first).flatten(), target.flatten()])

    def ours() -> None:
        conv(x, index).sum().backward()

    def library() -> None:
        plain(x.flatten(0, 1), edges).sum().backward()

    return [{"clouds": num_clouds, "points": num_points} | compared(ours, library, 5)]


def layout(scale: float) -> list[Row]:
    """Compare the map of a page with NetworkX's force-directed layout, from the same start."""
    import networkx
    from sklearn.datasets import load_digits
    from sklearn.neighbors import NearestNeighbors

    from jlgcn import JLGCNClassifier
    from jlgcn.report import graph_view

    x, y = (array[: max(200, int(scale * 1797))] for array in load_digits(return_X_y=True))
    model = JLGCNClassifier().fit(x, np.where(np.arange(len(y)) < 50, y, -1))
    graph = graph_view.learned_and_given(model)[0]
    start = graph_view._start(model, np.arange(len(y)))
    whole = networkx.from_scipy_sparse_array(graph)
    places = dict(enumerate(start / 20))

    def ours() -> NDArray[np.float64]:
        return graph_view._layout(graph, start, progress=False)

    def library() -> NDArray[np.float64]:
        found = networkx.spring_layout(whole, pos=places, seed=0)
        return np.array([found[i] for i in range(len(y))])

    def neighbors_kept(drawn: NDArray[np.float64]) -> float:
        near = NearestNeighbors(n_neighbors=10).fit(drawn).kneighbors(return_distance=False)
        rows = np.arange(len(y)).repeat(10)
        return float((np.asarray(graph[rows, near.ravel()]) > 0).mean())

    kept = {"neighbors_joined": neighbors_kept(ours())}
    kept["library_neighbors_joined"] = neighbors_kept(library())
    return [{"rows": len(y)} | kept | compared(ours, library, 2)]


PARTS: dict[str, Callable[[float], list[Row]]] = {
    "edge convolution": edge_convolution,
    "citation networks": citation_networks,
    "layout": layout,
    "svd": svd,
    "exact neighbours": exact_neighbors,
    "coarse quantisers": quantisers,
    "cells": trained_cells,
}


def main() -> None:
    """Parse the command line, measure, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", type=float, default=1.0, help="share of all sizes")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--json", type=Path, help="write the figures here")
    args = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, object] = {}
    if args.json and args.json.exists():
        results = json.loads(args.json.read_text())["results"]
    for name in args.parts:
        rows = PARTS[name](args.scale)
        results[name] = rows
        header = list(rows[0])
        cells = [[_cell(row.get(key, "")) for key in header] for row in rows]
        print(f"\n{name}\n\n{table(header, cells)}", flush=True)
        if args.json:
            write_json(args.json, {"scale": args.scale, "threads": 1}, results)


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
