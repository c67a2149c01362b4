"""Tables of what was measured of large data."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from evaluation.measured.files import GIB, points, recorded
from jlgcn._stats import mean_and_interval
from jlgcn.closed_form import ClosedFormOptions
from jlgcn.engine.plan import STAGES, Size, load_constants
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


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return what each line of a file holds."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def engine_fits(results: Path, name: str) -> str:
    """Return accuracy, time and memory of fits in memory and by engines."""
    found = lines_of(results / name)
    names = {"memory": "in memory", "local": "`--engine local`", "ray": "`--engine ray`"}
    lines = [("", "draw", "accuracy", "CPU time", "memory", "of the driver")]
    for where in ("logistic regression", *names):
        for row in sorted((r for r in found if r["where"] == where), key=lambda r: int(r["seed"])):
            driver = row.get("driver_anonymous_bytes", row["peak_anonymous_bytes"])
            lines.append(
                (
                    names.get(where, where),
                    str(row["seed"]),
                    f"{100 * row['accuracy']:.2f} %",
                    f"{row['cpu_seconds']:.0f} s",
                    f"{row['peak_anonymous_bytes'] / GIB:.2f} GiB",
                    f"{driver / GIB:.2f} GiB" if where == "ray" else "",
                )
            )
    return markdown(lines)


def engine_packages(results: Path) -> str:
    """Return fits to 60,506 packages."""
    return engine_fits(results, "packages/engine.jsonl")


def engine_fashion(results: Path) -> str:
    """Return fits to 70,000 images."""
    return engine_fits(results, "scale/fashion.jsonl")


def engine_growth(results: Path) -> str:
    """Return time and memory of fits, predictions and updates as rows grow."""
    found = lines_of(results / "scale/engine_growth.jsonl")
    by = {(row["what"], row["rows"]): row for row in found if row["engine"] == "local"}
    fitted = ("rows", "CPU time of the fit", "time", "memory", "of the driver", "accuracy")
    lines: list[Sequence[str]] = [(*fitted, "new rows a second", "update", "accuracy")]
    sizes = sorted(rows for what, rows in by if what == "fit")
    for rows in sizes:
        fit = by["fit", rows]
        cells = ["", "", ""]
        if ("predict", rows) in by:
            predict = by["predict", rows]
            cells[0] = f"{predict['new_rows'] / predict['seconds']:,.0f}"
        if ("update", rows) in by:
            update = by["update", rows]
            share = update["cpu_seconds"] / fit["cpu_seconds"]
            cells[1] = f"{update['cpu_seconds']:.0f} s ({100 * share:.0f} %)"
            cells[2] = f"{100 * update['accuracy']:.1f} %"
        lines.append(
            (
                f"{rows:,}",
                f"{fit['cpu_seconds']:,.0f} s",
                f"{fit['seconds'] / 60:.1f} min",
                f"{fit['peak_anonymous_bytes'] / GIB:.1f} GiB",
                f"{fit['driver_anonymous_bytes'] / GIB:.2f} GiB",
                f"{100 * fit['accuracy']:.1f} %",
                *cells,
            )
        )
    text = markdown(lines)
    if len(sizes) > 1:
        ends = [by["fit", rows] for rows in (sizes[0], sizes[-1])]
        span = math.log(sizes[-1] / sizes[0])
        time, memory = (
            math.log(ends[1][key] / ends[0][key]) / span
            for key in ("cpu_seconds", "peak_anonymous_bytes")
        )
        text += f"\n\nTime grows with exponent {time:.2f}, memory with {memory:.2f}."
    drivers = [
        f"{row['driver_anonymous_bytes'] / GIB:.2f} GiB at {row['rows']:,} rows"
        for row in found
        if row["engine"] == "ray"
    ]
    if drivers:
        text += f" The driver of a fit by Ray takes {' and '.join(drivers)}."
    return text + "\n"


def engine_stages(results: Path) -> str:
    """Return where the time of the largest recorded fit goes, and what was planned."""
    found = lines_of(results / "scale/engine_growth.jsonl")
    fits = [row for row in found if row["what"] == "fit" and row["engine"] == "local"]
    largest = max(fits, key=lambda row: int(row["rows"]))
    constants = load_constants(results / "scale/plan_constants.json")
    size = planted(largest["rows"])
    lines = [(f"{largest['rows']:,} rows", "CPU time", "planned")]
    for kind, stages in STAGES.items():
        seconds = sum(largest["stages"].get(s, {"cpu_seconds": 0})["cpu_seconds"] for s in stages)
        expected = constants[kind] * size.work()[kind] / 1e9
        lines.append((kind, f"{seconds:,.0f} s", f"{expected:,.0f} s"))
    time, memory = size.seconds(constants), largest["workers"] * size.task_bytes()
    found_time, found_memory = largest["cpu_seconds"], largest["peak_anonymous_bytes"]
    lines.append(("all, with the driver", f"{found_time:,.0f} s", f"{time:,.0f} s"))
    lines.append(("memory", f"{found_memory / GIB:.1f} GiB", f"{memory / GIB:.1f} GiB"))
    off = [
        f"{100 * (ours / measured - 1):+.0f} %"
        for ours, measured in ((time, found_time), (memory, found_memory))
    ]
    return markdown(lines) + f"\n\nThe plan is off by {off[0]} in time and {off[1]} in memory.\n"


def planted(rows: int) -> Size:
    """Return the size of planted rows."""
    options = ClosedFormOptions(n_candidates=20, n_neighbors=20)
    return Size(num_rows=rows, num_features=64, options=options)


def engine_bytes(results: Path) -> str:
    """Return bytes that were counted on the loopback device, by stage."""
    document = json.loads((results / "scale/engine_bytes.json").read_text())
    found, rows = document["results"], document["settings"]["rows"]
    lines = [(f"{rows:,} rows", "counted", "by the formula")]
    for kind, row in found["stages"].items():
        counted, expected = row["counted_bytes"], row["formula_bytes"]
        lines.append((kind, f"{counted / 1e6:.1f} MB", f"{expected / 1e6:.1f} MB"))
    return markdown(lines)


def engine_machines(results: Path) -> str:
    """Return the time of each stage on one machine of a Ray cluster and on two."""
    document = json.loads((results / "scale/engine_machines.json").read_text())
    runs = document["results"]["seconds_by_stage"]
    head = (f"{document['settings']['rows']:,} rows", "one machine", "two", "times as fast")
    lines: list[Sequence[str]] = [head]
    for kind, stages in [*STAGES.items(), ("all", None)]:
        seconds = [
            fmean(sum(t for s, t in run.items() if s in (stages or run)) for run in runs[count])
            for count in ("1", "2")
        ]
        lines.append(
            (kind, *(f"{each:.1f} s" for each in seconds), f"{seconds[0] / seconds[1]:.2f}")
        )
    return markdown(lines)


def engine_costs(results: Path) -> str:
    """Return what fits of very many rows would take, by the constants measured here."""
    constants = load_constants(results / "scale/plan_constants.json")
    lines = [("rows", "CPU time", "cores for an hour", "largest task", "index", "graph", "files")]
    for rows in (10**7, 10**8, 10**9, 10**10):
        size = planted(rows)
        traffic = size.traffic()
        files = sum(put for put, *_ in traffic.values())
        graph = size.num_entries * 8
        lines.append(
            (
                f"{rows:,}",
                f"{size.seconds(constants) / 3600:,.0f} h",
                f"{math.ceil(size.seconds(constants) / 3600):,}",
                f"{size.task_bytes() / GIB:,.0f} GiB",
                f"{rows * (4 * 64 + 8) / GIB:,.0f} GiB",
                f"{graph / GIB:,.0f} GiB",
                f"{files / GIB:,.0f} GiB",
            )
        )
    return markdown(lines)
