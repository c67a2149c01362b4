"""The closed form on 60,506 packages, in memory and by an engine: accuracy, CPU seconds, memory.

    JLGCN_DATA=… python -m benchmarks.engine_fits --seed 0 --where local \
        --out results/packages/engine.jsonl

500 labels and half of the dependencies, drawn by the seed as in `evaluation/studies/packages.py`. A
line that is there is not measured again. Memory is the largest anonymous memory of all processes,
which leaves out the page cache of mapped files. CPU seconds of Ray are those of its workers and of
what it runs besides.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from benchmarks.measure import Peak, in_own_process
from evaluation.studies.packages import Problem, fit_estimator, load
from jlgcn.engine import ShardedModel
from jlgcn.engine.executors import EngineName
from jlgcn.training.environment import versions

Found = dict[str, Any]


def in_memory(seed: int) -> Found:
    """Fit the estimator."""
    problem = load(seed)
    with Peak() as peak:
        predicted = fit_estimator(problem).transduction_
    return _found(problem, predicted, peak)


def by_engine(seed: int, engine: EngineName) -> Found:
    """Fit by an engine: the local one in this process, Ray with one core."""
    problem = load(seed)
    folder = Path(tempfile.mkdtemp())
    try:
        write(problem, folder)
        with Peak() as peak:
            ShardedModel.fit(
                str(folder / "items"),
                label="section",
                id_column="name",
                edges=str(folder / "edges.parquet"),
                out=str(folder / "model"),
                num_workers=1,
                engine=engine,
            )
        found = _found(problem, read_predictions(folder / "model", "section"), peak)
        return found | {"sha256_of_predictions": hash_of_files(folder / "model" / "predictions")}
    finally:
        shutil.rmtree(folder)


def hash_of_files(folder: Path) -> str:
    """Return a hash of names and contents of the files in a folder."""
    found = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        found.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def write(problem: Problem, folder: Path) -> None:
    """Write packages and dependencies as Parquet, with names as ids."""
    (folder / "items").mkdir()
    schema = pa.schema(
        [
            ("name", pa.string()),
            ("section", pa.string()),
            ("words", pa.list_(pa.float32(), problem.x.shape[1])),
        ]
    )
    with pq.ParquetWriter(folder / "items" / "packages.parquet", schema) as writer:
        for start in range(0, len(problem.y), 4096):
            rows = slice(start, start + 4096)
            x = problem.x[rows].toarray()
            words = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), x.shape[1])
            labels = [None if label < 0 else f"{label:02d}" for label in problem.few[rows]]
            names = pa.array(problem.names[rows].tolist())
            writer.write_table(pa.table([names, pa.array(labels), words], schema=schema))
    ends = [problem.names[side].tolist() for side in problem.edges]
    pq.write_table(pa.table(ends, names=["package", "needs"]), folder / "edges.parquet")


def read_predictions(model: Path, label: str) -> np.ndarray:
    """Return the predicted classes of all rows, as numbers."""
    files = sorted((model / "predictions").glob("*.parquet"))
    names = [name for file in files for name in pq.read_table(file).column(label).to_pylist()]
    return np.array([int(name) for name in names])


def _found(problem: Problem, predicted: np.ndarray, peak: Peak) -> Found:
    hidden = problem.few < 0
    return {
        "accuracy": float((predicted == problem.y)[hidden].mean()),
        "cpu_seconds": round(peak.cpu_seconds, 1),
        "peak_anonymous_bytes": peak.num_bytes,
        "driver_anonymous_bytes": peak.own_bytes,
    }


WHERE: dict[str, Callable[[int], Found]] = {
    "memory": in_memory,
    "local": partial(by_engine, engine="local"),
    "ray": partial(by_engine, engine="ray"),
}


def main() -> None:
    """Parse the command line, measure, and append a line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--where", choices=[*WHERE], default="local")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    lines = args.out.read_text().splitlines() if args.out.exists() else []
    if any((f := json.loads(x))["seed"] == args.seed and f["where"] == args.where for x in lines):
        return
    threads = torch.get_num_threads()
    found = in_own_process(WHERE[args.where], args.seed, num_threads=threads)
    line = {"seed": args.seed, "where": args.where, **found, "environment": versions()}
    print(json.dumps(line))
    with args.out.open("a") as file:
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
