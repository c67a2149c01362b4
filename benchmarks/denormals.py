"""What denormal numbers cost: a product of the exact graph, flushed in all threads or in one.

    python -m benchmarks.denormals --nodes 8000

Points far enough apart that many weights lie between 1e-45 and 1e-38. Each case in a fresh process,
since threads take over the setting when they are started: "first" calls
torch.set_flush_denormal(True) before anything else, "late" multiplies something before it imports
jlgcn, whose kernels then flush in their own thread only.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from pathlib import Path

import torch

from benchmarks.measure import table, write_json


def seconds(is_first: bool, num_nodes: int, repeats: int, num_threads: int) -> float:
    """Return the median time of a product and its gradients."""
    torch.set_num_threads(num_threads)
    if is_first:
        torch.set_flush_denormal(True)
    torch.randn(1000, 1000).exp().sum()  # starts the threads
    from jlgcn import KernelGraph

    generator = torch.Generator().manual_seed(0)
    z = (2 * torch.randn(num_nodes, 16, generator=generator)).requires_grad_()
    x = torch.randn(num_nodes, 16, generator=generator)
    found = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        torch.autograd.grad((KernelGraph(z) @ x).sum(), z)
        found.append(time.perf_counter() - start)
    return statistics.median(found[1:])


def main() -> None:
    """Parse the command line, measure, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=8000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path, help="write the figures here")
    args = parser.parse_args()
    sizes = (args.nodes, args.repeats, args.threads)
    found = {}
    for name in ("first", "late"):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found[name] = pool.apply(seconds, (name == "first", *sizes))
    ratio = found["late"] / found["first"]
    rows = [[name, f"{found[name]:.3f} s", f"{found[name] / found['first']:.1f}"] for name in found]
    print(table(["flushed", "forward + backward", "× first"], rows))
    if args.json:
        settings = {key: value for key, value in vars(args).items() if key != "json"}
        write_json(args.json, settings, {"seconds": found, "ratio": ratio})


if __name__ == "__main__":
    main()
