"""The exact learned graph against the bare engine it runs on, side by side in one run.

    python -m benchmarks.exact_graph --nodes 19717 --rank 16 --channels 16

times one product of N × N Gaussian weights with N × C features, and its gradients, by

- attention: bare scaled_dot_product_attention of the same sizes, which is the yardstick;
- flash, blocks: KernelGraph with these methods;
- dense: the matrix written out, then DenseGraph;
- keops: LazyTensor of KeOps, where it is installed (compiles for a minute at first use).

With --memory-sizes it also measures the peak of a whole layer, (given + learned).normalized() @ x
and its gradients, as N grows.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.measure import (
    Run,
    growth_exponent,
    median_ratio,
    peak_bytes,
    table,
    times_side_by_side,
    write_json,
)
from jlgcn import DenseGraph, KernelGraph, SparseGraph

YARDSTICK = "attention"


def attention(z: Tensor, x: Tensor) -> Tensor:
    """Bare attention; of one width, or PyTorch would leave the flash kernel."""
    width = max(z.shape[-1], x.shape[-1])
    q = torch.nn.functional.pad(z, (0, width - z.shape[-1]))[None, None]
    v = torch.nn.functional.pad(x, (0, width - x.shape[-1]))[None, None]
    return scaled_dot_product_attention(q, q, v)


def flash(z: Tensor, x: Tensor) -> Tensor:
    """KernelGraph as "auto" runs it at these widths."""
    return KernelGraph(z, method="flash") @ x


def blocks(z: Tensor, x: Tensor) -> Tensor:
    """KernelGraph by blocks of rows."""
    return KernelGraph(z, method="blocks") @ x


def dense(z: Tensor, x: Tensor) -> Tensor:
    """The N × N matrix and its product."""
    square = z.square().sum(-1)
    distance = square.unsqueeze(-1) + square - 2 * z @ z.mT
    return DenseGraph((-distance.clamp(min=0)).exp()) @ x


def keops(z: Tensor, x: Tensor) -> Tensor:
    """KeOps' lazy matrix."""
    from pykeops.torch import LazyTensor

    distance = ((LazyTensor(z[:, None, :]) - LazyTensor(z[None, :, :])) ** 2).sum(-1)
    product: Tensor = (-distance).exp() @ x
    return product


def layer(z: Tensor, x: Tensor) -> Tensor:
    """One layer of the paper without its weights: given plus learned, normalised, times x."""
    num_nodes = z.shape[0]
    ring = torch.arange(num_nodes)
    edges = torch.stack([ring, ring.roll(1)])
    given = SparseGraph(torch.cat([edges, edges.flip(0)], -1), num_nodes=num_nodes)
    return (given + KernelGraph(z)).normalized() @ x


CASES = {case.__name__: case for case in (attention, flash, blocks, dense, keops)}


def prepare(name: str, num_nodes: int, rank: int, channels: int, backward: bool) -> Run:
    """Return a function that runs one case on inputs of these sizes."""
    case = layer if name == "layer" else CASES[name]
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(num_nodes, rank, generator=generator).mul_(0.3).requires_grad_(backward)
    x = torch.randn(num_nodes, channels, generator=generator).requires_grad_(backward)

    def run() -> None:
        product = case(z, x)
        if backward:
            torch.autograd.grad(product.square().sum(), (z, x))

    return run


