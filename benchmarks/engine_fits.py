"""The closed form in memory and by an engine: accuracy, CPU seconds, memory.

    JLGCN_DATA=… python -m benchmarks.engine_fits packages --seed 0 --where local \
        --out results/packages/engine.jsonl
    python -m benchmarks.engine_fits fashion --seed 0 --where ray --out results/scale/fashion.jsonl

60,506 packages with 500 labels and half of the dependencies, drawn by the seed as in
`evaluation/studies/packages.py`; 70,000 images of Fashion-MNIST (Debian package
`dataset-fashion-mnist`) with 10 labels of each class and no graph. A line that is there is not
measured again. Memory is the largest anonymous memory of all processes, which leaves out the page
cache of mapped files. CPU seconds of Ray are those of its workers and of what it runs besides.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
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
import scipy.sparse
import torch

from benchmarks.engine_growth import add, is_there
from benchmarks.measure import Peak, in_own_process
from evaluation.studies.packages import Problem, by_logistic_regression, fit_estimator, load
from jlgcn import JLGCNClassifier
from jlgcn.engine import ShardedModel
from jlgcn.engine.executors import EngineName

Found = dict[str, Any]

FASHION = Path("/usr/share/datasets/fashion-mnist")


def load_fashion(seed: int) -> Problem:
    """Read images, as numbers from 0 to 1, and draw labels."""
    images, y = _fashion()
    few = np.full(len(y), -1)
    generator = np.random.default_rng(seed)
    for kind in range(10):
        few[generator.choice(np.flatnonzero(y == kind), 10, replace=False)] = kind
    names = np.array([f"image {row}" for row in range(len(y))])
    none = np.zeros((2, 0), dtype=np.int64)
    return Problem(images, y, few, none, names, np.array([]), none)


def _fashion() -> tuple[np.ndarray, np.ndarray]:
    found: dict[str, list[np.ndarray]] = {"images-idx3": [], "labels-idx1": []}
    for part in ("train", "t10k"):
        for kind, header in (("images-idx3", 16), ("labels-idx1", 8)):
            content = gzip.decompress((FASHION / f"{part}-{kind}-ubyte.gz").read_bytes())
            found[kind].append(np.frombuffer(content, dtype=np.uint8)[header:])
    images, y = (np.concatenate(parts) for parts in found.values())
    return images.reshape(len(y), -1).astype(np.float32) / 255, y.astype(np.int64)


DATA: dict[str, Callable[[int], Problem]] = {"packages": load, "fashion": load_fashion}


def by_logistic(problem: Problem) -> Found:
    """Fit logistic regression to the labelled rows alone."""
    with Peak() as peak:
        predicted = by_logistic_regression(problem)
    return _found(problem, predicted, peak)


def in_memory(problem: Problem) -> Found:
    """Fit the estimator."""
    with Peak() as peak:
        if problem.edges.shape[1]:
            model = fit_estimator(problem)
        else:
            model = JLGCNClassifier().fit(problem.x, problem.few)
    return _found(problem, model.transduction_, peak)


def by_engine(problem: Problem, engine: EngineName) -> Found:
    """Fit by an engine: the local one in this process, Ray with one core."""
    folder = Path(tempfile.mkdtemp())
    try:
        write(problem, folder)
        with Peak() as peak:
            ShardedModel.fit(
                str(folder / "items"),
                label="label",
                id_column="name",
                edges=str(folder / "edges.parquet") if problem.edges.shape[1] else None,
                out=str(folder / "model"),
                num_workers=1,
                engine=engine,
            )
        found = _found(problem, read_predictions(folder / "model", "label"), peak)
        return found | {"sha256_of_predictions": hash_of_files(folder / "model" / "predictions")}
    finally:
        shutil.rmtree(folder)


def hash_of_files(folder: Path) -> str:
    """Return a hash of the contents of the files of all shards, whose names depend on the input."""
    found = hashlib.sha256()
    for path in sorted(folder.iterdir()):  # by number of the shard
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def write(problem: Problem, folder: Path) -> None:
    """Write rows and edges as Parquet, with names as ids."""
    (folder / "items").mkdir()
    schema = pa.schema(
        [
            ("name", pa.string()),
            ("label", pa.string()),
            ("features", pa.list_(pa.float32(), problem.x.shape[1])),
        ]
    )
    with pq.ParquetWriter(folder / "items" / "rows.parquet", schema) as writer:
        for start in range(0, len(problem.y), 4096):
            rows = slice(start, start + 4096)
            x = problem.x[rows]
            x = x.toarray() if scipy.sparse.issparse(x) else x
            words = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), x.shape[1])
            labels = [None if label < 0 else f"{label:02d}" for label in problem.few[rows]]
            names = pa.array(problem.names[rows].tolist())
            writer.write_table(pa.table([names, pa.array(labels), words], schema=schema))
    ends = [problem.names[side].tolist() for side in problem.edges]
    pq.write_table(pa.table(ends, names=["from", "to"]), folder / "edges.parquet")


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


WHERE: dict[str, Callable[[Problem], Found]] = {
    "logistic regression": by_logistic,
    "memory": in_memory,
    "local": partial(by_engine, engine="local"),
    "ray": partial(by_engine, engine="ray"),
}


def measure(data: str, where: str, seed: int) -> Found:
    """Load and fit."""
    return WHERE[where](DATA[data](seed))


def main() -> None:
    """Parse the command line, measure, and append a line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", choices=[*DATA])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--where", choices=[*WHERE], default="local")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    case = {"seed": args.seed, "where": args.where}
    if not is_there(args.out, case):
        threads = torch.get_num_threads()
        found = in_own_process(measure, args.data, args.where, args.seed, num_threads=threads)
        add(args.out, case | found)


if __name__ == "__main__":
    main()
