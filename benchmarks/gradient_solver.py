"""The gradient solver at work: fit, page, saved model and new rows; CPU seconds and peak memory.

    JLGCN_DATA=… python -m benchmarks.gradient_solver --json results/benchmarks/gradient_solver.json

Wine, digits and Cora by the command line, a process for each command. The 60,506 packages come as a
sparse matrix of 5,000 words, of which a CSV or Parquet file has no form (302 million cells), so
they go through `JLGCNClassifier`. Test nodes of public splits have no label here and are not
scored. A data set that is in the file already is not run again.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse
from sklearn.datasets import load_digits, load_wine

from benchmarks.measure import in_own_process, status_bytes, write_json
from jlgcn import JLGCNClassifier
from jlgcn.errors import OneWayEdgesWarning
from jlgcn.io.files import data_root
from jlgcn.paper.citation import load_planetoid
from jlgcn.report import write_model_page

NUM_NEW_PACKAGES = 100
# At the default rate of 0.1 the learned graph of the packages dies in training.
PACKAGE_EPOCHS, PACKAGE_RATE = 40, 0.01
PACKAGE_LABELS = 20  # a class

Found = dict[str, object]


@dataclass(frozen=True)
class Table:
    """Rows for the command line, of which the last are new, and the labels of the others."""

    x: np.ndarray
    few: np.ndarray  # -1 where hidden
    suffix: str
    new_classes: np.ndarray | None = None  # None: not scored
    edges: np.ndarray | None = None
    report: list[str] = field(default_factory=list)


def draw_labels(y: np.ndarray, num: int, seed: int = 0) -> np.ndarray:
    """Return the classes of `num` rows of each class, and -1 elsewhere."""
    rng = np.random.default_rng(seed)
    few = np.full(len(y), -1)
    for name in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == name))[:num]
        few[rows] = y[rows]
    return few


def wine() -> Table:
    """178 wines, 13 columns, 3 classes."""
    x, y = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    x, y = x[order], y[order]
    return Table(x, draw_labels(y[:168], 10), ".csv", y[168:])


def digits() -> Table:
    """1,797 digits of 64 pixels."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    x, y = x[order], y[order]
    return Table(x, draw_labels(y[:1700], 10), ".csv", y[1700:])


def cora() -> Table:
    """Cora's words and citations; new are nodes that are in no public split."""
    data = load_planetoid("cora")
    few = np.full(data.num_nodes, -1)
    labelled = np.concatenate([data.train.numpy(), data.val.numpy()])
    few[labelled] = data.y[labelled].numpy()
    used = np.concatenate([labelled, data.test.numpy()])
    new = np.setdiff1d(np.arange(data.num_nodes), used)[:10]
    order = np.concatenate([np.setdiff1d(np.arange(data.num_nodes), new), new])
    place = np.argsort(order)
    edges = place[data.edge_index.numpy()]
    x = data.x.numpy()[order]
    return Table(
        (x > 0).astype(np.int8), few[order][:-10], ".parquet", None, edges, ["--folds", "0"]
    )


def write_rows(path: Path, names: list[str], x: np.ndarray, labels: Iterable[str] | None) -> None:
    """Write rows with ids, and labels for `fit`."""
    columns: dict[str, object] = {"id": names}
    columns |= {f"f{k}": x[:, k] for k in range(x.shape[1])}
    if labels is not None:
        columns["label"] = list(labels)
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
        return
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def command(*arguments: object) -> tuple[dict[str, float], str]:
    """Run `jlgcn` in a process of its own; return CPU seconds, peak memory and what it printed."""
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "jlgcn", *map(str, arguments)], stdout=out, stderr=out
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read()
    if process.returncode:
        raise RuntimeError(f"jlgcn {arguments[0]} ended with {process.returncode}: {text}")
    seconds = round(usage.ru_utime + usage.ru_stime, 1)
    return {"cpu_seconds": seconds, "peak_bytes": usage.ru_maxrss * 1024}, text


def by_command_line(table: Table, folder: Path) -> Found:
    """Fit, write the page, predict old and new rows by the saved model."""
    num_rows = len(table.few)
    ids = [f"row {i}" for i in range(len(table.x))]
    rows, new = folder / f"rows{table.suffix}", folder / f"new{table.suffix}"
    labels = ["" if label < 0 else f"class {label}" for label in table.few]
    write_rows(rows, ids[:num_rows], table.x[:num_rows], labels)
    write_rows(new, ids[num_rows:], table.x[num_rows:], None)
    edges: list[object] = []
    if table.edges is not None:
        path = folder / "edges.parquet"
        ends = {name: [ids[i] for i in side] for name, side in zip("ab", table.edges, strict=True)}
        pq.write_table(pa.table(ends), path)
        edges = ["--edges", path]
    model, page = folder / "model", folder / "page.html"
    steps: dict[str, object] = {}
    names = ("--id", "id", "--label", "label")
    steps["fit"], said = command(
        "fit", rows, *names, *edges, "--solver", "gradient", "--out", model
    )
    steps["report"], _ = command("report", model, "--out", page, *table.report)
    predicted: dict[str, list[str]] = {}
    for name, more in (("predict rows of fit", []), ("predict new rows", [new, *edges])):
        out = folder / f"{name}.csv"
        steps[name], _ = command("predict", model, *more, "--out", out)
        with out.open(newline="") as file:
            predicted[name] = [row["label"] for row in csv.DictReader(file)]
    loaded = JLGCNClassifier.load(model)
    if predicted["predict rows of fit"] != loaded.transduction_.tolist():
        raise RuntimeError("the saved model predicts its rows otherwise")
    result = described(loaded) | {
        "new_rows": len(predicted["predict new rows"]),
        "page_bytes": page.stat().st_size,
        "steps": steps,
        "printed": said.strip().splitlines()[-2].split("Written")[0].strip(),
    }
    if table.new_classes is not None:
        right = [
            name == f"class {y}"
            for name, y in zip(predicted["predict new rows"], table.new_classes, strict=True)
        ]
        result["accuracy of new rows"] = round(float(np.mean(right)), 4)
    return result