def main() -> None:
    """Parse the command line, measure, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=4096)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--channels", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--skip", nargs="*", default=[], choices=sorted(CASES), help="leave out")
    parser.add_argument("--memory-sizes", nargs="*", type=int, default=[], metavar="N")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--plot", type=Path, help="draw them here (needs the extra `plot`)")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    names = [name for name in CASES if name not in args.skip]
    if "keops" in names and importlib.util.find_spec("pykeops") is None:
        print("KeOps is not installed: left out")
        names.remove("keops")
    sizes = (args.nodes, args.rank, args.channels)
    results: dict[str, dict[str, float]] = {name: {} for name in names}
    for backward, what in ((False, "forward"), (True, "forward_backward")):
        print(f"timing {what} of {', '.join(names)} …", flush=True)
        runs = {name: prepare(name, *sizes, backward) for name in names}
        seconds = times_side_by_side(runs, args.repeats)
        for name in names:
            results[name][f"{what}_seconds"] = statistics.median(seconds[name])
            results[name][f"{what}_ratio"] = median_ratio(seconds[name], seconds[YARDSTICK])
    for name in names:
        print(f"peak of {name} …", flush=True)
        results[name]["peak_bytes"] = peak_bytes(
            prepare, name, *sizes, True, num_threads=args.threads
        )

    header = ["", "forward", "× attention", "+ backward", "× attention", "peak"]
    rows = [
        [
            name,
            f"{r['forward_seconds']:.3f} s",
            f"{r['forward_ratio']:.2f}",
            f"{r['forward_backward_seconds']:.3f} s",
            f"{r['forward_backward_ratio']:.2f}",
            f"{r['peak_bytes'] / 2**20:,.0f} MiB",
        ]
        for name, r in results.items()
    ]
    print(f"\n{args.nodes:,} nodes, rank {args.rank}, {args.channels} channels, float32, ", end="")
    print(f"{args.threads} threads, median of {args.repeats}\n\n{table(header, rows)}")

    document: dict[str, object] = {"cases": results}
    if args.memory_sizes:
        document["layer_memory"] = measure_layer(args)
    if args.json:
        settings = {key: value for key, value in vars(args).items() if key not in ("json", "plot")}
        write_json(args.json, settings, document)
    if args.plot:
        draw(args.plot, results, document.get("layer_memory"), sizes)


def measure_layer(args: argparse.Namespace) -> dict[str, object]:
    """Measure the peak of a layer and its gradients as the graph grows."""
    peaks = []
    for size in args.memory_sizes:
        peak = peak_bytes(
            prepare, "layer", size, args.rank, args.channels, True, num_threads=args.threads
        )
        peaks.append(peak)
        print(f"layer of {size:,} nodes: peak {peak / 2**20:,.1f} MiB", flush=True)
    exponent = growth_exponent(args.memory_sizes, peaks)
    print(f"the peak grows as N^{exponent:.2f}")
    return {"nodes": args.memory_sizes, "peak_bytes": peaks, "exponent": exponent}


def draw(
    path: Path, results: dict[str, dict[str, float]], memory: object, sizes: tuple[int, int, int]
) -> None:
    """Draw times and peaks as bars, and the layer's memory as a curve."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import matplotlib.ticker

    names = list(results)
    figure, axes = plt.subplots(
        1, 3 if memory else 2, figsize=(12 if memory else 8, 3.6), layout="constrained"
    )
    figure.suptitle(
        f"Exact learned graph, {sizes[0]:,} nodes, rank {sizes[1]}, {sizes[2]} channels"
    )
    position = list(range(len(names)))
    for offset, what, color in (
        (-0.2, "forward", "#3182bd"),
        (0.2, "forward_backward", "#9ecae1"),
    ):
        seconds = [results[name][f"{what}_seconds"] for name in names]
        label = what.replace("_", " + ")
        bars = axes[0].barh([p + offset for p in position], seconds, 0.38, color=color, label=label)
        ratios = [f" {results[name][f'{what}_ratio']:.2f} ×" for name in names]
        axes[0].bar_label(bars, ratios, fontsize=8)
    axes[0].set(xlabel="seconds (log scale)", xscale="log", title="time, and ratio to attention")
    axes[0].set_yticks(position, names)
    axes[0].legend(frameon=False, fontsize=8, loc="upper right")
    peaks = [results[name]["peak_bytes"] / 2**20 for name in names]
    bars = axes[1].barh(names, peaks, color="#fd8d3c")
    axes[1].bar_label(bars, [f" {peak:,.0f}" for peak in peaks], fontsize=8)
    axes[1].set(xlabel="MiB (log scale)", xscale="log", title="peak memory, forward + backward")
    for axis in axes[:2]:
        axis.margins(x=0.2)
        axis.invert_yaxis()
    if isinstance(memory, dict):
        mib = [peak / 2**20 for peak in memory["peak_bytes"]]
        sizes_measured = memory["nodes"]
        growth = [n / sizes_measured[0] for n in sizes_measured]
        axes[2].loglog(sizes_measured, [mib[0] * g**2 for g in growth], "--", c="gray", label="N²")
        axes[2].loglog(sizes_measured, [mib[0] * g for g in growth], ":", c="gray", label="N")
        axes[2].loglog(sizes_measured, mib, "o-", color="#31a354", label="measured")
        axes[2].set_xticks(sizes_measured, [f"{n:,}" for n in sizes_measured])
        axes[2].xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
        axes[2].set(
            xlabel="nodes",
            ylabel="MiB",
            title=f"peak of a layer grows as N^{memory['exponent']:.2f}",
        )
        axes[2].legend(frameon=False, fontsize=8)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    main()
