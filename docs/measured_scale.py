"""Tables of what was measured of large data."""

from __future__ import annotations

from pathlib import Path

from measured_files import points, recorded

from jlgcn._stats import mean_and_interval
from jlgcn.paper.tables import markdown


def exact_steps(results: Path) -> str:
    """Return time and memory of a training step with exact graphs."""
    found = recorded(results / "scale/exact_step.json")
    lines = [("nodes", "a step", "memory above the inputs")]
    for step in found["steps"]:
        memory = f"{step['peak_bytes'] / 2**20:.0f} MiB"
        lines.append((f"{step['nodes']:,}", f"{step['seconds']:.1f} s", memory))
    grows = f"time grows with exponent {found['time_exponent']:.2f}, memory with"
    return markdown(lines) + f"\n\nOver these sizes {grows} {found['peak_exponent']:.2f}.\n"


def sharded(results: Path) -> str:
    """Return what processes share, and how far they are from one."""
    head = ("nodes", "", "processes", "error of gradients", "a step", "received", "by the formula")
    lines = [head]
    for nodes in (4_000, 10_000):
        for row in recorded(results / f"scale/sharded-{nodes}.json")["rows"]:
            lines.append(
                (
                    f"{nodes:,}",
                    row["dtype"],
                    str(row["processes"]),
                    f"{row['gradient_error']:.0e}" if row["processes"] > 1 else "",
                    f"{row['seconds']:.2f} s",
                    f"{row['loopback_bytes_a_rank'] / 1e6:.2f} MB",
                    f"{row['formula_bytes_a_rank'] / 1e6:.2f} MB",
                )
            )
    return markdown(lines)


def peers(results: Path) -> str:
    """Return how long other methods take at each size, and where they stop."""
    found = recorded(results / "scale/peers.json")
    sizes = sorted({int(size) for method in found.values() for size in method})
    lines = [("", *(f"{size:,} nodes" for size in sizes))]
    for name, method in found.items():
        cells = []
        for size in sizes:
            result = method.get(str(size))
            if result is None:
                cells.append("not tried")
            elif "stopped" in result:
                cells.append("out of memory")
            else:
                memory = result["peak bytes"] / 2**20
                cells.append(f"{result['seconds']:.2f} s, {memory:,.0f} MiB")
        lines.append((name, *cells))
    return markdown(lines)


def knn_against_exact(results: Path) -> str:
    """Return accuracies of kNN and exact graphs, seed by seed."""
    found = recorded(results / "scale/knn_against_exact.json")
    lines = [("", "neighbours", "seeds", "exact", "kNN", "difference", "on validation nodes")]
    for row in found["pairs"]:
        means = [sum(row[way]) / len(row[way]) for way in ("exact", "knn")]
        texts = [f"{100 * mean:.1f}" for mean in means]
        for end in ("", "_val"):
            pairs = zip(row[f"exact{end}"], row[f"knn{end}"], strict=True)
            texts.append(points(mean_and_interval([knn - exact for exact, knn in pairs])))
        seeds = str(len(row["seeds"]))
        lines.append((row["data"].title(), str(row["num_neighbors"]), seeds, *texts))
    return markdown(lines)
