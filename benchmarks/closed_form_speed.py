r"""Speed and memory of the estimator, side by side with another version, and as rows grow.

    git worktree add --detach ../old 0a9b330
    JLGCN_DATA=… python -m benchmarks.closed_form_speed --old ../old/src \\
        --json results/benchmarks/closed_form_speed.json

    JLGCN_DATA=… python -m benchmarks.closed_form_speed --cases --growth --rounds \\
        --json results/benchmarks/labelling.json

Every fit runs in a process of its own, on one thread, old and new in turn. Processor seconds are
those of the fit alone; the first fit of a process counts what it imports itself. Accuracy is that
of rows without a label, without published test nodes. A round of labelling is `suggest_labels` of
as many rows as there are classes, then `update` with their labels, on embeddings of all newsgroup
texts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.datasets import load_digits, load_wine
from sklearn.linear_model import LogisticRegression

from benchmarks.measure import growth_exponent, in_own_process, table, write_json
from evaluation.suite.data import newsgroups
from jlgcn import JLGCNClassifier
from jlgcn.io.files import data_root
from jlgcn.paper import load_planetoid

REPEATS = {"wine": 5, "digits": 3, "cora": 3, "packages": 1}
LABELS = {"wine": 5, "digits": 10, "cora": 20}
GROWTH = (50_000, 100_000, 200_000, 400_000)
CHANNELS = 64
NUM_NEW = 100_000
ROUNDS = (2, 5, 20, 100)  # labels a class
REPEATS_OF_ROUND = 3

# What a child process does, in a version of the package that its PYTHONPATH names.
_CHILD = """
import json, resource, sys, time, warnings
import numpy as np, scipy.sparse, torch
from jlgcn import JLGCNClassifier
warnings.simplefilter("ignore")
torch.set_num_threads(int(sys.argv[2]))
with np.load(sys.argv[1]) as file:
    arrays = dict(file)
x, edges = arrays.get("x"), arrays.get("edges")
if x is None:
    parts = tuple(arrays["x_" + name] for name in ("data", "indices", "indptr"))
    x = scipy.sparse.csr_matrix(parts, shape=tuple(arrays["x_shape"]))
few, y = arrays["few"], arrays["y"]
found = {}
for name in ("first", "later")[: 2 if len(y) < 10_000 else 1]:
    wall, cpu = time.perf_counter(), time.process_time()
    model = JLGCNClassifier().fit(x, few, *(() if edges is None else (edges,)))
    found[name] = time.process_time() - cpu
    found[name + ", wall"] = time.perf_counter() - wall
asked = (few == -1) & (y >= 0)
found["accuracy"] = float((model.transduction_ == y)[asked].mean())
if "new" in arrays:
    new = arrays["new"]
    model.predict(new[:1])
    start = time.perf_counter()
    model.predict(new[:1])
    found["one new row, seconds"] = time.perf_counter() - start
    start = time.perf_counter()
    model.predict(new)
    found["new rows a second"] = len(new) / (time.perf_counter() - start)
