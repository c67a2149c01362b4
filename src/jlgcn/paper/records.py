"""Results: a folder of files per finished run, and records with one line per seed."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import torch

from jlgcn._files import locked, write_file
from jlgcn.distributed.collectives import process_group
from jlgcn.training.environment import commit, versions
from jlgcn.training.loop import FitResult

SCHEMA_VERSION = 1

#: Further results of a run, for figures: weights among nodes, weights of a point, confusion matrix.
KEPT = ("graphs", "weights", "confusion")

_CURVE = ("epoch", "loss", "val_accuracy", "test_accuracy")


def config_hash(configuration: dict[str, Any]) -> str:
    """Return the first 12 digits of a configuration's SHA-256.

    Example:
        >>> config_hash({"epochs": 3}) == config_hash({"epochs": 4})
        False
    """
    text = json.dumps(configuration, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def write_result(
    folder: Path,
    fitted: FitResult,
    *,
    recipe: str,
    variant: str,
    protocol: str,
    configuration: dict[str, Any],
    seed: int,
    data_sha256: str,
) -> dict[str, Any]:
    """Write ``history.csv`` and ``result.json`` of a finished run, and return the result."""
    environment = versions()
    result = {
        "schema": SCHEMA_VERSION,
        "recipe": recipe,
        "variant": variant,
        "protocol": protocol,
        "configuration": configuration,
        "seed": seed,
        "commit": commit(),
        "best_epoch": fitted.best_epoch,
        "val_accuracy": fitted.val_accuracy,
        "test_accuracy": fitted.test_accuracy,
        "best_test_accuracy": fitted.best_test_accuracy,
        "seconds": round(fitted.seconds, 3),
        "peak_bytes": fitted.peak_bytes,
        "parameter_sha256": fitted.parameter_sha256,
        "versions": {name: environment[name] for name in ("jlgcn", "python", "torch", "numpy")},
        "hardware": environment["processor"],
        "threads": torch.get_num_threads(),
        "processes": process_group()[1],
        "data_sha256": data_sha256,
    } | fitted.measured
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(fitted.history[0]) if fitted.history else [])
    writer.writeheader()
    writer.writerows(fitted.history)
    write_file(folder / "history.csv", text.getvalue())
    # Last, because it marks a run as finished.
    write_file(folder / "result.json", json.dumps(result, indent=2) + "\n")
    return result


def read_result(folder: Path) -> dict[str, Any] | None:
    """Return the result of a run, or None if it is not finished."""
    path = folder / "result.json"
    if not path.exists():
        return None
    result: dict[str, Any] = json.loads(path.read_text())
    return result


def record(runs: Path, results: Path) -> list[Path]:
    """Collect finished runs in ``<results>/<recipe>.jsonl``, one line per seed; return these files.

    A line with the same configuration and seed is replaced. For seed 0 of every variant,
    ``<recipe>.curves.csv`` has every tenth epoch of its history, and ``<recipe>.<name>.json`` each
    further result (:data:`KEPT`). A lock serialises processes that write to the same folder.

    Args:
        runs (Path): folder of runs, the `out` of :func:`jlgcn.paper.run_seed`.
        results (Path): folder of records.
    """
    found: dict[str, list[Path]] = {}
    for path in sorted(runs.rglob("result.json")):
        found.setdefault(json.loads(path.read_text())["recipe"], []).append(path)
    if not found:
        return []
    results.mkdir(parents=True, exist_ok=True)
    with locked(results):
        return [_record_recipe(recipe, paths, results) for recipe, paths in found.items()]


def _record_recipe(recipe: str, paths: list[Path], results: Path) -> Path:
    new = [json.loads(path.read_text()) for path in paths]
    path = results / f"{recipe}.jsonl"
    lines = {
        (config_hash(line["configuration"]), line["seed"]): line
        for line in (*read_lines(path), *new)
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    ordered = sorted(lines.values(), key=lambda line: (line["variant"], line["seed"]))
    write_file(path, "".join(json.dumps(line) + "\n" for line in ordered))
    first = {
        line["variant"]: found.parent
        for line, found in zip(new, paths, strict=True)
        if line["seed"] == 0
    }
    _record_curves(results / f"{recipe}.curves.csv", first)
    for name in KEPT:
        _record_kept(results / f"{recipe}.{name}.json", first, name)
    return path


def read_curves(path: Path) -> dict[str, list[dict[str, float]]]:
    """Return the recorded epochs of every variant; none without the file."""
    curves: dict[str, list[dict[str, float]]] = {}
    if path.exists():
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                values = {key: float(row[key]) for key in _CURVE if row[key] != ""}
                curves.setdefault(row["variant"], []).append(values)
    return curves


def read_kept(path: Path) -> dict[str, Any]:
    """Return a further result (:data:`KEPT`) of every variant; none without the file."""
    kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return kept


def _record_kept(path: Path, folders: dict[str, Path], name: str) -> None:
    kept = read_kept(path)
    for variant, folder in folders.items():
        if (folder / f"{name}.json").exists():
            kept[variant] = json.loads((folder / f"{name}.json").read_text())
    if kept:
        write_file(path, json.dumps(kept) + "\n")


def _record_curves(path: Path, folders: dict[str, Path]) -> None:
    curves = read_curves(path)
    for variant, folder in folders.items():
        with (folder / "history.csv").open(newline="") as file:
            rows = [
                {key: float(value) for key, value in row.items()} for row in csv.DictReader(file)
            ]
        curves[variant] = [row for row in rows if row["epoch"] % 10 == 0]
    if not any(curves.values()):  # closed-form fits have no epochs
        return
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["variant", *_CURVE])
    for variant in sorted(curves):
        for row in curves[variant]:
            writer.writerow([variant, *(f"{row[key]:.4g}" if key in row else "" for key in _CURVE)])
    write_file(path, text.getvalue())


def read_records(results: Path) -> list[dict[str, Any]]:
    """Return the lines of all records below a folder."""
    lines = (line for path in sorted(results.rglob("*.jsonl")) for line in read_lines(path))
    return [line for line in lines if "configuration" in line]  # which studies do not have


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a JSON Lines file; none without the file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]
