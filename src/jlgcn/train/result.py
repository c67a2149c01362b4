"""Results: a file for each finished run, a line for each in the record, and their means."""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import scipy.stats
import torch

from jlgcn.train.environment import commit, versions
from jlgcn.train.fit import FitResult

SCHEMA_VERSION = 1


def config_hash(configuration: dict[str, Any]) -> str:
    """Return a short name for a configuration.

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
    """Write ``result.json`` and ``history.csv`` of a finished run, and return the former."""
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
        "data_sha256": data_sha256,
    }
    with (folder / "history.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(fitted.history[0]) if fitted.history else [])
        writer.writeheader()
        writer.writerows(fitted.history)
    # Last, and at one stroke: a run with a result is finished.
    temporary = folder / "result.json.tmp"
    temporary.write_text(json.dumps(result, indent=2) + "\n")
    os.replace(temporary, folder / "result.json")
    return result


def read_result(folder: Path) -> dict[str, Any] | None:
    """Return the result of a finished run, or None."""
    path = folder / "result.json"
    if not path.exists():
        return None
    result: dict[str, Any] = json.loads(path.read_text())
    return result


def record(runs: Path, results: Path) -> list[Path]:
    """Gather finished runs into ``<results>/<recipe>.jsonl``, a line a seed; return these files.

    A run that is recorded already, with the same configuration and seed, is replaced.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(runs.rglob("result.json")):
        result = json.loads(path.read_text())
        found.setdefault(result["recipe"], []).append(result)
    written = []
    for recipe, new in found.items():
        path = results / f"{recipe}.jsonl"
        lines = {_key(line): line for line in (*_read_lines(path), *new)}
        path.parent.mkdir(parents=True, exist_ok=True)
        ordered = sorted(lines.values(), key=lambda line: (line["variant"], line["seed"]))
        path.write_text("".join(json.dumps(line) + "\n" for line in ordered))
        written.append(path)
    return written


def read_records(results: Path) -> list[dict[str, Any]]:
    """Return all recorded lines."""
    return [line for path in sorted(results.rglob("*.jsonl")) for line in _read_lines(path)]


def summarize(lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return mean and Student-t 95 % interval over seeds, for each recipe, variant and protocol.

    Lines that traced the test nodes count twice: for the accuracy that validation selected, which
    is protocol "honest", and for that of the best test epoch, which is protocol "authors".
    """
    groups: dict[tuple[str, str, str, str], list[float]] = {}
    for line in lines:
        for protocol, metric in (("honest", "test_accuracy"), ("authors", "best_test_accuracy")):
            if line[metric] is not None:
                key = (line["recipe"], line["variant"], protocol, metric)
                groups.setdefault(key, []).append(line[metric])
    return [
        dict(zip(("recipe", "variant", "protocol", "metric"), key, strict=True)) | _interval(values)
        for key, values in groups.items()
    ]


def _interval(values: list[float]) -> dict[str, Any]:
    mean = sum(values) / len(values)
    if len(values) < 2:
        return {"mean": mean, "low": None, "high": None, "seeds": len(values)}
    error = float(scipy.stats.sem(values))
    half = float(scipy.stats.t.ppf(0.975, len(values) - 1)) * error
    return {"mean": mean, "low": mean - half, "high": mean + half, "seeds": len(values)}


def _key(line: dict[str, Any]) -> tuple[str, int]:
    return config_hash(line["configuration"]), line["seed"]


def _read_lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]
