"""Tables of what was measured of large data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from measured_files import GIB, points, recorded

from jlgcn.plan import plan
from jlgcn.report.tables import markdown, percent
from jlgcn.train.result import mean_and_interval


def batches(results: Path) -> str:
    """Return what mini-batches take at every size."""
    lines = [("rows", "table", "all classes", "nodes a second", "right", "tables", "peak memory")]
    for row in sizes(results):
        lines.append(
            (
                f"{row['rows']:,}",
                f"{row['search_seconds'] / row['tables']:.0f} s",
                f"{row['infer_seconds'] / (row['tables'] + 1):.0f} s",
                f"{row['nodes_per_second']:,.0f}",
                f"{100 * row['test_accuracy']:.1f}",
                str(row["tables"]),
                f"{row['peak_bytes'] / GIB:.2f} GiB",
            )
        )
    return markdown(lines)


def batches_side_by_side(results: Path) -> str:
    """Return training speeds of all sizes, measured in turn."""
    found = recorded(results / "scale/side_by_side.json")
    head = ("rows", "labels a second", "nodes of a batch", "a step", "a step, by node of its batch")
    lines = [(*head, "one of the first steps")]
    smallest = min(found["nodes_of_a_batch"].values())
    for rows, speed in found["nodes_per_second"].items():
        nodes, step = found["nodes_of_a_batch"][rows], found["time_against_smallest"][rows]
        lines.append(
            (
                f"{int(rows):,}",
                f"{speed:,.0f}",
                f"{nodes / smallest:.2f}",
                f"{step:.2f}",
                f"{step * smallest / nodes:.2f}",
                f"{found['time_against_smallest_at_first'][rows]:.2f}",
            )
        )
    return markdown(lines)


def batches_over_seeds(results: Path) -> str:
    """Return how far accuracies of one size lie apart."""
    lines = [("rows", "right, by seed", "mean")]
    for rows, accuracies in recorded(results / "scale/seeds.json").items():
        texts = ", ".join(f"{100 * accuracy:.1f}" for accuracy in accuracies)
        mean = mean_and_interval(accuracies)
        interval = f"{percent(mean['low'])} to {percent(mean['high'])}"
        lines.append((f"{int(rows):,}", texts, f"{percent(mean['mean'])} ({interval})"))
    return markdown(lines)


def out_of_core(results: Path) -> str:
    """Return what steps on rows that memory cannot hold take."""
    document = json.loads((results / "scale/out_of_core-100000000.json").read_text())
    found, cap = document["results"], document["settings"]["cap_bytes"]
    lines = [
        (f"{found['rows']:,} rows", ""),
        ("on disk", f"{found['bytes_on_disk'] / 1e9:.1f} GB"),
        ("all processes may hold, page cache included", f"{cap / GIB:.1f} GiB"),
        ("the process that trains held at most", f"{found['peak_resident_bytes'] / GIB:.2f} GiB"),
        ("processes that read for it", str(document["settings"]["workers"])),
        ("rows of a batch", f"{found['rows_of_a_batch']:,.0f}"),
        ("read from disk for a batch", f"{found['bytes_read_of_a_batch'] / 2**20:.0f} MiB"),
        ("batches a second, the first hundred", f"{found['first_hundred_per_second']:.2f}"),
        (f"batches a second, all {found['batches']:,}", f"{found['batches_per_second']:.2f}"),
    ]
    return markdown(lines)


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


def over_ray(results: Path) -> str:
    """Return what became of one table, built in four ways."""
    found = recorded(results / "scale/ray.json")
    ways = {name: way for name, way in found.items() if isinstance(way, dict)}
    lines = [("", "time", "recall", "hash of the table")]
    for name, way in ways.items():
        hashed = way["sha256"][:8]
        lines.append((name, f"{way['seconds']:.0f} s", f"{way['recall']:.4f}", f"`{hashed}`"))
    ratio = ways["over Ray"]["seconds"] / ways["in turn"]["seconds"]
    rows, stores = (found[f"bytes of {what}"] / 2**20 for what in ("rows", "object stores"))
    return markdown(lines) + (
        f"\n\nOver Ray takes {ratio:.2f} times as long as in turn. The rows take {rows:.0f} MiB, "
        f"the two object stores had {stores:.0f} MiB.\n"
    )


def ray_driver(results: Path) -> str:
    """Return the memory of the process that asks Ray for a table."""
    peaks = recorded(results / "scale/ray_driver.json")["peak bytes"]
    lines = [("rows", "peak memory of the driver")]
    lines += [(f"{int(rows):,}", f"{peak / 2**20:.0f} MiB") for rows, peak in peaks.items()]
    return markdown(lines)


def ray_training(results: Path) -> str:
    """Return the parameters that processes of torchrun and of Ray end with."""
    found = recorded(results / "scale/ray_training.json")
    lines = [("two processes of", "time, with start", "hash of the parameters")]
    for name in ("torchrun", "Ray"):
        way = found[name]
        lines.append((name, f"{way['seconds']:.0f} s", f"`{way['sha256'][:8]}`"))
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


def sampling(results: Path) -> str:
    """Return the bias of drawn neighbours by decile of degree."""
    found = recorded(results / "scale/sampling.json")
    lines = [("decile", "mean degree", "bias of degrees", "bias of logits, in their deviation")]
    for number, row in enumerate(found["deciles"], 1):
        degree, logit = f"{100 * row['degree_bias']:+.2f} %", f"{row['logit_bias']:+.4f}"
        lines.append((str(number), f"{row['mean_degree']:.1f}", degree, logit))
    accuracy = 100 * found["accuracy_drawn"], 100 * found["accuracy_all_neighbours"]
    return markdown(lines) + (
        f"\n\nOf {found['rows']:,} nodes {accuracy[0]:.1f} % of the test nodes are right by drawn "
        f"neighbours, {accuracy[1]:.1f} % by all.\n"
    )


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


def packages_by_batches(results: Path) -> str:
    """Return the accuracy of mini-batches beside the other methods on the same packages."""
    found = {
        name: recorded(results / f"scale/packages{how}-seed-0.json")
        for name, how in (("mini-batches", ""), ("all neighbours", "-all-neighbors"))
    }
    found |= json.loads((results / "packages/seed-0.json").read_text())["methods"]
    lines = [("", "accuracy", "peak memory")]
    for name, row in found.items():
        accuracy = row["test_accuracy"] if "test_accuracy" in row else row["accuracy"]
        lines.append((name, percent(accuracy), f"{row['peak_bytes'] / GIB:.2f} GiB"))
    return markdown(lines)


def plan_error(results: Path) -> str:
    """Return what the plan says of every size that was measured."""
    lines = [("rows", "memory", "planned", "error", "table and classes", "planned", "error")]
    for row in sizes(results):
        planned = plan(row["rows"], row["features"], available=1e15)
        seconds = row["search_seconds"] / row["tables"]
        seconds += 2 * row["infer_seconds"] / (row["tables"] + 1)
        says = planned.seconds["a table"] + planned.seconds["classes of all nodes"]
        lines.append(
            (
                f"{row['rows']:,}",
                f"{row['peak_bytes'] / GIB:.2f} GiB",
                f"{planned.bytes / GIB:.2f} GiB",
                f"{100 * (planned.bytes / row['peak_bytes'] - 1):+.0f} %",
                f"{seconds:.0f} s",
                f"{says:.0f} s",
                f"{100 * (says / seconds - 1):+.0f} %",
            )
        )
    return markdown(lines)


def sizes(results: Path) -> list[dict[str, Any]]:
    """Return what was measured of every size with 64 features, the smallest first."""
    found = [recorded(path) for path in results.glob("scale/batches-*.json")]
    return sorted((row for row in found if row["features"] == 64), key=lambda row: row["rows"])
