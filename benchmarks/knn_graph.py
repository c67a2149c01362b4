"""The learned kNN graph against the bare search and the bare CSR products it consists of.

    python -m benchmarks.knn_graph --nodes 100000 --rank 32 --neighbors 16

- build: gaussian_knn_graph (search, both directions united, weights) against the search alone;
- product: graph @ x and its gradients, for x and for the weights, against one CSR product forward,
  one for x and one sampled product for the weights.
"""

from __future__ import annotations

import argparse
import math
import statistics
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.measure import Run, median_ratio, table, times_side_by_side, write_json
from jlgcn import SparseGraph, gaussian_knn_graph
from jlgcn.ops.knn import MAX_EXACT_ROWS, nearest_neighbors


def clustered_points(num_nodes: int, rank: int) -> Tensor:
    """Return points around fifty centres, which overlap a little, as real features do."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(50, rank, generator=generator)
    label = torch.randint(0, 50, (num_nodes,), generator=generator)
    return centres[label] + 0.5 * torch.randn(num_nodes, rank, generator=generator)


def bare_search(z: Tensor, num_neighbors: int) -> Run:
    """Return the bare search: FAISS as its own documentation would have it, or torch's top-k."""
    if z.shape[0] <= MAX_EXACT_ROWS:

        def exact() -> Tensor:
            blocks = [
                torch.cdist(rows, z).topk(num_neighbors + 1, largest=False).indices
                for rows in z.split(1024)
            ]
            return torch.cat(blocks)

        return exact

    import faiss

    points = z.numpy()

    def ivf() -> object:
        num_nodes, rank = points.shape
        index = faiss.IndexIVFFlat(faiss.IndexFlatL2(rank), rank, 2 * math.isqrt(num_nodes))
        index.nprobe = 16
        index.cp.max_points_per_centroid = 64
        index.train(points)
        index.add(points)
        return index.search(points, num_neighbors + 1)

    return ivf


def products(graph: SparseGraph, channels: int) -> dict[str, Run]:
    """Return the bare products and ours, on the same weights and features."""
    num_nodes = graph.num_nodes
    pattern = graph.pattern
    weight = graph.weight.detach()
    matrix = torch.sparse_csr_tensor(pattern.crow, pattern.col, weight, (num_nodes, num_nodes))
    x, grad = torch.randn(num_nodes, channels), torch.randn(num_nodes, channels)
    own_x, own_weight = x.clone().requires_grad_(), weight.clone().requires_grad_()

    def bare() -> None:
        matrix @ x
        matrix @ grad
        torch.sparse.sampled_addmm(matrix, grad, x.mT, beta=0.0)

    def ours() -> None:
        product = SparseGraph.from_pattern(pattern, own_weight) @ own_x
        torch.autograd.grad(product, (own_x, own_weight), grad)

    return {"bare": bare, "ours": ours}


def recall(z: Tensor, num_neighbors: int, sample: int = 2000) -> float:
    """Return which share of the true neighbours of some rows the search finds."""
    rows = torch.randperm(z.shape[0])[:sample]
    found = nearest_neighbors(z, num_neighbors)[rows]
    distance = torch.cdist(z[rows], z)
    distance[torch.arange(len(rows)), rows] = torch.inf
    true = distance.topk(num_neighbors, largest=False).indices
    return float((found.unsqueeze(-1) == true.unsqueeze(-2)).any(-1).float().mean())


def main() -> None:
    """Parse the command line, measure, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--neighbors", type=int, default=16)
    parser.add_argument("--channels", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path, help="write the figures here")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)

    z = clustered_points(args.nodes, args.rank)
    engine = "FAISS" if args.nodes > MAX_EXACT_ROWS else "torch top-k"
    print(f"building, {args.nodes:,} rows, against {engine} …", flush=True)
    build = {
        "bare": bare_search(z, args.neighbors),
        "ours": lambda: gaussian_knn_graph(z, args.neighbors),
    }
    build_seconds = times_side_by_side(build, args.repeats)
    graph = gaussian_knn_graph(z, args.neighbors)
    print(f"multiplying, {graph.pattern.num_edges:,} edges …", flush=True)
    product_seconds = times_side_by_side(products(graph, args.channels), 4 * args.repeats)

    results: dict[str, object] = {"engine": engine, "edges": graph.pattern.num_edges}
    rows = []
    for what, seconds in (("build", build_seconds), ("product", product_seconds)):
        ratio = median_ratio(seconds["ours"], seconds["bare"])
        bare, ours = (statistics.median(seconds[name]) for name in ("bare", "ours"))
        results[what] = {"bare_seconds": bare, "seconds": ours, "ratio": ratio}
        rows.append([what, f"{bare:.4f} s", f"{ours:.4f} s", f"{ratio:.2f}"])
    results["recall"] = recall(z, args.neighbors)
    print(f"\n{args.nodes:,} rows, rank {args.rank}, {args.neighbors} neighbours, ", end="")
    print(f"{args.channels} channels, float32, {args.threads} threads\n")
    print(table(["", "bare", "ours", "ratio"], rows))
    print(f"\nrecall of the search: {results['recall']:.3f}")
    if args.json:
        settings = {key: value for key, value in vars(args).items() if key != "json"}
        write_json(args.json, settings, results)


if __name__ == "__main__":
    main()
