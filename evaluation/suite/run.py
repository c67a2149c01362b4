"""Run the suite: one line a fit, resumable.

JLGCN_DATA=… python -m evaluation suite --data-set digits --data-set wine
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import log_loss, recall_score

from evaluation.suite.data import Data, data_sets
from evaluation.suite.methods import GRAPH_ALONE, METHODS, WITH_GRAPH, SuiteProblem
from jlgcn.estimator.rivals import Prediction
from jlgcn.paper.records import read_lines

RESULTS = Path("results/suite")

#: Confidences are counted in so many intervals of 0 to 1.
CONFIDENCE_BINS = 50

_WITH_CONFIDENCE = ("jlgcn", "logistic regression")


def run(
    root: Path, out: Path, names: Sequence[str], methods: Sequence[str], num_draws: int | None
) -> Iterator[dict[str, Any]]:
    """Fit every method to every draw of labels that the files do not have, and yield the lines.

    Args:
        root: folder of the data.
        out: folder with a file for each data set, to which a line is appended for each fit.
        names: data sets; none for all.
        methods: methods; none for all that are compared.
        num_draws: draws of labels; None for ten, or five above 2,000 rows.
    """
    available = data_sets(root)
    for name in names or available:
        data = available[name]()
        path = out / f"{name}.jsonl"
        done = {_key(line) for line in read_lines(path)}
        usual = METHODS if data.edges is None else METHODS | WITH_GRAPH
        found = usual | GRAPH_ALONE
        chosen = [method for method in found if method in (methods or data.methods or usual)]
        problem = SuiteProblem(data)
        for budget in data.budgets:
            for draw in range(num_draws or data.num_draws):
                shown = data.draw(budget, draw)
                for method in chosen:
                    if (budget, draw, method) in done:
                        continue
                    started = time.process_time()
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        predicted = found[method](problem, shown)
                    seconds = time.process_time() - started
                    line = {"data": name, "kind": data.kind, "rows": len(data.y)}
                    line |= {"labels": budget, "draw": draw, "method": method}
                    line |= _scores(data, shown, predicted, with_bins=method in _WITH_CONFIDENCE)
                    line |= {"cpu_seconds": round(seconds, 2), "chosen": predicted.chosen}
                    append_line(path, line)
                    yield line


def append_line(path: Path, line: dict[str, Any]) -> None:
    """Append an object to a JSON Lines file, which is made where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def _key(line: dict[str, Any]) -> tuple[Any, ...]:
    return line["labels"], line["draw"], line["method"]


def _scores(
    data: Data, shown: NDArray[np.int64], predicted: Prediction, *, with_bins: bool
) -> dict[str, Any]:
    """Return accuracy, balanced accuracy and log-loss on the rows without a label."""
    is_asked = (shown < 0) & (data.y >= 0)
    y, classes = data.y[is_asked], predicted.scores[is_asked].argmax(1)
    found: dict[str, Any] = {
        "accuracy": round(float((classes == y).mean()), 5),
        "balanced": round(float(recall_score(y, classes, labels=np.unique(y), average="macro")), 5),
    }
    if predicted.probability is not None:
        probability = predicted.probability[is_asked].clip(1e-6, 1)
        probability = probability / probability.sum(1, keepdims=True)
        labels = np.arange(probability.shape[1])
        found["log_loss"] = round(float(log_loss(y, probability, labels=labels)), 4)
        if with_bins:
            found["confidence"] = _confidence(probability.max(1), classes == y)
    return found


def _confidence(confidence: NDArray[np.float64], right: NDArray[np.bool_]) -> list[list[float]]:
    """Return bin, number of rows, number of right ones and summed confidence of each bin."""
    place = np.minimum((confidence * CONFIDENCE_BINS).astype(int), CONFIDENCE_BINS - 1)
    found = []
    for number in np.unique(place):
        own = place == number
        total = round(float(confidence[own].sum()), 2)
        found.append([int(number), int(own.sum()), int(right[own].sum()), total])
    return found
