"""Blood cells with 5 labels a type: the estimator beside scanpy's `ingest`.

`ingest` maps cells without a label onto the labelled ones as its reference, by principal components
of the reference, or of all cells as the others see them, and takes the type of most of the k
nearest. The suite's rivals, tuned on the same labels, see principal components of all cells or
the genes. Draws are those of the suite; the accuracy is of cells without a label.

    pip install scanpy
    JLGCN_DATA=… OMP_NUM_THREADS=1 python -m evaluation.studies.ingest
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray

from evaluation.suite.data import Data
from evaluation.suite.methods import SuiteProblem, closed_form, nearest_labels
from evaluation.suite.run import append_line
from jlgcn import JLGCNClassifier
from jlgcn._optional import require
from jlgcn.estimator.rivals import logistic_regression
from jlgcn.io.files import data_root
from jlgcn.paper.records import read_lines

OUT = Path("results/studies/ingest.jsonl")
LABELS = 5
DRAWS = 10
NEIGHBORS = (5, 15)  # 15 is scanpy's default

Predict = Callable[[NDArray[np.int64]], NDArray[np.int64]]


def methods(root: Path) -> tuple[Data, dict[str, Predict]]:
    """Return the cells, and ways to predict the types of all of them from shown ones."""
    with np.load(root / "cells/pbmc68k_reduced.npz") as file:
        components, genes = file["x_pca"].copy(), file["x_genes"].copy()
        y = file["y"].astype(np.int64)
        parts = [file[f"connectivities_{name}"] for name in ("data", "indices", "indptr")]
    connectivities = scipy.sparse.csr_matrix(tuple(parts), shape=(len(y),) * 2)
    data = {
        name: Data("cells", "cells", x, y)
        for name, x in (("components", components), ("genes", genes))
    }
    problems = {name: SuiteProblem(own) for name, own in data.items()}
    found: dict[str, Predict] = {}
    for name, rival in (
        ("jlgcn", closed_form),
        ("logistic regression", logistic_regression),
        ("kNN", nearest_labels),
    ):
        for on, problem in problems.items():

            def predict(
                shown: NDArray[np.int64],
                rival: Any = rival,  # noqa: ANN401
                problem: SuiteProblem = problem,
            ) -> NDArray[np.int64]:
                found: NDArray[np.int64] = rival(problem, shown).scores.argmax(1)
                return found

            found[f"{name}, {on}"] = predict
    found["jlgcn, components and connectivities"] = lambda shown: JLGCNClassifier().fit_predict(
        components, shown, connectivities
    )
    for number in NEIGHBORS:
        for on in data:
            found[f"ingest, {on}, k = {number}"] = partial(
                ingested, genes, None if on == "genes" else components, number=number
            )
    return data["components"], found


def ingested(
    genes: NDArray[np.float32],
    components: NDArray[np.float32] | None,
    shown: NDArray[np.int64],
    *,
    number: int,
) -> NDArray[np.int64]:
    """Return types by scanpy's `ingest`; None as components are those of the labelled cells."""
    scanpy: Any = require("scanpy", "", "the study of ingest")
    anndata: Any = require("anndata", "", "the study of ingest")
    cells = anndata.AnnData(genes)
    cells.obs["type"] = [str(label) for label in shown]
    cells.obs["type"] = cells.obs["type"].astype("category")
    if components is not None:
        cells.obsm["given"] = components
    reference, others = cells[shown >= 0].copy(), cells[shown < 0].copy()
    reference.obs["type"] = reference.obs["type"].cat.remove_unused_categories()
    num = min(50, len(reference) - 1)
    scanpy.pp.pca(reference, n_comps=num)
    # `ingest` projects other cells if components are told by number, not if they are by name.
    rep: dict[str, Any] = {"n_pcs": num} if components is None else {"use_rep": "given"}
    scanpy.pp.neighbors(reference, n_neighbors=number, **rep)
    scanpy.tl.ingest(others, reference, obs="type", embedding_method="pca")
    found = shown.copy()
    found[shown < 0] = others.obs["type"].astype(int)
    return found


def main() -> None:
    """Parse the command line, and run what the file does not have."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    torch.set_num_threads(1)
    data, found = methods(data_root(None))
    done = {(line["method"], line["draw"]) for line in read_lines(args.out)}
    for draw in range(args.draws):
        shown = data.draw(LABELS, draw)
        for name, predict in found.items():
            if (name, draw) in done:
                continue
            started = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                predicted = predict(shown)
            seconds = time.process_time() - started
            right = float((predicted == data.y)[shown < 0].mean())
            line = {"data": "cells", "labels": LABELS, "draw": draw, "method": name}
            line |= {"accuracy": round(right, 5), "cpu_seconds": round(seconds, 2)}
            append_line(args.out, line)
            print(line, flush=True)


if __name__ == "__main__":
    main()
