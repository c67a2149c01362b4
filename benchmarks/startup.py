"""How long a user waits: imports and commands on a small model, in fresh processes.

python -m benchmarks.startup --json results/benchmarks/startup.json
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.datasets import load_wine

from benchmarks.measure import Run, median_ratio, table, times_side_by_side, write_json

CASES = {
    "import torch": ["-c", "import torch"],
    "import jlgcn": ["-c", "import jlgcn"],
    # Which loads what `import jlgcn` leaves for later.
    "from jlgcn import JLGCNClassifier": ["-c", "from jlgcn import JLGCNClassifier"],
    "jlgcn --help": ["-m", "jlgcn", "--help"],
    "jlgcn doctor": ["-m", "jlgcn", "doctor"],
    "jlgcn predict": ["-m", "jlgcn", "predict", "model", "new.csv", "--out", "classes.csv"],
    "jlgcn explain": ["-m", "jlgcn", "explain", "model", "3"],
    "jlgcn suggest": ["-m", "jlgcn", "suggest", "model"],
}


def start(arguments: list[str], folder: Path) -> None:
    """Run a fresh process of this Python to its end."""
    command = [sys.executable, *arguments]
    subprocess.run(command, check=True, capture_output=True, cwd=folder)  # noqa: S603


def write_model(folder: Path) -> None:
    """Fit wine with ten labels a class; write the model and a table of 20 new rows."""
    x, y = load_wine(return_X_y=True)
    is_shown = np.concatenate([np.flatnonzero(y == label)[:10] for label in range(3)])
    shown = np.full(len(y), -1)
    shown[is_shown] = y[is_shown]
    names = [f"x{column}" for column in range(x.shape[1])]
    for name, columns, values in (
        ("wine", [*names, "kind"], np.column_stack([x, shown])),
        ("new", names, x[:20]),
    ):
        header = ",".join(columns)
        np.savetxt(folder / f"{name}.csv", values, delimiter=",", header=header, comments="")
    start(["-m", "jlgcn", "fit", "wine.csv", "--label", "kind", "--out", "model"], folder)


def main() -> None:
    """Take turns, write and print medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_model(folder)
        runs: dict[str, Run] = {
            name: partial(start, words, folder) for name, words in CASES.items()
        }
        seconds = times_side_by_side(runs, arguments.repeats)
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}
    ratio = median_ratio(seconds["from jlgcn import JLGCNClassifier"], seconds["import torch"])
    print(table(["", "seconds"], [[name, f"{taken:.2f}"] for name, taken in medians.items()]))
    print(f"the estimator takes {ratio:.2f} times as long as import torch")
    if arguments.json is not None:
        results: dict[str, object] = {"seconds": medians, "ratio": ratio}
        write_json(arguments.json, {"repeats": arguments.repeats}, results)


if __name__ == "__main__":
    main()
