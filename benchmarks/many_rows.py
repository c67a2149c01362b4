"""The estimator on 100,000 rows, 1 % of them labelled: time, peak memory, and 10,000 new rows.

    python -m benchmarks.many_rows --json results/benchmarks/many_rows.json

Each of five classes is four clusters in 10 of 50 features; 10 follow from these, 30 are noise.
LabelSpreading with its Gaussian kernel, the nearest thing in scikit-learn, is asked for the same.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import LabelSpreading

from benchmarks.measure import in_own_process, status_bytes, table, write_json
from jlgcn import JLGCNClassifier

NUM_NEW = 10_000

Found = dict[str, float | str]


def load(num_rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows, of which the last are new, their classes, and the labels of the others."""
    x, y = make_classification(
        num_rows + NUM_NEW,
        50,
        n_informative=10,
        n_redundant=10,
        n_classes=5,
        n_clusters_per_class=4,
        class_sep=2.5,
        random_state=0,
    )
    few = np.where(np.random.default_rng(0).random(num_rows) < 0.01, y[:num_rows], -1)
    return x.astype(np.float32), y, few


def by_closed_form(num_rows: int) -> Found:
    """Fit, and predict new rows."""
    x, y, few = load(num_rows)
    started = time.perf_counter()
    model = JLGCNClassifier().fit(x[:num_rows], few)
    fitted = time.perf_counter()
    predicted = model.predict(x[num_rows:])
    return {
        "accuracy": float((model.transduction_ == y[:num_rows])[few == -1].mean()),
        "accuracy_new": float((predicted == y[num_rows:]).mean()),
        "fit_seconds": round(fitted - started, 1),
        "predict_seconds": round(time.perf_counter() - fitted, 1),
        "peak_bytes": status_bytes("VmHWM"),
    }


def by_logistic_regression(num_rows: int) -> Found:
    """Fit to the rows that have a label."""
    x, y, few = load(num_rows)
    started = time.perf_counter()
    model = LogisticRegression(max_iter=1000).fit(x[:num_rows][few != -1], few[few != -1])
    return {
        "accuracy": float((model.predict(x[:num_rows]) == y[:num_rows])[few == -1].mean()),
        "accuracy_new": float((model.predict(x[num_rows:]) == y[num_rows:]).mean()),
        "fit_seconds": round(time.perf_counter() - started, 1),
        "peak_bytes": status_bytes("VmHWM"),
    }


def by_label_spreading(num_rows: int) -> Found:
    """Try to hold the weights of all pairs."""
    x, y, few = load(num_rows)
    try:
        model = LabelSpreading(kernel="rbf").fit(x[:num_rows], few)
    except MemoryError as error:
        return {"error": str(error)}
    accuracy = float((model.transduction_ == y[:num_rows])[few == -1].mean())
    return {"accuracy": accuracy, "peak_bytes": status_bytes("VmHWM")}


def main() -> None:
    """Parse the command line, measure, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path, help="write the figures here")
    args = parser.parse_args()
    methods: dict[str, Callable[[int], Found]] = {
        "closed form": by_closed_form,
        "logistic regression": by_logistic_regression,
        "label spreading, rbf": by_label_spreading,
    }
    results: dict[str, Found] = {
        name: in_own_process(method, args.rows, num_threads=args.threads)
        for name, method in methods.items()
    }
    columns = list(results["closed form"])
    rows = [
        [name, *(str(found.get(key, "")) for key in columns), str(found.get("error", ""))]
        for name, found in results.items()
    ]
    print(table(["", *columns, "error"], rows))
    if args.json:
        settings = {key: value for key, value in vars(args).items() if key != "json"}
        write_json(args.json, settings, dict(results))


if __name__ == "__main__":
    main()
