"""Compare ways to scale features, and what "auto" takes them for.

Data for development only: sentence embeddings, SVD of words, PCA, genes, digits and tables. Each is
fitted with 5 labels a class, drawn three times, and scored on all other rows, scaled as

- *table*: every column to mean 0 and variance 1;
- *embeddings*: as they are, which is what "none" does, too;
- *unit*: rows divided by their lengths. This was tried, and is no kind of the scaler;
- *words*, where "auto" takes features for them.

A line for every data set, kind and draw goes to one file, and a run goes on where the file ends;
`--show` prints the means.

    OMP_NUM_THREADS=1 python -m evaluation.studies.scaler_kinds --data /path/to/data
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.preprocessing import normalize

from evaluation.suite.run import append_line
from jlgcn import JLGCNClassifier
from jlgcn.closed_form import FeatureScaler
from jlgcn.paper.records import read_lines

KINDS = ("table", "embeddings", "unit")
NUM_DRAWS = 3
NUM_LABELS = 5
NUM_TEXTS = 1500
NUM_ROWS = 1000  # of a table
OUT = Path("results/studies/scaler_kinds.jsonl")

Data = tuple[str, np.ndarray, np.ndarray]


def some(x: np.ndarray, y: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return that many rows, always the same ones."""
    rows = np.random.default_rng(0).permutation(len(y))[:size]
    return x[rows], y[rows]


def all_data(root: Path) -> Iterator[Data]:
    """Yield name, features and classes."""
    with np.load(root / "text/newsgroups.npz") as file:
        x, y = some(file["x"].astype(np.float32), file["y"], NUM_TEXTS)
    yield "newsgroups", x, y
    yield "newsgroups, PCA 50", PCA(50, random_state=0).fit_transform(x), y
    with np.load(root / "text/wordnet_nouns.npz") as file:
        yield "wordnet", *some(file["x"].astype(np.float32), file["y"], NUM_TEXTS)
    with np.load(root / "graphs/debian_packages.npz") as file:
        parts = (file["x_data"].astype(np.float32), file["x_indices"], file["x_indptr"])
        words = scipy.sparse.csr_matrix(parts, shape=tuple(file["x_shape"]))
        rows, y = some(np.arange(words.shape[0]), file["y"], 2 * NUM_TEXTS)
    svd, wide = (
        TruncatedSVD(size, random_state=0).fit_transform(words[rows]) for size in (128, 384)
    )
    yield "packages, SVD 128", svd.astype(np.float32), y
    yield "packages, SVD 384, unit rows", normalize(wide).astype(np.float32), y
    with np.load(root / "cells/pbmc68k_reduced.npz") as file:
        yield "cells, PCA 50", file["x_pca"], file["y"]
        yield "cells, genes", file["x_genes"], file["y"]
    x, y = load_digits(return_X_y=True)
    yield "digits, PCA 30", PCA(30, random_state=0).fit_transform(x), y
    yield "digits", x, y
    yield "wine", *load_wine(return_X_y=True)
    yield "cancer", *load_breast_cancer(return_X_y=True)
    with np.load(root / "tables/keel.npz") as file:
        for name in sorted({key.split("/")[0] for key in file.files}):
            yield name, *some(file[f"{name}/x"], file[f"{name}/y"], NUM_ROWS)


def accuracy(x: np.ndarray, y: np.ndarray, kind: str, draw: int) -> float:
    """Return the share of rows without a label whose class is found."""
    order = np.random.default_rng(draw).permutation(len(y))
    few = np.full(len(y), -1)
    for label in np.unique(y):
        few[order[y[order] == label][:NUM_LABELS]] = label
    if kind == "unit":
        x = normalize(x)
    model = JLGCNClassifier(scaler="embeddings" if kind == "unit" else kind).fit(x, few)  # type: ignore[arg-type]
    is_hidden = few == -1
    return float((model.transduction_[is_hidden] == y[is_hidden]).mean())


def show(lines: list[dict[str, Any]]) -> None:
    """Print means, and what "auto" takes features for."""
    for name in dict.fromkeys(line["data"] for line in lines):
        own = [line for line in lines if line["data"] == name]
        cells = []
        for kind in dict.fromkeys(line["kind"] for line in own):
            found = [line["accuracy"] for line in own if line["kind"] == kind]
            cells.append(f"{kind} {100 * np.mean(found):.1f}")
        print(f"{name}: {', '.join(cells)}; auto takes it for {own[0]['auto']}")


def main() -> None:
    """Run what the file does not have."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    lines = read_lines(options.out)
    if options.show:
        show(lines)
        return
    done = {(line["data"], line["kind"], line["draw"]) for line in lines}
    warnings.simplefilter("ignore")
    for name, x, y in all_data(options.data):
        auto = FeatureScaler.fit(torch.from_numpy(x)).kind
        for kind in (*KINDS, *(("words",) if auto == "words" else ())):
            for draw in range(NUM_DRAWS):
                if (name, kind, draw) in done:
                    continue
                line = {
                    "data": name,
                    "shape": list(x.shape),
                    "kind": kind,
                    "draw": draw,
                    "accuracy": round(accuracy(x, y, kind, draw), 4),
                    "auto": auto,
                }
                append_line(options.out, line)


if __name__ == "__main__":
    main()
