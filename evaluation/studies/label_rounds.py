"""Rounds of labelling: rows that `suggest_labels` asks for, beside uncertain and random ones.

Begins with two labels a class and asks for one batch after another, each of as many rows as there
are classes. Ways to choose a batch: `suggest_labels`; the rows with the smallest margin between
the two largest probabilities; rows at random. All ways begin with the same labels. A line has the
accuracy among rows without a label before each batch and after the last, and the number of
different classes in each batch.

    OMP_NUM_THREADS=1 python -m evaluation.studies.label_rounds --only digits
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from evaluation.suite.data import Data, data_sets
from evaluation.suite.run import append_line
from jlgcn import JLGCNClassifier
from jlgcn.io.files import data_root
from jlgcn.paper.records import read_lines

OUT = Path("results/studies/label_rounds.jsonl")
DRAWS = {"digits": 10, "newsgroups": 5}
WAYS = ("suggested", "uncertain", "random")
FIRST = 2
ROUNDS = 3


def batch(
    model: JLGCNClassifier, shown: NDArray[np.int64], way: str, num: int, seed: int
) -> NDArray[np.int64]:
    """Return the rows to label next."""
    if way == "suggested":
        return model.suggest_labels(num)
    others = np.flatnonzero(shown < 0)
    if way == "random":
        return np.random.default_rng(seed).choice(others, num, replace=False)
    largest = np.sort(model.label_distributions_[others], 1)
    return others[np.argsort(largest[:, -1] - largest[:, -2], kind="stable")[:num]]


def rounds(data: Data, way: str, draw: int) -> dict[str, Any]:
    """Return accuracies before each batch and after the last, and classes in each batch."""
    shown = data.draw(FIRST, 200 + draw)
    num = len(np.unique(data.y))
    accuracy, classes = [], []
    for number in range(ROUNDS + 1):
        model = JLGCNClassifier().fit(data.x, shown)
        right = (model.transduction_ == data.y)[shown < 0]
        accuracy.append(round(float(right.mean()), 4))
        if number < ROUNDS:
            rows = batch(model, shown, way, num, 1000 * draw + number)
            classes.append(len(np.unique(data.y[rows])))
            shown[rows] = data.y[rows]
    return {"accuracy": accuracy, "classes": classes, "batch": num}


def main() -> None:
    """Parse the command line, and run what the file does not have."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=list(DRAWS), choices=list(DRAWS))
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    torch.set_num_threads(1)
    available = data_sets(data_root(None))
    done = {(line["data"], line["way"], line["draw"]) for line in read_lines(args.out)}
    for name in args.only:
        data = available[name]()
        for draw in range(DRAWS[name]):
            for way in WAYS:
                if (name, way, draw) in done:
                    continue
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = rounds(data, way, draw)
                line = {"data": name, "way": way, "draw": draw, "rows": len(data.y)} | found
                append_line(args.out, line)
                print(line, flush=True)


if __name__ == "__main__":
    main()
