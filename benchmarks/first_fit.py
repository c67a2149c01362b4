"""How long the first fit of a process takes, when everything is imported: wine, 5 labels a class.

python -m benchmarks.first_fit --json results/benchmarks/first_fit.json
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_wine

from benchmarks.measure import in_own_process, write_json
from jlgcn import JLGCNClassifier


def two_fits() -> tuple[float, float, int]:
    """Return the seconds of a first and of a second fit, and how many modules the first imports."""
    x, y = load_wine(return_X_y=True)
    labels = np.full(len(y), -1)
    for label in np.unique(y):
        labels[np.flatnonzero(y == label)[:5]] = label

    def seconds() -> float:
        start = time.perf_counter()
        JLGCNClassifier().fit(x, labels)
        return time.perf_counter() - start

    num_modules = len(sys.modules)
    first = seconds()
    num_modules = len(sys.modules) - num_modules
    return first, seconds(), num_modules


def main() -> None:
    """Fit in fresh processes, one thread each; print and write medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    runs = [in_own_process(two_fits, num_threads=1) for _ in range(arguments.repeats)]
    first, second, num_modules = zip(*runs, strict=True)
    results: dict[str, object] = {
        "first fit, seconds": statistics.median(first),
        "second fit, seconds": statistics.median(second),
        "all first fits": list(first),
        "modules imported by the first fit": max(num_modules),
    }
    print(results)
    if arguments.json is not None:
        write_json(arguments.json, {"repeats": arguments.repeats, "threads": 1}, results)


if __name__ == "__main__":
    main()
