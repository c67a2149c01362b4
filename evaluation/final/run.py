"""Run the final evaluation: a line for every reading of test labels, another for its result.

Predictions are made before test labels are opened, and a result is written right after.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from evaluation.final.methods import methods, seeds
from evaluation.final.rows import FinalProblem, Row, Split, load
from evaluation.final.sealed import FREEZE, KEY
from jlgcn._files import locked, write_file
from jlgcn.paper.records import read_lines
from jlgcn.training.environment import commit

RESULTS = Path("results/final")


def run(
    wanted: Iterable[Row],
    root: Path | None,
    out: Path,
    only: Sequence[str],
) -> Iterator[dict[str, Any]]:
    """Fit what the files do not have, row by row, and yield the results.

    Args:
        wanted: rows.
        root: folder of the data.
        out: folder with a file for each row.
        only: methods; none for all.
    """
    version = commit()
    if version is None or version.endswith("-dirty"):
        raise ValueError(
            f"test labels are read by committed code only, but the commit is {version}; commit "
            "the source, and run again"
        )
    torch.set_flush_denormal(True)
    for row in wanted:
        path = out / f"{row.name}.jsonl"
        for number in range(row.num_splits):
            split = load(row, number, root)
            problem = FinalProblem(split)
            for method, fit in methods(row, split, number).items():
                if only and method not in only:
                    continue
                for seed in seeds(method, row):
                    key = {"method": method, "split": number, "seed": seed, "freeze": FREEZE}
                    if _is_done(path, key):
                        continue
                    started = time.process_time()
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        found = fit(problem, number if row.num_splits > 1 else seed)
                    seconds = round(time.process_time() - started, 1)
                    line = {"cpu_seconds": seconds, "chosen": found.chosen}
                    yield score(row, split, found.classes, path, key, version, line)


def score(
    row: Row,
    split: Split,
    classes: Any,  # noqa: ANN401
    path: Path,
    key: dict[str, Any],
    version: str,
    line: dict[str, Any],
) -> dict[str, Any]:
    """Open the test labels for predicted classes, and write the result."""
    labels = split.sealed.open(path, key | {"commit": version}).numpy()
    are_right = np.asarray(classes)[split.sealed.nodes.numpy()] == labels
    result = key | {"accuracy": round(float(are_right.mean()), 5), "commit": version} | line
    if row.num_splits == 1:  # pairs of methods are compared by test node
        result["correct"] = np.packbits(are_right).tobytes().hex()
        result["num_test"] = len(are_right)
    with locked(path.parent):
        lines = [*read_lines(path), result]
        write_file(path, "".join(json.dumps(each) + "\n" for each in lines))
    return {"row": row.name} | result


def _is_done(path: Path, key: dict[str, Any]) -> bool:
    wanted = [key[name] for name in KEY]
    return any(
        [line[name] for name in KEY] == wanted for line in read_lines(path) if "accuracy" in line
    )
