"""Tables of what benchmarks have recorded; ``<!-- measured: NAME -->`` in a page stands for one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jlgcn.plan import plan
from jlgcn.report.tables import markdown
from jlgcn.train.result import mean_and_interval

_GIB = 2**30


def packages(results: Path) -> str:
    """Return accuracy, time and memory of all methods on the packages."""
    seeds = [json.loads(path.read_text()) for path in sorted(results.glob("packages/seed-*.json"))]
    found = [seed["methods"] for seed in seeds]
    lines = [("", "accuracy", "jlgcn is ahead by", "time", "peak memory")]
    for name in found[0]:
        mean = mean_and_interval([one[name]["accuracy"] for one in found])
        ahead = mean_and_interval(
            [one["jlgcn"]["accuracy"] - one[name]["accuracy"] for one in found]
        )
        # Only the first seed had the machine for itself.
        alone = found[0][name]
        lines.append(
            (
                name,
                f"{100 * mean['mean']:.1f}",
                "" if name == "jlgcn" else _points(ahead),
                f"{alone['seconds']:.0f} s",
                f"{alone['peak_bytes'] / _GIB:.2f} GiB",
            )
        )
    return markdown(lines)


def explained_edges(results: Path) -> str:
    """Return the first ten learned edges that were explained."""
    edges = json.loads((results / "packages/edges.json").read_text())[:10]
    lines = [("packages", "weight", "words in common", "words that set them apart")]
    for edge in edges:
        names = ", ".join(f"`{name}`" for name in edge["packages"])
        apart = ", ".join(f"{word} {part:.2f}" for word, part in edge["apart"].items())
        lines.append((names, f"{edge['weight']:.2f}", ", ".join(edge["in_common"]), apart))
    return markdown(lines)


def many_rows(results: Path) -> str:
    """Return time and memory for many rows."""
    found = _results(results / "benchmarks/many_rows.json")
    lines = [("", "right among unlabelled rows", "among new rows", "fit", "predict", "peak memory")]
    for name, row in found.items():
        if "error" in row:
            lines.append((name, row["error"], "", "", "", ""))
            continue
        predict = f"{row['predict_seconds']:.1f} s" if "predict_seconds" in row else ""
        lines.append(
            (
                name,
                f"{100 * row['accuracy']:.1f}",
                f"{100 * row['accuracy_new']:.1f}",
                f"{row['fit_seconds']:.1f} s",
                predict,
                f"{row['peak_bytes'] / _GIB:.2f} GiB",
            )
        )
    return markdown(lines)


def suggested_labels(results: Path) -> str:
    """Return what suggested labels are worth against labels drawn at random."""
    found = _results(results / "benchmarks/suggest_labels.json")
    lines = [("", "two labels a class", "as many again, by chance", "suggested", "gain")]
    for name, row in found.items():
        means = (f"{100 * row[way]:.1f}" for way in ("first", "by chance", "suggested"))
        lines.append((name, *means, _points(row["gain"])))
    return markdown(lines)


def settings_compared(results: Path) -> str:
    """Return the mean validation accuracy of every setting that was compared on fresh splits."""
    path = results / "studies/closed_form_defaults.jsonl"
    by_setting: dict[tuple[tuple[str, Any], ...], list[float]] = {}
    for line in map(json.loads, path.read_text().splitlines()):
        key = tuple(line["options"].items())
        by_setting.setdefault(key, []).append(line["val_accuracy"])
    names = [name for name, _ in next(iter(by_setting))]
    lines = [(*(name.replace("_", " ") for name in names), "validation accuracy")]
    for key, values in by_setting.items():
        lines.append(
            (*(f"{value:g}" for _, value in key), f"{100 * sum(values) / len(values):.1f}")
        )
    return markdown(lines)


def batches(results: Path) -> str:
    """Return what mini-batches take at every size."""
    lines = [("rows", "table", "all classes", "nodes a second", "right", "tables", "peak memory")]
    for row in _sizes(results):
        lines.append(
            (
                f"{row['rows']:,}",
                f"{row['search_seconds'] / row['tables']:.0f} s",
                f"{row['infer_seconds'] / (row['tables'] + 1):.0f} s",
                f"{row['nodes_per_second']:,.0f}",
                f"{100 * row['test_accuracy']:.1f}",
                str(row["tables"]),
                f"{row['peak_bytes'] / _GIB:.2f} GiB",
            )
        )
    return markdown(lines)


def batches_side_by_side(results: Path) -> str:
    """Return training speeds of all sizes, measured in turn."""
    found = _results(results / "scale/side_by_side.json")
    lines = [("rows", "labels a second", "nodes of a batch", "a step", "one of the first steps")]
    smallest = min(found["nodes_of_a_batch"].values())
    for rows, speed in found["nodes_per_second"].items():
        lines.append(
            (
                f"{int(rows):,}",
                f"{speed:,.0f}",
                f"{found['nodes_of_a_batch'][rows] / smallest:.2f}",
                f"{found['time_against_smallest'][rows]:.2f}",
                f"{found['time_against_smallest_at_first'][rows]:.2f}",
            )
        )
    return markdown(lines)


def exact_steps(results: Path) -> str:
    """Return time and memory of a training step with exact graphs."""
    found = _results(results / "scale/exact_step.json")
    lines = [("nodes", "a step", "memory above the inputs")]
    for step in found["steps"]:
        memory = f"{step['peak_bytes'] / 2**20:.0f} MiB"
        lines.append((f"{step['nodes']:,}", f"{step['seconds']:.1f} s", memory))
    grows = f"time grows with exponent {found['time_exponent']:.2f}, memory with"
    return markdown(lines) + f"\n\nOver these sizes {grows} {found['peak_exponent']:.2f}.\n"


def sharded(results: Path) -> str:
    """Return what processes share, and how far they are from one."""
    lines = [("processes", "", "error of gradients", "a step", "bytes received", "by the formula")]
    for row in _results(results / "scale/sharded.json")["rows"]:
        lines.append(
            (
                str(row["processes"]),
                row["dtype"],
                f"{row['gradient_error']:.0e}" if row["processes"] > 1 else "",
                f"{row['seconds']:.2f} s",
                f"{row['loopback_bytes_a_rank'] / 1e6:.2f} MB",
                f"{row['formula_bytes_a_rank'] / 1e6:.2f} MB",
            )
        )
    return markdown(lines)


def sampling(results: Path) -> str:
    """Return the bias of drawn neighbours by decile of degree."""
    found = _results(results / "scale/sampling.json")
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
    found = _results(results / "scale/knn_against_exact.json")
    lines = [("", "seeds", "exact", "kNN", "difference")]
    for name, row in found.items():
        means = [sum(row[way]) / len(row[way]) for way in ("exact", "knn")]
        difference = mean_and_interval(
            [b - a for a, b in zip(row["exact"], row["knn"], strict=True)]
        )
        texts = (f"{100 * mean:.1f}" for mean in means)
        lines.append((name, str(len(row["knn"])), *texts, _points(difference)))
    return markdown(lines)


def packages_by_batches(results: Path) -> str:
    """Return the accuracy of mini-batches beside the other methods on the same packages."""
    found = _results(results / "scale/packages-seed-0.json")
    others = json.loads((results / "packages/seed-0.json").read_text())["methods"]
    lines = [("", "accuracy", "peak memory")]
    for name, row in {"mini-batches": found, **others}.items():
        accuracy = row["test_accuracy"] if name == "mini-batches" else row["accuracy"]
        lines.append((name, f"{100 * accuracy:.1f}", f"{row['peak_bytes'] / _GIB:.2f} GiB"))
    return markdown(lines)


def plan_error(results: Path) -> str:
    """Return what the plan says of every size that was measured."""
    lines = [("rows", "memory", "planned", "error", "table and classes", "planned", "error")]
    for row in _sizes(results):
        planned = plan(row["rows"], row["features"], available=1e15)
        seconds = row["search_seconds"] / row["tables"]
        seconds += 2 * row["infer_seconds"] / (row["tables"] + 1)
        says = planned.seconds["a table"] + planned.seconds["classes of all nodes"]
        lines.append(
            (
                f"{row['rows']:,}",
                f"{row['peak_bytes'] / _GIB:.2f} GiB",
                f"{planned.bytes / _GIB:.2f} GiB",
                f"{100 * (planned.bytes / row['peak_bytes'] - 1):+.0f} %",
                f"{seconds:.0f} s",
                f"{says:.0f} s",
                f"{100 * (says / seconds - 1):+.0f} %",
            )
        )
    return markdown(lines)


def reliability(results: Path) -> str:
    """Return every promise that is counted or measured, with its gate and what was found."""
    lines = [("", "promised", "found")]
    for name, promised, file, found in _RELIABILITY:
        path = results / "reliability" / f"{file}.json"
        lines.append((name, promised, found(_results(path)) if path.exists() else "not run yet"))
    return markdown(lines)


def mutants(results: Path) -> str:
    """Return how many mutants were noticed, by file."""
    path = results / "reliability" / "mutation.json"
    if not path.exists():
        return "Not run yet."
    document = json.loads(path.read_text())
    found = document["results"]
    survivors: dict[str, int] = {}
    for mutant in found["survivors"]:
        survivors[mutant["path"]] = survivors.get(mutant["path"], 0) + 1
    lines = [("", "mutants")]
    lines.append(("sampled", f"{document['settings']['mutants']:,}"))
    lines.append(("possible", f"{document['settings']['possible']:,}"))
    lines.append(("tried", f"{found['tried']:,}"))
    lines.append(
        ("noticed", f"{found['killed']:,} ({100 * found['killed'] / found['tried']:.0f} %)")
    )
    lines += [(f"survived in `{name}`", str(number)) for name, number in sorted(survivors.items())]
    return markdown(lines)


def _lost_ranks(found: dict[str, Any]) -> str:
    return "; ".join(
        f"{name}: {figure['finished or named in time']} of {figure['runs']}, "
        f"{figure['finished']} finished, slowest {figure['slowest seconds']:.0f} s"
        for name, figure in found.items()
    )


def _refused(found: dict[str, Any]) -> str:
    return (
        f"{found['refused']} of {found['files']}; slowest {found['slowest seconds']:.2f} s, "
        f"at most {found['most extra bytes'] / 2**20:.0f} MiB"
    )


def _fuzzed(found: dict[str, Any]) -> str:
    counts = found["counts"].values()
    inputs, crashes, slow = (
        sum(count[name] for count in counts) for name in ("inputs", "crashes", "slow")
    )
    return f"{crashes} in {inputs:,} inputs and {found['minutes']:.0f} minutes; {slow} slow"


def _memory(found: dict[str, Any]) -> str:
    ratios = [row["ratio"] for row in found.values()]
    return f"{min(ratios):.2f} to {max(ratios):.2f} of the peak, {len(ratios)} sizes"


_RELIABILITY: list[tuple[str, str, str, Callable[[dict[str, Any]], str]]] = [
    (
        "checks of inputs, beside an epoch on Pubmed",
        "at most 1 %",
        "validation",
        lambda found: f"{100 * found['share']:.2f} %",
    ),
    (
        "kill -9 at a random time; resumed to the same bits",
        "200 of 200",
        "kills",
        lambda found: f"{found['same']} of {found['runs']} ({found['kills']} kills)",
    ),
    (
        "SIGTERM at a random time: checkpoint and code 143 in 10 s",
        "all",
        "terminations",
        lambda found: (
            f"{found['as promised']} of {found['runs']}, slowest {found['slowest seconds']} s"
        ),
    ),
    (
        "a crash at each system call of a save: the old or the new one loads",
        "all",
        "crash_points",
        lambda found: f"{found['whole']} of {found['points']}",
    ),
    (
        "one rank of four is killed or stopped: finished, or named in 120 s",
        "80 of 80",
        "ranks",
        _lost_ranks,
    ),
    ("damaged models and checkpoints refused by name", "200 of 200, 5 s", "mutants", _refused),
    ("hostile files refused, nothing run", "all, 5 s, 200 MB", "hostile", _refused),
    ("crashes of readers under fuzzing", "0 in an hour", "fuzz", _fuzzed),
    (
        "runs of one seed with the same bits",
        "20 of 20",
        "determinism",
        lambda found: f"{found['identical']} of {found['runs']}",
    ),
    (
        "growth of memory over 10,000 steps",
        "below 1 MB per 1,000",
        "soak",
        lambda found: f"{found['growth per 1,000 steps'] / 1e6:.3f} MB per 1,000",
    ),
    ("estimate of the dense graph's memory", "within 20 %", "memory", _memory),
    (
        "line and branch coverage of the package",
        "at least 92 %",
        "coverage",
        lambda found: f"{found['percent']:.1f} %",
    ),
]


TABLES: dict[str, Callable[[Path], str]] = {
    "mutants": mutants,
    "reliability": reliability,
    "packages": packages,
    "explained edges": explained_edges,
    "many rows": many_rows,
    "settings compared": settings_compared,
    "suggested labels": suggested_labels,
    "batches": batches,
    "batches side by side": batches_side_by_side,
    "exact steps": exact_steps,
    "sharded": sharded,
    "sampling": sampling,
    "knn against exact": knn_against_exact,
    "packages by batches": packages_by_batches,
    "plan error": plan_error,
}


def _sizes(results: Path) -> list[dict[str, Any]]:
    """Return what was measured of every size with 64 features, the smallest first."""
    found = [_results(path) for path in results.glob("scale/batches-*.json")]
    return sorted((row for row in found if row["features"] == 64), key=lambda row: row["rows"])


def _results(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())["results"]
    return found


def _points(row: dict[str, Any]) -> str:
    mean = f"{100 * row['mean']:+.1f}"
    return (
        mean
        if row["low"] is None
        else f"{mean} ({100 * row['low']:.1f} to {100 * row['high']:.1f})"
    )
