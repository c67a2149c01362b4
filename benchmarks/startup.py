"""How long a user waits before anything happens: imports and ``jlgcn --help``, in fresh processes.

python -m benchmarks.startup --json results/benchmarks/startup.json
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path

from benchmarks.measure import Run, median_ratio, table, times_side_by_side, write_json

CASES = {
    "import torch": ["-c", "import torch"],
    "import jlgcn": ["-c", "import jlgcn"],
    # Which loads what `import jlgcn` leaves for later.
    "from jlgcn import JLGCNClassifier": ["-c", "from jlgcn import JLGCNClassifier"],
    "jlgcn --help": ["-m", "jlgcn", "--help"],
}


def start(arguments: list[str]) -> None:
    """Run a fresh process of this Python to its end."""
    command = [sys.executable, *arguments]
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603


def main() -> None:
    """Take turns, write and print medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    runs: dict[str, Run] = {name: partial(start, words) for name, words in CASES.items()}
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
