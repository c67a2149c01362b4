"""Rows of a class without labels: how well they are found among all unlabelled rows.

One class after another loses its labels; the others have 20 a class (at most half of its rows).
Each score ranks the unlabelled rows, and a line has its AUC of telling rows of the hidden class:
`novelty_`; one minus the largest probability of the same model, and of logistic regression tuned
on the same labels; the distance to the nearest label in the features that it sees.

The score was chosen on other draws of cells, digits and newsgroups, among label mass and
distances, with several restart probabilities; segment and WordNet were not looked at.

    OMP_NUM_THREADS=1 python -m evaluation.studies.novelty --only digits cells
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from evaluation.suite.data import Data, data_sets
from evaluation.suite.methods import SuiteProblem
from evaluation.suite.run import append_line
from jlgcn import JLGCNClassifier
from jlgcn.estimator.rivals import logistic_regression
from jlgcn.io.files import data_root
from jlgcn.paper.records import read_lines

OUT = Path("results/studies/novelty.jsonl")
#: Data sets, with their numbers of draws and of hidden classes.
DRAWS = {
    "digits": (3, 10),
    "cells": (3, 10),
    "segment": (3, 7),
    "newsgroups": (1, 20),
    "wordnet": (1, 10),
}
LABELS = 20


def aucs(problem: SuiteProblem, data: Data, hidden: int, seed: int) -> dict[str, float]:
    """Return the AUC of every score for one hidden class."""
    shown = data.draw(LABELS, seed)
    shown[shown == hidden] = -1
    is_asked = shown < 0
    model = JLGCNClassifier().fit(data.x, shown)
    started = time.process_time()
    scores: dict[str, NDArray[Any]] = {"novelty": model.novelty_}
    seconds = time.process_time() - started
    scores["probability"] = 1 - model.label_distributions_.max(1)
    # Classes without a gap, as the rival counts them.
    names, codes = np.unique(shown[~is_asked], return_inverse=True)
    without = np.full(len(shown), -1)
    without[~is_asked] = codes
    problem.num_classes = len(names)
    rival = logistic_regression(problem, without).probability
    assert rival is not None
    scores["logistic regression"] = 1 - rival.max(1)
    x = torch.from_numpy(problem.components)
    scores["distance"] = torch.cdist(x, x[~torch.from_numpy(is_asked)]).amin(1).numpy()
    is_hidden = data.y[is_asked] == hidden
    found = {
        name: round(float(roc_auc_score(is_hidden, score[is_asked])), 4)
        for name, score in scores.items()
    }
    return found | {"novelty_cpu_seconds": round(seconds, 3)}


def main() -> None:
    """Parse the command line, run what the file does not have, and print means."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=list(DRAWS), choices=list(DRAWS))
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    torch.set_num_threads(1)
    available = data_sets(data_root(None))
    done = {(line["data"], line["hidden"], line["draw"]) for line in read_lines(args.out)}
    for name in args.only:
        data = available[name]()
        problem = SuiteProblem(data)
        num_draws, num_classes = DRAWS[name]
        classes = np.random.default_rng(0).permutation(np.unique(data.y))[:num_classes]
        for draw in range(num_draws):
            for hidden in sorted(classes.tolist()):
                if (name, hidden, draw) in done:
                    continue
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = aucs(problem, data, hidden, 100 + draw)
                line = {"data": name, "hidden": hidden, "draw": draw, "rows": len(data.y)}
                line |= {"labels": LABELS} | found
                append_line(args.out, line)
                print(line, flush=True)


if __name__ == "__main__":
    main()