found["peak_bytes"] = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps(found))
"""


def inputs(case: str) -> dict[str, Any]:
    """Return the arrays of a case, with most classes hidden."""
    generator = np.random.default_rng(0)
    if case == "packages":
        with np.load(data_root(None) / "graphs/debian_packages.npz") as file:
            x = {f"x_{name}": file[f"x_{name}"] for name in ("data", "indices", "indptr", "shape")}
            y, edges = file["y"].astype(np.int64), file["edge_index"].astype(np.int64)
        few = np.full(len(y), -1)
        known = generator.choice(len(y), 500, replace=False)
        few[known] = y[known]
        x["x_data"] = x["x_data"].astype(np.float32)
        return {**x, "y": y, "few": few, "edges": edges[:, generator.random(edges.shape[1]) < 0.5]}
    found: dict[str, Any] = {}
    if case == "cora":
        data = load_planetoid("cora", data_root(None))
        y = data.y.numpy().copy()
        y[data.test.numpy()] = -1
        matrix = scipy.sparse.csr_matrix(data.x.numpy())
        found = {f"x_{name}": getattr(matrix, name) for name in ("data", "indices", "indptr")}
        found |= {"x_shape": np.array(matrix.shape), "edges": data.edge_index.numpy()}
    else:
        found["x"], y = (load_wine if case == "wine" else load_digits)(return_X_y=True)
    return found | {"y": y, "few": _few(y, LABELS[case], generator)}


def planted(num_rows: int) -> dict[str, Any]:
    """Return rows of twenty overlapping clusters, a thousand of them labelled, and new rows."""
    generator = np.random.default_rng(0)
    centers = generator.normal(size=(20, CHANNELS))
    classes = generator.integers(20, size=num_rows + NUM_NEW)
    noise = generator.normal(size=(len(classes), CHANNELS))
    x = (centers[classes] + 2 * noise).astype(np.float32)
    few = np.full(num_rows, -1)
    few[:1000] = classes[:1000]
    return {"x": x[:num_rows], "y": classes[:num_rows], "few": few, "new": x[num_rows:]}


def _few(y: Any, num_labels: int, generator: np.random.Generator) -> Any:  # noqa: ANN401
    order = generator.permutation(len(y))
    few = np.full(len(y), -1)
    for label in np.unique(y[y >= 0]):
        few[order[y[order] == label][:num_labels]] = label
    return few


def fit(arrays: dict[str, Any], source: Path | None, threads: int = 1) -> dict[str, float]:
    """Fit in a fresh process, with the package of a source folder; None for the installed one."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "inputs.npz"
        np.savez(path, **arrays)
        environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
        if source is not None:
            environment["PYTHONPATH"] = str(source.resolve())
        command = [sys.executable, "-c", _CHILD, str(path), str(threads)]
        done = subprocess.run(  # noqa: S603
            command, env=environment, cwd=folder, capture_output=True, text=True, check=True
        )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def side_by_side(cases: list[str], old: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the medians of both versions and their ratio, case by case."""
    for case in cases:
        arrays = inputs(case)
        runs: dict[str, list[dict[str, float]]] = {"old": [], "new": []}
        for _ in range(REPEATS[case]):
            for version, source in (("old", old), ("new", None)):
                runs[version].append(fit(arrays, source))
        row: dict[str, Any] = {
            version: {name: statistics.median(r[name] for r in own) for name in own[0]}
            for version, own in runs.items()
        }
        for name in ("first", "later"):
            if name in row["new"]:
                row[f"{name}, times faster"] = row["old"][name] / row["new"][name]
        two = [fit(arrays, None, threads=2)["first, wall"] for _ in range(REPEATS[case])]
        row["two threads, wall of one"] = row["new"]["first, wall"] / statistics.median(two)
        yield case, row


def labelling_round(labels_per_class: int) -> dict[str, float]:
    """Time a fit, and what comes after it: suggested rows, their labels, a fit with all labels."""
    data = newsgroups(data_root(None))
    few = data.draw(labels_per_class, 0)
    model = JLGCNClassifier()
    found: dict[str, float] = {"rows": len(few), "columns": data.x.shape[1]}
    found["labels"] = int((few >= 0).sum())
    clocks = {"cpu": time.process_time, "wall": time.perf_counter}

    def timed(name: str, run: Callable[[], Any], repeats: int = 1) -> Any:  # noqa: ANN401
        seconds: dict[str, list[float]] = {clock: [] for clock in clocks}
        for _ in range(repeats):
            started = {clock: read() for clock, read in clocks.items()}
            result = run()
            for clock, read in clocks.items():
                seconds[clock].append(read() - started[clock])
        for clock, own in seconds.items():
            found[f"{name}, {clock}"] = round(statistics.median(own), 3)
        return result

    timed("fit", lambda: model.fit(data.x, few))
    rows = timed(
        "suggest_labels", lambda: model.suggest_labels(len(model.classes_)), REPEATS_OF_ROUND
    )
    more = {int(row): int(data.y[row]) for row in rows}
    timed("update", lambda: model.update(more), REPEATS_OF_ROUND)
    timed("update, relearn", lambda: model.update(more, relearn=True))
    return found


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", type=Path, help="Source folder of the other version.")
    parser.add_argument("--cases", nargs="*", default=list(REPEATS))
    parser.add_argument("--growth", nargs="*", type=int, default=list(GROWTH))
    parser.add_argument("--rounds", action="store_true", help="Measure rounds of labelling.")
    parser.add_argument("--threads", type=int, default=1, help="Threads of a round of labelling.")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    if arguments.old is not None:
        for case, row in side_by_side(arguments.cases, arguments.old):
            results[case] = row
            print(case, json.dumps(row), flush=True)
    for number in ROUNDS if arguments.rounds else ():
        row = in_own_process(labelling_round, number, num_threads=arguments.threads)
        results[f"round, {number} labels a class"] = row
        print(number, json.dumps(row), flush=True)
    growth = {}
    for num_rows in arguments.growth:
        arrays = planted(num_rows)
        growth[num_rows] = fit(arrays, None)
        known = arrays["few"] >= 0
        regression = LogisticRegression(max_iter=500).fit(arrays["x"][known], arrays["few"][known])
        right = regression.predict(arrays["x"][~known]) == arrays["y"][~known]
        growth[num_rows]["logistic regression"] = float(right.mean())
        print(num_rows, json.dumps(growth[num_rows]), flush=True)
    if len(growth) > 1:
        results["growth"] = {str(size): row for size, row in growth.items()}
        for name in ("first", "peak_bytes"):
            exponent = growth_exponent(list(growth), [row[name] for row in growth.values()])
            results[f"exponent of {name}"] = exponent
            print(f"exponent of {name}: {exponent:.2f}")
    print(
        table(
            ["case", "times faster"],
            [
                [name, f"{row['first, times faster']:.1f}"]
                for name, row in results.items()
                if isinstance(row, dict) and "first, times faster" in row
            ],
        )
    )
    if arguments.json is not None:
        settings = {"threads": arguments.threads, "repeats": REPEATS}
        write_json(arguments.json, settings, results)


if __name__ == "__main__":
    main()
