"""The closed form over shards as rows grow: fit, batch inference and update on planted rows.

    python -m benchmarks.engine_growth --rows 100000 1000000 3000000 --work /tmp/growth \
        --out results/scale/engine_growth.jsonl

64 columns: 20 clusters around centres in 16 of them, two to a class, noise in all; the first 1,000
rows are labelled at every size, and 20 neighbours are searched. After the fit as many new rows, at
most a million, are predicted, and a tenth of new rows is added by an update. A line for each, which
is not measured again; what was interrupted goes on from its files in the work folder. Memory is
anonymous memory of all processes, which leaves out the page cache of mapped files. CPU seconds of a
stage are those of all its tasks, and of what the driver does before the next.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measure import Peak
from jlgcn.closed_form import ClosedFormOptions
from jlgcn.engine import ShardedModel
from jlgcn.training.environment import versions

NUM_LABELS, NUM_COLUMNS, NUM_INFORMATIVE, NUM_CLUSTERS, NUM_CLASSES = 1000, 64, 16, 20, 10
MAX_PREDICTED = 1_000_000
_GROUP_ROWS = 2**17
_NEW_GROUP, _ADDED_GROUP = 10**6, 2 * 10**6


def classes_of(group: int, num_rows: int) -> tuple[np.ndarray, np.random.Generator]:
    """Return the cluster of every row of a group, and the generator of its noise."""
    random = np.random.default_rng([1, group])
    return random.integers(0, NUM_CLUSTERS, num_rows), random


def write(path: Path, num_rows: int, first_group: int = 0) -> None:
    """Write planted rows, group by group; the first ones of the first group have labels."""
    if path.exists():
        return
    centers = np.zeros((NUM_CLUSTERS, NUM_COLUMNS), dtype=np.float32)
    centers[:, :NUM_INFORMATIVE] = 1.25 * np.random.default_rng(0).normal(
        size=(NUM_CLUSTERS, NUM_INFORMATIVE)
    )
    schema = pa.schema([("kind", pa.string()), ("vector", pa.list_(pa.float32(), NUM_COLUMNS))])
    num_labels = 0 if first_group else NUM_LABELS
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_suffix(".half")
    with pq.ParquetWriter(half, schema) as writer:
        for group, first in enumerate(range(0, num_rows, _GROUP_ROWS)):
            size = min(_GROUP_ROWS, num_rows - first)
            cluster, random = classes_of(first_group + group, _GROUP_ROWS)
            noise = random.standard_normal((_GROUP_ROWS, NUM_COLUMNS), dtype=np.float32)
            x = (centers[cluster] + noise)[:size]
            labels = [
                str(c % NUM_CLASSES) if first + row < num_labels else None
                for row, c in enumerate(cluster[:size].tolist())
            ]
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), NUM_COLUMNS)
            writer.write_table(pa.table([pa.array(labels), vectors], schema=schema))
    half.rename(path)


def accuracy(folder: Path, num_rows: int, first_group: int = 0, skip: int = 0) -> float:
    """Return the accuracy of predictions in a folder, after so many other rows."""
    names = pq.read_table(folder, columns=["kind"]).column("kind").to_pylist()[skip:]
    found = np.array([int(name) for name in names])
    groups = range(first_group, first_group + -(-num_rows // _GROUP_ROWS))
    expected = [classes_of(group, _GROUP_ROWS)[0] for group in groups]
    y = np.concatenate(expected)[:num_rows] % NUM_CLASSES
    start = 0 if first_group else NUM_LABELS
    return float((found[: len(y)] == y)[start:].mean())


class Stages(logging.Handler):
    """Adds up what the stages that an engine logs take."""

    def __init__(self, peak: Peak) -> None:
        super().__init__(logging.INFO)
        self.found: dict[str, dict[str, float]] = {}
        self._peak, self._before = peak, 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Take the end of a stage."""
        arguments: Any = record.args
        stage, num_run, _, seconds = arguments
        empty = {"tasks": 0, "cpu_seconds": 0.0, "seconds": 0.0, "peak_anonymous_bytes": 0}
        total, now = self.found.setdefault(stage, empty), self._peak.cpu_seconds
        total["tasks"] += num_run
        total["cpu_seconds"] += now - self._before
        total["seconds"] += seconds
        highest = max(total["peak_anonymous_bytes"], self._peak.take_stage_bytes())
        total["peak_anonymous_bytes"] = highest
        self._before = now


