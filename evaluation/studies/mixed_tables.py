"""Raw tables of mixed columns: the estimator beside skrub with linear and boosted classifiers.

Rivals are of skrub's TableVectorizer. Logistic regression sees its features with numbers and dates
standardised, and its penalty is selected by cross-validated log-loss on the labels. (As
`skrub.tabular_pipeline` comes, it squashes one-hot features, too, which costs tens of points with
few labels.)
HistGradientBoostingClassifier has `skrub.tabular_pipeline`'s features, and the size of its leaves
is selected likewise (three folds): with the default of 20 rows it learns nothing from 15 labels.
The same logistic regression on the features of our TableEncoder tells what the encoder is worth
and what the rest of the estimator. All methods read
the same frame, ids dropped, and what they learn without labels (formats, vocabularies, projections,
scales) they learn from all its rows. Scores count labelled rows whose label was not shown. Of large
tables, rows are drawn once.

    JLGCN_DATA=… OMP_NUM_THREADS=1 python -m evaluation.studies.mixed_tables
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import skrub
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from evaluation.messy_table import LABEL, messy_table
from jlgcn import JLGCNClassifier
from jlgcn._files import write_file
from jlgcn.cli.tables import read_labelled
from jlgcn.estimator.table_encoder import TableEncoder
from jlgcn.io.files import data_root
from jlgcn.paper.records import read_lines

OUT = Path("results/studies/mixed_tables.jsonl")
#: Names of the mixed CSV files of the data folder, with their column of classes.
LABELS = {"penguins_raw": "Species", "birdstrikes": "Wildlife Size", "movies": "Label"}
MOST_ROWS = 5000
NUM_LABELS = (5, 20)
NUM_DRAWS = 5
METHODS = ("JLGCN", "logistic regression", "our encoding", "gradient boosting")
_PENALTIES = (0.01, 0.1, 1.0, 10.0, 100.0)
_LEAVES = (2, 10)


class Table(NamedTuple):
    """A table, as every method sees it.

    Attributes:
        frame: an Arrow table, (N, K).
        y: class of each row; -1 where it is not known, (N,).
    """

    frame: Any
    y: NDArray[np.int64]


def load(name: str) -> Table:
    """Read a mixed CSV file of the data folder, or write and read the made-up one."""
    with tempfile.TemporaryDirectory() as folder:
        path, label = Path(folder) / "city.csv", LABEL
        if name == "made up":
            messy_table(path)
        else:
            path, label = data_root(None) / "tables" / f"mixed_{name}.csv", LABELS[name]
        found, labels, _ = read_labelled(path, None, label, None)
    is_known = np.array([value is not None for value in labels])
    y = np.full(len(labels), -1)
    _, y[is_known] = np.unique(labels[is_known].astype(str), return_inverse=True)
    rows = np.arange(len(y))
    if len(y) > MOST_ROWS:
        rows = np.sort(np.random.default_rng(0).choice(len(y), MOST_ROWS, replace=False))
    return Table(found.frame.take(rows), y[rows])


def draw(y: NDArray[np.int64], number: int, seed: int) -> NDArray[np.int64]:
    """Return classes with `number` labels of each shown, at most half of its rows; -1 elsewhere."""
    rng = np.random.default_rng(seed)
    shown = np.full(len(y), -1)
    for label in range(int(y.max()) + 1):
        rows = np.flatnonzero(y == label)
        shown[rng.choice(rows, min(number, len(rows) // 2), replace=False)] = label
    return shown


class Rival(NamedTuple):
    """A classifier with the settings to select from, and the rows as its features encode them."""

    x: Any
    classifier: Any
    grid: dict[str, Any]
    num_folds: int = 5


def rivals(frame: Any) -> dict[str, Rival]:  # noqa: ANN401
    """Return the rivals, whose transformers are fitted to all rows of a table."""
    table = frame.to_pandas()
    scaled = skrub.TableVectorizer(
        numeric=StandardScaler(), datetime=make_pipeline(skrub.DatetimeEncoder(), StandardScaler())
    )
    linear = make_pipeline(scaled, SimpleImputer()).fit_transform(table)
    trees = HistGradientBoostingClassifier(random_state=0)
    of_trees = skrub.tabular_pipeline(trees)[:-1].fit_transform(table)
    penalties = {"C": _PENALTIES}
    return {
        "logistic regression": Rival(
            np.asarray(linear), LogisticRegression(max_iter=1000), penalties
        ),
        "our encoding": Rival(
            TableEncoder().fit_transform(frame), LogisticRegression(max_iter=1000), penalties
        ),
        "gradient boosting": Rival(of_trees, trees, {"min_samples_leaf": _LEAVES}, 3),
    }


def predict(rival: Rival, shown: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the class that a rival predicts for each row."""
    known = np.flatnonzero(shown >= 0)
    rows = rival.x.iloc[known] if hasattr(rival.x, "iloc") else rival.x[known]
    smallest = int(np.bincount(shown[known]).min())
    folds = StratifiedKFold(min(rival.num_folds, smallest), shuffle=True, random_state=0)
    search = GridSearchCV(rival.classifier, rival.grid, scoring="neg_log_loss", cv=folds)
    predicted: NDArray[np.int64] = search.fit(rows, shown[known]).predict(rival.x)
    return predicted


def main() -> None:
    """Parse the command line, and run what the file does not have."""
    names = [*LABELS, "made up"]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=names, choices=names)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    torch.set_num_threads(1)
    lines = {(line["data"], line["labels"], line["draw"]): line for line in read_lines(args.out)}
    for name in args.only:
        wanted = [(name, n, k) for k in range(NUM_DRAWS) for n in NUM_LABELS]
        if all(set(METHODS) <= lines.get(key, {}).keys() for key in wanted):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = load(name)
            methods = rivals(table.frame)
            for key in wanted:
                line = {"data": name, "labels": key[1], "draw": key[2], "rows": len(table.y)}
                done = lines.get(key, line)
                line = done | scores(table.y, methods, key[1], key[2], done)
                if line != done:
                    lines[key] = line
                    write_file(args.out, "".join(f"{json.dumps(x)}\n" for x in lines.values()))
                    print(line, flush=True)


def scores(
    y: NDArray[np.int64],
    methods: dict[str, Rival],
    number: int,
    seed: int,
    done: dict[str, Any],
) -> dict[str, Any]:
    """Return accuracy, balanced accuracy and CPU seconds of the methods that `done` lacks."""
    shown = draw(y, number, seed)
    asked = np.flatnonzero((y >= 0) & (shown < 0))
    found: dict[str, Any] = {"asked": len(asked)}
    for name in METHODS:
        if name in done:
            continue
        started = time.process_time()
        if name == "JLGCN":  # as `fit` does it with the frame, which is encoded once for all draws
            x = methods["our encoding"].x
            predicted = JLGCNClassifier(scaler="none").fit_predict(x, shown)
        else:
            predicted = predict(methods[name], shown)
        seconds = time.process_time() - started
        found[name] = {
            "accuracy": round(float((predicted == y)[asked].mean()), 4),
            "balanced": round(float(balanced_accuracy_score(y[asked], predicted[asked])), 4),
            "cpu_seconds": round(seconds, 2),
        }
    return found


if __name__ == "__main__":
    main()