def described(model: JLGCNClassifier) -> Found:
    """Return sizes, the selected epoch and its accuracy on held-out labels."""
    fitted = model.model_
    epoch = model.best_params_["epoch"]
    return {
        "rows": len(model.transduction_),
        "features": model.n_features_in_,
        "classes": len(model.classes_),
        "labels": len(fitted.train),
        "labels held out": len(fitted.validation),
        "given edges": None if fitted.given is None else fitted.given.pattern.num_edges,
        "graphs": fitted.backend,
        "learning rate": model.learning_rate,
        "epochs": len(model.history_),
        "epoch selected": epoch,
        "validation accuracy": round(model.history_[epoch]["val_accuracy"], 4),
    }


def packages() -> Found:
    """Measure the paper's network on packages."""
    return on_packages(
        JLGCNClassifier(
            solver="gradient", backend="knn", max_iter=PACKAGE_EPOCHS, learning_rate=PACKAGE_RATE
        )
    )


def packages_decoupled() -> Found:
    """Measure the decoupled network on packages, at its default learning rate."""
    return on_packages(
        JLGCNClassifier(solver="gradient", preset="decoupled", max_iter=PACKAGE_EPOCHS)
    )


def on_packages(model: JLGCNClassifier) -> Found:
    """Fit to packages, all words, by kNN graphs; save, load, predict new rows, write the page."""
    with np.load(data_root(None) / "graphs/debian_packages.npz") as file:
        parts = tuple(file[f"x_{name}"] for name in ("data", "indices", "indptr"))
        y, edges = file["y"].astype(np.int64), file["edge_index"].astype(np.int64)
        names, classes, words = file["names"], file["classes"], file["words"]
    x = scipy.sparse.csr_matrix(parts, shape=(len(y), len(words)), dtype=np.float32)
    order = np.random.default_rng(0).permutation(len(y))
    x, y, names, edges = x[order], y[order], names[order], np.argsort(order)[edges]
    num_rows = len(y) - NUM_NEW_PACKAGES
    few = draw_labels(y[:num_rows], PACKAGE_LABELS)
    labels = np.where(few < 0, "", classes[few])
    is_old = edges < num_rows
    cross = edges[:, is_old[0] != is_old[1]]
    cross = np.where(cross[0] >= num_rows, cross, cross[::-1]) - np.array([[num_rows], [0]])
    steps: dict[str, object] = {}

    def step(name: str, run: Callable[[], object]) -> None:
        start = time.process_time()
        run()
        seconds = round(time.process_time() - start, 1)
        steps[name] = {"cpu_seconds": seconds, "peak_bytes_so_far": status_bytes("VmHWM")}
        print(name, steps[name], flush=True)

    with (
        tempfile.TemporaryDirectory() as folder,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", OneWayEdgesWarning)
        saved, page = Path(folder, "model"), Path(folder, "page.html")
        step("fit", lambda: model.fit(x[:num_rows], labels, edges[:, is_old.all(0)]))
        step("save", lambda: model.save(saved))
        loaded = JLGCNClassifier.load(saved)
        if (loaded.transduction_ != model.transduction_).any():
            raise RuntimeError("the saved model predicts its rows otherwise")
        step("predict new rows", lambda: loaded.predict(x[num_rows:], cross))
        rows, columns = names[:num_rows].tolist(), words.tolist()
        step("page", lambda: write_model_page(loaded, page, ids=rows, feature_names=columns))
        page_bytes = page.stat().st_size
        model_bytes = sum(path.stat().st_size for path in saved.iterdir())
    return described(loaded) | {
        "new_rows": NUM_NEW_PACKAGES,
        "page_bytes": page_bytes,
        "model_bytes": model_bytes,
        "warnings": [str(warning.message) for warning in caught],
        "steps": steps,
    }


TABLES: dict[str, Callable[[], Table]] = {"wine": wine, "digits": digits, "cora": cora}
PACKAGES: dict[str, Callable[[], Found]] = {
    "packages": packages,
    "packages-decoupled": packages_decoupled,
}


def main() -> None:
    """Run the data sets that are asked for, one thread each, and write their lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=[*TABLES, *PACKAGES])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results: dict[str, object] = {}
    if arguments.json is not None and arguments.json.exists():
        results = json.loads(arguments.json.read_text())["results"]
    for name in arguments.only or [*TABLES, *PACKAGES]:
        if name in results:
            continue
        if name in PACKAGES:
            results[name] = in_own_process(PACKAGES[name], num_threads=1)
        else:
            with tempfile.TemporaryDirectory() as folder:
                results[name] = by_command_line(TABLES[name](), Path(folder))
        print(name, json.dumps(results[name], indent=2), flush=True)
        if arguments.json is not None:
            write_json(arguments.json, {"threads": 1}, results)


if __name__ == "__main__":
    main()