def measure(run: Callable[[], object]) -> dict[str, Any]:
    """Run something of an engine, and return time and memory, in all and by stage."""
    logger = logging.getLogger("jlgcn.engine.tasks")
    logger.setLevel(logging.INFO)
    started = time.perf_counter()
    with Peak() as peak:
        stages = Stages(peak)
        logger.addHandler(stages)
        try:
            run()
        finally:
            logger.removeHandler(stages)
    return {
        "seconds": round(time.perf_counter() - started, 1),
        "cpu_seconds": round(peak.cpu_seconds, 1),
        "peak_anonymous_bytes": peak.num_bytes,
        "driver_anonymous_bytes": peak.own_bytes,
        "stages": {
            name: {key: round(value, 2) for key, value in total.items()}
            for name, total in stages.found.items()
        },
    }


def main() -> None:
    """Parse the command line, measure, and append lines for each size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", required=True)
    parser.add_argument("--engine", choices=["local", "ray"], default="local")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only-fit", action="store_true", help="neither predict nor update")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    by: dict[str, Any] = {"engine": args.engine, "num_workers": args.workers}
    for num_rows in args.rows:
        folder = args.work / f"{args.engine}-{num_rows}"
        model, num_new = folder / "model", min(num_rows, MAX_PREDICTED)
        items, new, added = (folder / f"{name}.parquet" for name in ("items", "new", "added"))
        case = {"rows": num_rows, "engine": args.engine, "workers": args.workers}
        if not is_there(args.out, case | {"what": "fit"}):
            write(items, num_rows)
            options = ClosedFormOptions(n_candidates=20, n_neighbors=20)
            found = measure(
                lambda: ShardedModel.fit(
                    str(items),  # noqa: B023
                    label="kind",
                    out=str(model),  # noqa: B023
                    options=options,  # noqa: B023
                    overwrite=True,
                    **by,
                )
            )
            found["accuracy"] = accuracy(model / "predictions", num_rows)
            add(args.out, case | {"what": "fit"} | found)
        if not args.only_fit and not is_there(args.out, case | {"what": "predict"}):
            write(new, num_new, _NEW_GROUP)
            fitted = ShardedModel.load(str(model))
            found = measure(lambda: fitted.predict(str(new), str(folder / "out"), **by))  # noqa: B023
            found["accuracy"] = accuracy(folder / "out", num_new, _NEW_GROUP)
            add(args.out, case | {"what": "predict", "new_rows": num_new} | found)
        if not args.only_fit and not is_there(args.out, case | {"what": "update"}):
            write(added, num_rows // 10, _ADDED_GROUP)
            fitted = ShardedModel.load(str(model))
            found = measure(lambda: fitted.update(str(added), **by))  # noqa: B023
            place = (num_rows // 10, _ADDED_GROUP, num_rows)
            found["accuracy"] = accuracy(model / "predictions", num_rows)
            found["accuracy_of_new"] = accuracy(model / "predictions", *place)
            add(args.out, case | {"what": "update", "new_rows": num_rows // 10} | found)
        if folder.exists():
            shutil.rmtree(folder)


def is_there(path: Path, case: dict[str, Any]) -> bool:
    """Whether a file has a line of a case."""
    lines = path.read_text().splitlines() if path.exists() else []
    return any(case.items() <= json.loads(line).items() for line in lines)


def add(path: Path, line: dict[str, Any]) -> None:
    """Append a line to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(line | {"environment": versions()})
    print(text, flush=True)
    with path.open("a") as file:
        file.write(text + "\n")


if __name__ == "__main__":
    main()
