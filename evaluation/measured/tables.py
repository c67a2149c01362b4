"""Tables of what benchmarks have recorded, by the names that documents call them by."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from evaluation.claim_tables import MARK, SEEN_BEFORE
from evaluation.measured.files import GIB, points, recorded
from evaluation.measured.reliability import mutants, reliability
from evaluation.measured.scale import (
    engine_bytes,
    engine_costs,
    engine_fashion,
    engine_growth,
    engine_machines,
    engine_packages,
    engine_stages,
    exact_steps,
    knn_against_exact,
    peers,
    sharded,
)
from jlgcn._stats import mean_and_interval
from jlgcn.paper.tables import markdown


def packages(results: Path) -> str:
    """Return accuracy, time and memory of all methods on the packages."""
    seeds = [json.loads(path.read_text()) for path in sorted(results.glob("packages/seed-*.json"))]
    found = [seed["methods"] for seed in seeds]
    lines = [("", "accuracy", "closed form is ahead by", "time", "peak memory")]
    for name in found[0]:
        mean = mean_and_interval([one[name]["accuracy"] for one in found])
        ahead = mean_and_interval(
            [one["closed form"]["accuracy"] - one[name]["accuracy"] for one in found]
        )
        # Only the first seed had the machine for itself.
        alone = found[0][name]
        lines.append(
            (
                name,
                f"{100 * mean['mean']:.1f}",
                "" if name == "closed form" else points(ahead),
                f"{alone['seconds']:.0f} s",
                f"{alone['peak_bytes'] / GIB:.2f} GiB",
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
    found = recorded(results / "benchmarks/many_rows.json")
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
                f"{row['peak_bytes'] / GIB:.2f} GiB",
            )
        )
    return markdown(lines)


def suggested_labels(results: Path) -> str:
    """Return what suggested labels are worth against labels drawn at random."""
    found = recorded(results / "benchmarks/suggest_labels.json")
    lines: list[Sequence[str]] = [
        ("", "two labels a class", "as many again, by chance", "suggested", "gain")
    ]
    for name, row in found.items():
        means = (f"{100 * row[way]:.1f}" for way in ("first", "by chance", "suggested"))
        lines.append((name, *means, points(row["gain"])))
    return markdown(lines)


def labelling(results: Path) -> str:
    """Return processor seconds of a round of labelling, by number of labels."""
    steps = ("fit", "suggest_labels", "update", "update, relearn")
    lines: list[Sequence[str]] = [("labels", *steps)]
    for row in recorded(results / "benchmarks/labelling.json").values():
        lines.append((f"{row['labels']}", *(f"{row[f'{step}, cpu']:.2f}" for step in steps)))
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


def powers_compared(results: Path) -> str:
    """Return validation accuracies on fresh splits for every power of the weights of words."""
    path = results / "studies/closed_form_words.jsonl"
    found: dict[tuple[str, float], list[float]] = {}
    for line in map(json.loads, path.read_text().splitlines()):
        found.setdefault((line["claim"], line["power"]), []).append(line["val_accuracy"])
    lines = [("", "power", "validation accuracy of each split")]
    for (claim, power), values in found.items():
        lines.append((claim, f"{power:g}", ", ".join(f"{100 * value:.1f}" for value in values)))
    return markdown(lines)


def tried_after(results: Path) -> str:
    """Return what further attempts gained on fresh splits, paired by split."""
    path = results / "studies/closed_form_tried.jsonl"
    found: dict[str, list[dict[str, float]]] = {}
    for line in map(json.loads, path.read_text().splitlines()):
        found.setdefault(line["claim"], []).append(line["accuracy"])
    start, *others = next(iter(found.values()))[0]
    lines = [("", start, *others)]
    for claim, splits in found.items():
        gains = (mean_and_interval([one[name] - one[start] for one in splits]) for name in others)
        mean = sum(one[start] for one in splits) / len(splits)
        lines.append((claim, f"{100 * mean:.1f}", *map(points, gains)))
    return markdown(lines)


def classifiers_compared(results: Path) -> str:
    """Return what each step towards the classifier that was frozen gains, paired by split."""
    path = results / "studies/closed_form_classifiers.jsonl"
    found: dict[str, dict[str, dict[int, float]]] = {}
    for line in map(json.loads, path.read_text().splitlines()):
        by_step = found.setdefault(line["claim"], {})
        by_step.setdefault(line["step"], {})[line["split"]] = line["accuracy"]
    start, *others = ("before", "temperature", "inputs", "kernel", "512", "1024")
    lines = [("", start, *others)]
    for claim, by_step in found.items():
        before = by_step[start]
        cells = [f"{100 * fmean(before.values()):.1f}"]
        for step in others:
            gains = [value - before[split] for split, value in by_step.get(step, {}).items()]
            cells.append(f"{100 * fmean(gains):+.1f} ({len(gains)})" if gains else "")
        lines.append((claim + (MARK if claim in SEEN_BEFORE else ""), *cells))
    return markdown(lines)


_MAKERS: dict[str, Callable[[Path], str]] = {
    "measured/mutants": mutants,
    "measured/reliability": reliability,
    "measured/packages": packages,
    "measured/explained-edges": explained_edges,
    "measured/many-rows": many_rows,
    "measured/settings-compared": settings_compared,
    "measured/powers-compared": powers_compared,
    "measured/tried-after": tried_after,
    "measured/classifiers-compared": classifiers_compared,
    "measured/suggested-labels": suggested_labels,
    "measured/engine-packages": engine_packages,
    "measured/engine-fashion": engine_fashion,
    "measured/engine-growth": engine_growth,
    "measured/engine-stages": engine_stages,
    "measured/engine-bytes": engine_bytes,
    "measured/engine-machines": engine_machines,
    "measured/engine-costs": engine_costs,
    "measured/labelling": labelling,
    "measured/exact-steps": exact_steps,
    "measured/sharded": sharded,
    "measured/peers": peers,
    "measured/knn-against-exact": knn_against_exact,
}


def measured_tables(results: Path = Path("results")) -> dict[str, str]:
    """Return all tables as Markdown by name."""
    return {name: make(results) for name, make in _MAKERS.items()}
