"""The bad-input contract: 37 cases at fit, at predict, in nn and on the command line.

R: refused with a ValueError that names the argument, the first bad place and the remedy.
W: handled, with one warning. A: accepted. Never NaN out, never an error from C++.
"""

from __future__ import annotations

import csv
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor
from typer.testing import CliRunner

import jlgcn._memory
from jlgcn import DenseGraph, JLGCNClassifier, KernelGraph, as_graph
from jlgcn.cli import app
from jlgcn.closed_form import fit_closed_form
from jlgcn.closed_form.scaling import Kind
from jlgcn.errors import GraphHealthWarning, NodeCountError, OneWayEdgesWarning
from jlgcn.estimator.validation import probabilities
from jlgcn.graphs import gaussian_knn_graph
from jlgcn.nn import JLGCN, PRESETS, GraphLearner, GraphLevelJLGCN, JLGCNConv
from jlgcn.nn.learner import BACKENDS
from jlgcn.training import TrainConfig
from tests.training.small import fit_data, small_data

Letter = Literal["R", "W", "A"]
ENTRIES = ("fit", "predict", "nn", "command line")
N = 40

chance = np.random.default_rng(0)
TRUE = np.arange(N) % 2
X = chance.normal(size=(N, 4)) + 2.0 * TRUE[:, None]
Y = np.where(np.arange(N) < 12, TRUE, -1)
EDGES = np.array([[0, 2, 1, 3], [2, 0, 3, 1]])
T = torch.from_numpy(X).float()
MEDIAN = replace(PRESETS["paper"], metric_init="median")
FITTED = JLGCNClassifier().fit(X, Y)


def with_entry(value: object) -> np.ndarray:
    x = X.astype(object if isinstance(value, str) else np.result_type(type(value), float))
    x[3, 1] = value
    return x


def learn(x: Any = X, y: Any = Y, graph: Any = None) -> np.ndarray:  # noqa: ANN401
    return JLGCNClassifier().fit(x, y, graph).label_distributions_


def new_rows(x: Any = X, edges: Any = None) -> np.ndarray:  # noqa: ANN401
    return FITTED.predict_proba(x, edges)


def network(x: Tensor = T, graph: Any = None, **options: Any) -> Tensor:  # noqa: ANN401
    torch.manual_seed(0)
    options = {"rank": 2} | options
    model = JLGCN(4, 8, 2, **options).eval()
    if "options" in options:  # a metric that starts at the median
        model.calibrate(x, graph)
    logits: Tensor = model(x, graph).logits
    return logits


def solved(y: Tensor, train: Tensor) -> Tensor:
    return fit_closed_form(T, y, train=train).logits


def trained(**changes: Any) -> Tensor:  # noqa: ANN401
    data = replace(small_data(), **changes)
    fit_data(JLGCN(6, 8, 3, rank=2), data, config=TrainConfig(epochs=1), seed=0)
    return data.x


def table(
    folder: Path, cells: dict[tuple[int, int], object] | None = None, x: np.ndarray = X
) -> Path:
    """Write the table, some of its cells changed."""
    path = folder / "table.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["name", *(f"f{k}" for k in range(x.shape[1])), "class"])
        for i, row in enumerate(x):
            entries = [(cells or {}).get((i, k), row[k]) for k in range(x.shape[1])]
            writer.writerow([f"row-{i}", *entries, "" if Y[i] < 0 else f"c{Y[i]}"])
    return path


def edge_file(folder: Path, *lines: str, header: str = "a,b") -> Path:
    path = folder / "edges.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def command(*arguments: object) -> str:
    """Run the command line; what it says is printed, or raised where it refuses."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if done.exit_code == 2:
        raise ValueError(done.output)
    assert done.exit_code == 0, done.output
    for line in done.output.splitlines():
        if line.startswith("jlgcn: "):
            warnings.warn(line, UserWarning, stacklevel=2)
    return done.output


def fit_command(folder: Path, path: Path, *more: object) -> str:
    options = ("--id", "name", "--label", "class", "--out", folder / "model")
    return command("fit", path, *options, *more)


@dataclass(frozen=True)
class Try:
    """One way to meet a case.

    Attributes:
        entry: where.
        action: what is done, in a folder of its own.
        match: what the error or the warning says.
        letter: what is expected, where it is not the case's own; `why` says why.
        why: see `letter`.
    """

    entry: str
    action: Callable[[Path], Any]
    match: str = ""
    letter: Letter | None = None
    why: str = ""


@dataclass(frozen=True)
class Case:
    """A kind of input.

    Attributes:
        name: what it is.
        letter: R, W or A.
        tries: how it is met.
        elsewhere: entries where it cannot be met, with the reason.
    """

    name: str
    letter: Letter
    tries: list[Try]
    elsewhere: dict[str, str] = field(default_factory=dict)


def everywhere(match: str, **actions: Callable[[Path], Any]) -> list[Try]:
    names = {"fit": "fit", "predict": "predict", "nn": "nn", "cli": "command line"}
    return [Try(names[name], action, match) for name, action in actions.items()]


def tensor(x: np.ndarray) -> Tensor:
    return torch.from_numpy(x).float()


PER_ROW = "each new row is attached by itself to the rows of fit"
UNIT = "features are measured in their own unit, so the result does not change; tested below"
NUMPY = "arrays of NumPy live in one memory"
NO_WEIGHT = "edges of new rows have no weight"
ONE_WAY = "edges lead from new rows to old ones"
OF_LABELS = "classes are those of the labels"
ONE_CLASS = "all labels .* are of one class, .*, so there is nothing to learn; label rows"
IDS = "a file names rows by their ids, not by numbers"


def huge(monkeypatch_free_bytes: int, action: Callable[[], Any]) -> Callable[[Path], Any]:
    """Do something while the machine says that it has next to no memory left."""

    def run(_: Path) -> Any:  # noqa: ANN401
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(jlgcn._memory, "_HARMLESS_BYTES", 0)
            patch.setattr(jlgcn._memory, "available_bytes", lambda *_: monkeypatch_free_bytes)
            return action()

    return run


def parquet(folder: Path) -> Path:
    import pyarrow.parquet

    columns = {"name": [f"row-{i}" for i in range(N)], "f0": X[:, 0], "class": ["a", "b"] * 20}
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "table.parquet")
    return folder / "table.parquet"


def memmap(folder: Path) -> np.ndarray:
    X.tofile(folder / "x.bin")
    return np.memmap(folder / "x.bin", dtype=X.dtype, mode="r", shape=X.shape)


def closed_model(folder: Path, new: Path) -> str:
    fit_command(folder, table(folder))
    return command("predict", folder / "model", new)


def one_new(folder: Path) -> Path:
    (folder / "new.csv").write_text("name,f0,f1,f2,f3\nx,1,2,3,4\n")
    return folder / "new.csv"


def narrow(folder: Path) -> Path:
    (folder / "new.csv").write_text("name,f0\nx,1\n")
    return folder / "new.csv"


def with_number(value: float) -> list[Try]:
    tries = everywhere(
        r"(must be finite.*\(3, 1\) is |missing, the first in|'f1' of row 'row-3')"
        r".*(fill|leave|impute)",
        fit=lambda _: learn(with_entry(value)),
        predict=lambda _: new_rows(with_entry(value)),
        nn=lambda _: network(tensor(with_entry(value))),
        cli=lambda f: fit_command(f, table(f, {(3, 1): value})),
    )
    if not np.isnan(value):
        return tries
    why = "a file as people have it: its gaps are filled and marked by the encoder of raw tables"
    return [
        replace(each, letter="A", match="", why=why) if each.entry == "command line" else each
        for each in tries
    ]


def with_weight(value: float) -> list[Try]:
    lines = ("row-0,row-2,1", f"row-1,row-3,{value}")
    weight = np.array([1, value, 1, 1])
    return everywhere(
        r"weight.* must be finite and not negative, but .* 1 is .*; drop such edges",
        fit=lambda _: learn(graph=(EDGES, weight)),
        nn=lambda _: network(graph=(torch.from_numpy(EDGES), torch.from_numpy(weight))),
        cli=lambda f: fit_command(
            f, table(f), "--edges", edge_file(f, *lines, header="a,b,weight")
        ),
    )


def with_edges(edges: np.ndarray) -> list[Try]:
    return everywhere(
        r"(shape \(2, edges\), but it is \(3, 2\)|must have an integer dtype)",
        fit=lambda _: learn(graph=edges),
        predict=lambda _: new_rows(edges=edges),
        nn=lambda _: network(graph=torch.from_numpy(edges)),
    )


def with_kind(x: np.ndarray) -> list[Try]:
    return everywhere(
        "",
        fit=lambda _: learn(x),
        predict=lambda _: new_rows(x),
        nn=lambda _: network(torch.from_numpy(x), options=MEDIAN),
        cli=lambda f: fit_command(f, table(f, x=x)),
    )


def of_precision(name: str, dtype: Any, torch_dtype: torch.dtype) -> Case:  # noqa: ANN401
    tries = everywhere("", nn=lambda _: network(T.to(torch_dtype)))
    elsewhere = {"command line": "text has no precision"}
    if dtype is None:
        elsewhere |= {"fit": "is no type of NumPy", "predict": "is no type of NumPy"}
    else:
        tries += everywhere(
            "",
            fit=lambda _: learn(X.astype(dtype)),
            predict=lambda _: new_rows(X.astype(dtype)),
        )
    return Case(name, "A", tries, elsewhere)


CASES = [
    Case(
        "x that is not finite",
        "R",
        [t for value in (np.nan, np.inf, -np.inf) for t in with_number(value)],
    ),
    Case(
        "an edge weight that is not finite, or below 0",
        "R",
        [t for value in (np.nan, np.inf, -1.0) for t in with_weight(value)],
        {"predict": NO_WEIGHT},
    ),
    Case(
        "no nodes",
        "R",
        everywhere(
            r"(0 sample\(s\)|0 nodes|0 rows|no rows).*(Pass|pass|add some)",
            fit=lambda _: learn(X[:0], Y[:0]),
            predict=lambda _: new_rows(X[:0]),
            nn=lambda _: network(T[:0]),
            cli=lambda f: fit_command(f, table(f, x=X[:0])),
        ),
    ),
    Case(
        "no features",
        "R",
        everywhere(
            r"(0 feature\(s\)|0 features|no column to learn).*(pass at least|but those)",
            fit=lambda _: learn(X[:, :0]),
            predict=lambda _: new_rows(X[:, :0]),
            nn=lambda _: network(T[:, :0]),
            cli=lambda f: fit_command(f, table(f, x=X[:, :0])),
        ),
    ),
    Case(
        "an edge to a node that is not there",
        "R",
        [
            *everywhere(
                r"(between 0 and 39.*but edge 1 is \(40, 0\); number the nodes|"
                r"old nodes from 0 to 39, but they name)",
                fit=lambda _: learn(graph=np.array([[0, 40], [2, 0]])),
                predict=lambda _: new_rows(edges=np.array([[0], [40]])),
                nn=lambda _: network(graph=torch.tensor([[0, 40], [2, 0]])),
            ),
            Try(
                "command line",
                lambda f: fit_command(f, table(f), "--edges", edge_file(f, "row-0,nobody")),
                "no edge in edges.csv names two rows",
            ),
        ],
    ),
    Case(
        "an edge to a negative node",
        "R",
        everywhere(
            r"(but edge 0 is \(0, -1\); number the nodes|but they name -1 to)",
            fit=lambda _: learn(graph=np.array([[0, 1], [-1, 0]])),
            predict=lambda _: new_rows(edges=np.array([[0], [-1]])),
            nn=lambda _: network(graph=torch.tensor([[0, 1], [-1, 0]])),
        ),
        {"command line": IDS},
    ),
    Case(
        "edges of another shape, or of floats",
        "R",
        [
            *with_edges(EDGES.T[:3]),
            *with_edges(EDGES.astype(float)),
            Try(
                "command line",
                lambda f: fit_command(f, table(f), "--edges", edge_file(f, "row-0", header="a")),
                "must have a column for each end of an edge",
            ),
        ],
    ),
    Case(
        "no labels",
        "R",
        [
            Try("fit", lambda _: learn(y=np.full(N, -1)), "y has no label; label at least one row"),
            Try(
                "nn",
                lambda _: solved(torch.zeros(N, dtype=torch.int64), torch.tensor([])),
                "train must name nodes, but it is empty; name some of each class",
            ),
            Try("nn", lambda _: trained(train=torch.tensor([])), "train must name nodes"),
            Try(
                "command line",
                lambda f: unlabelled(f),
                "column 'class' of table.csv is empty; write the class of some rows into it",
            ),
        ],
        {"predict": "new rows have no labels"},
    ),
    Case(
        "labels out of range, or NaN",
        "R",
        [
            Try(
                "fit",
                lambda _: learn(y=np.where(Y < 0, np.nan, Y)),
                letter="A",
                why="NaN in a column of labels means that there is none, as it does in data frames",
            ),
            Try("fit", lambda _: learn(y=np.where(Y < 0, np.inf, Y)), r"label is inf; pass -1"),
            Try("fit", lambda _: learn(y=Y + 0.5), r"continuous.*such as 0.5; bin measurements"),
            Try("fit", lambda _: learn(y=np.eye(2)[TRUE]), r"\(40, 2\).*pass y.argmax\(1\)"),
            Try(
                "command line",
                lambda f: fit_command(f, classes(f, ["0.5", "1.25"])),
                "continuous.*such as 0.5; bin measurements",
            ),
            Try(
                "nn",
                lambda _: solved(torch.from_numpy(Y), torch.tensor([0, 30])),
                r"y must be 0 or more at the nodes of train, but y\[30\] is -1; remove this node",
            ),
            Try(
                "nn",
                lambda _: solved(torch.from_numpy(Y).double() / 0, torch.tensor([0])),
                r"y must be of integers.*NaN; pass -1 for unlabelled nodes",
            ),
            Try(
                "nn",
                lambda _: trained(y=small_data().y.index_fill(0, torch.tensor([4]), -5)),
                r"but y\[4\] is -5; remove this node from train",
            ),
        ],
        {"predict": "new rows have no labels"},
    ),
    Case(
        "labels that are -1 and 1",
        "R",
        [
            *(
                Try(
                    "fit",
                    lambda _, y=labels: learn(y=y),  # type: ignore[misc]
                    r"-1 and 1, and -1 means unlabelled; pass \(y \+ 1\) // 2, or text",
                )
                for labels in (2 * TRUE - 1, (2.0 * TRUE - 1).astype(object), ["-1", "1"] * 20)
            ),
            Try(
                "nn",
                lambda _: solved(torch.from_numpy(2 * TRUE - 1), torch.arange(N)),
                r"y must be 0 or more at the nodes of train, but y\[0\] is -1",
            ),
            *(
                Try(
                    "command line",
                    lambda f, names=names: fit_command(f, classes(f, names)),  # type: ignore[misc]
                    r"-1 and 1, and -1 means unlabelled",
                )
                for names in (["-1", "1"], ["-1.0", "1.0"])
            ),
        ],
        {"predict": "new rows have no labels"},
    ),
    Case(
        "features that are complex, objects or strings",
        "R",
        [
            Try("fit", lambda _: learn(X + 1j), "Complex data not supported: X is .*; pass real"),
            Try(
                "fit",
                lambda _: learn(with_entry("red")),
                r"entry \(3, 1\) is 'red'; pass a data frame",
            ),
            Try(
                "fit",
                lambda _: learn(np.full((N, 4), "red")),
                r"entry \(0, 0\) is 'red'; pass a data frame",
            ),
            Try("predict", lambda _: new_rows(X + 1j), "Complex data not supported: X is"),
            Try(
                "predict",
                lambda _: new_rows(with_entry("red")),
                r"entry \(3, 1\) is 'red'; pass a data frame",
            ),
            Try("nn", lambda _: network(T + 1j), "x must be of real numbers.*; pass real and"),
            Try(
                "command line",
                lambda f: fit_command(f, table(f, {(3, 1): "red"})),
                letter="A",
                why="a file as people have it: a word among numbers is a gap, and is named",
            ),
        ],
    ),
    Case(
        "devices that differ",
        "R",
        [
            Try(
                "nn",
                lambda _: network(T.to("meta")),
                r'x is on meta but the parameters are on cpu; call x.to\("cpu"\)',
            ),
            Try(
                "nn",
                lambda _: network(graph=(torch.from_numpy(EDGES), torch.ones(4, device="meta"))),
                "weight is on meta but edge_index is on cpu; call weight.to",
            ),
        ],
        {"fit": NUMPY, "predict": NUMPY, "command line": NUMPY},
    ),
    Case(
        "more than there is memory for",
        "R",
        [
            Try("fit", huge(10**4, learn), "GiB of memory are free; n_components=64"),
            Try(
                "predict",
                huge(10**2, lambda: new_rows(scipy.sparse.csr_matrix(X))),
                "X with its zeros needs .*; predicting some rows at a time",
            ),
            Try(
                "nn",
                lambda _: network(torch.zeros(2_000_000, 4), backend="dense"),
                r'backend="dense" needs .* GiB.*; backend="exact" takes memory in proportion',
            ),
            Try(
                "command line",
                lambda f: huge(10**2, lambda: fit_command(f, parquet(f)))(f),
                "table.parquet holds .* of memory are free; take a part of it",
            ),
        ],
    ),
    Case(
        "another number of features than before",
        "R",
        [
            Try(
                "predict",
                lambda _: new_rows(X[:, :3]),
                "X has 3 features, but .* is expecting 4 features as input.*Pass the columns",
            ),
            Try("nn", lambda _: network(T[:, :3]), "x has 3 features but the network was made for"),
            Try(
                "command line",
                lambda f: closed_model(f, narrow(f)),
                "lacks the columns 'f1', 'f2', 'f3', which",
            ),
        ],
        {"fit": "the first features that it sees are those that count"},
    ),
    Case(
        "predict before fit",
        "R",
        [
            Try("predict", lambda _: JLGCNClassifier().predict(X), "not fitted yet. Call 'fit'"),
            Try(
                "command line",
                lambda f: command("predict", f / "nothing"),
                "there is no folder .*; pass the folder that",
            ),
        ],
        {"fit": "is what comes first", "nn": "a network has weights from the start"},
    ),
    Case(
        "edges listed twice",
        "W",
        [
            *everywhere(
                "listed more than once; they are merged",
                fit=lambda _: learn(graph=np.concatenate([EDGES, EDGES], 1)),
                predict=lambda _: new_rows(edges=np.array([[0, 0], [1, 1]])),
                nn=lambda _: network(graph=torch.from_numpy(EDGES).repeat(1, 2)),
                cli=lambda f: fit_command(
                    *(f, table(f), "--edges", edge_file(f, "row-0,row-2", "row-0,row-2"))
                ),
            )
        ],
    ),
    Case(
        "self-loops in the given graph",
        "W",
        everywhere(
            "has self-loops; they are kept",
            fit=lambda _: learn(graph=np.array([[0, 2, 3], [2, 0, 3]])),
            nn=lambda _: network(graph=torch.tensor([[0, 2, 3], [2, 0, 3]])),
            cli=lambda f: fit_command(
                *(f, table(f), "--edges", edge_file(f, "row-0,row-2", "row-3,row-3"))
            ),
        ),
        {"predict": ONE_WAY},
    ),
    Case(
        "directed edges",
        "W",
        [
            *everywhere(
                "is directed.*: the larger weight of the two directions",
                fit=lambda _: learn(graph=EDGES[:, :1]),
                nn=lambda _: network(graph=torch.from_numpy(EDGES[:, :1])),
            ),
            Try(
                "command line",
                lambda f: fit_command(f, table(f), "--edges", edge_file(f, "row-0,row-2")),
                letter="A",
                why="a file lists each edge once, as it should",
            ),
        ],
        {"predict": ONE_WAY},
    ),
    Case(
        "a class without training nodes",
        "W",
        [
            Try(
                "nn",
                lambda _: trained(y=small_data().y.index_fill(0, torch.tensor([100]), 2)),
                "no node of train has class 2; it will not be predicted. Label some",
            )
        ],
        {"fit": OF_LABELS, "predict": OF_LABELS, "command line": OF_LABELS},
    ),
    Case(
        "features that are all equal",
        "W",
        [
            Try("fit", lambda _: learn(np.ones((N, 4))), "all rows of X are equal.*; pass columns"),
            Try("predict", lambda _: new_rows(np.ones((N, 4))), letter="A", why=PER_ROW),
            Try("nn", lambda _: network(torch.ones(N, 4)), "graph is complete.*; scale the"),
            Try(
                "command line",
                lambda f: fit_command(f, table(f, x=np.ones((N, 4)))),
                "all rows of X are equal",
            ),
        ],
    ),
    Case(
        "features a million times larger",
        "W",
        [
            Try("fit", lambda _: learn(1e6 * X), letter="A", why=UNIT),
            Try("predict", lambda _: new_rows(1e6 * X), letter="A", why=PER_ROW),
            Try("nn", lambda _: network(1e6 * T), "graph is dead.*; scale the features"),
            Try(
                "command line",
                lambda f: fit_command(f, table(f, x=1e6 * X)),
                letter="A",
                why=UNIT,
            ),
        ],
    ),
    Case(
        "features a hundred million times smaller",
        "W",
        [
            Try("fit", lambda _: learn(1e-8 * X), letter="A", why=UNIT),
            Try("predict", lambda _: new_rows(1e-8 * X), letter="A", why=PER_ROW),
            Try("nn", lambda _: network(1e-8 * T), "graph is complete.*; scale the features"),
            Try(
                "command line",
                lambda f: fit_command(f, table(f, x=1e-8 * X)),
                letter="A",
                why=UNIT,
            ),
        ],
    ),
    Case(
        "whole numbers above 2^24",
        "W",
        [
            Try(
                "fit",
                lambda _: learn(2**25 + chance.integers(9, size=(N, 4))),
                letter="A",
                why="integers become float64, which holds them exactly",
            ),
            Try("predict", lambda _: new_rows(np.full((2, 4), 2**25)), letter="A", why=PER_ROW),
            Try(
                "nn",
                lambda _: network(2**25 + torch.randint(2**24, (9, 4))),
                "x has integers above 2²⁴.*; subtract a constant",
            ),
            Try(
                "command line",
                lambda f: fit_command(f, table(f, {(3, 1): 2**25}, (10 * X).astype(int))),
                "column 'f1' of table.csv has integers above 2²⁴",
            ),
        ],
    ),
    Case(
        "one node",
        "A",
        [
            Try(
                "fit",
                lambda _: learn(X[:1], Y[:1]),
                "1 sample.*Pass unlabelled rows",
                letter="R",
                why="one row has nobody to be joined with, and scikit-learn asks for two",
            ),
            Try("predict", lambda _: new_rows(X[:1])),
            Try("nn", lambda _: network(T[:1])),
            Try("command line", lambda f: closed_model(f, one_new(f))),
        ],
    ),
    Case(
        "one node a batch",
        "A",
        [
            Try("nn", lambda _: network(T.view(N, 1, 4))),
            Try("nn", lambda _: GraphLevelJLGCN(4, 2, (8,)).eval()(T.view(N, 1, 4)).logits),
        ],
        {"fit": "has no batches", "predict": "has no batches", "command line": "has no batches"},
    ),
    Case(
        "no edges",
        "A",
        everywhere(
            "",
            fit=lambda _: learn(graph=np.empty((2, 0), int)),
            predict=lambda _: new_rows(edges=np.empty((2, 0), int)),
            nn=lambda _: network(graph=torch.empty(2, 0, dtype=torch.int64)),
            cli=lambda f: fit_command(f, table(f)),
        ),
    ),
    Case(
        "nodes without edges",
        "A",
        everywhere(
            "",
            fit=lambda _: learn(graph=EDGES),
            predict=lambda _: new_rows(edges=np.array([[0], [1]])),
            nn=lambda _: network(graph=torch.from_numpy(EDGES)),
            cli=lambda f: fit_command(
                *(f, table(f), "--edges", edge_file(f, "row-0,row-2", "row-1,row-3"))
            ),
        ),
    ),
    Case(
        "one class",
        "W",
        [
            Try("fit", lambda _: learn(y=np.where(Y < 0, -1, 0)), ONE_CLASS),
            Try(
                "nn",
                lambda _: solved(torch.zeros(N, dtype=torch.int64), torch.arange(5)),
                letter="A",
                why="the estimator says it; a fold may have one class by chance",
            ),
            Try("predict", lambda _: JLGCNClassifier().fit(X, 0 * Y).predict_proba(X), ONE_CLASS),
            Try(
                "command line",
                lambda f: fit_command(f, classes(f, ["a", "a"])),
                ONE_CLASS,
                letter="R",
                why="a model of a file is written to be used",
            ),
        ],
    ),
    Case(
        "rows that are equal",
        "A",
        everywhere(
            "",
            fit=lambda _: learn(np.repeat(X[::2], 2, 0)),
            predict=lambda _: new_rows(np.repeat(X[::2], 2, 0)),
            nn=lambda _: network(T[::2].repeat_interleave(2, 0)),
            cli=lambda f: fit_command(f, table(f, x=np.repeat(X[::2], 2, 0))),
        ),
    ),
    Case(
        "features far from 0",
        "A",
        everywhere(
            "",
            fit=lambda _: learn(X + 1e4),
            predict=lambda _: JLGCNClassifier().fit(X + 1e4, Y).predict_proba(X + 1e4),
            nn=lambda _: network(T + 1e4),
            cli=lambda f: fit_command(f, table(f, x=X + 1e4)),
        ),
    ),
    of_precision("float16", np.float16, torch.float16),
    of_precision("bfloat16", None, torch.bfloat16),
    of_precision("float64", np.float64, torch.float64),
    Case(
        "whole numbers, and true and false",
        "A",
        [*with_kind((3 * X).astype(int)), *with_kind(X > 1)],
    ),
    Case(
        "views: not contiguous, expanded, read-only",
        "A",
        everywhere(
            "",
            fit=lambda f: learn(memmap(f)),
            predict=lambda f: new_rows(memmap(f)[::-1, :]),
            nn=lambda _: network(T.t().contiguous().t()) + network(T[:1].expand(9, 4)).sum(),
        ),
        {"command line": "text has no memory"},
    ),
    Case(
        "an input that requires gradients",
        "A",
        everywhere("", nn=lambda _: network(T.clone().requires_grad_()).detach()),
        {"fit": NUMPY, "predict": NUMPY, "command line": NUMPY},
    ),
    Case(
        "sparse features",
        "A",
        everywhere(
            "",
            fit=lambda _: learn(scipy.sparse.csr_matrix(np.maximum(X, 0))),
            predict=lambda _: new_rows(scipy.sparse.csr_matrix(X)),
            nn=lambda _: network(T.to_sparse()) + network(T.to_sparse_csr()),
        ),
        {"command line": "a table has no gaps"},
    ),
]


def classes(folder: Path, names: list[str]) -> Path:
    """Write the table with these classes in turn."""
    path = folder / "table.csv"
    lines = table(folder).read_text().splitlines()
    rows = [f"{row.rpartition(',')[0]},{names[i % 2]}" for i, row in enumerate(lines[1:])]
    path.write_text("\n".join([lines[0], *rows]) + "\n")
    return path


def unlabelled(folder: Path) -> str:
    path = table(folder)
    text = re.sub(r",c[01]\b", ",", path.read_text())
    path.write_text(text)
    return fit_command(folder, path)


TRIES = [(case, each) for case in CASES for each in case.tries]


def test_there_are_37_cases_and_each_is_met_or_impossible_everywhere() -> None:
    assert len(CASES) == 37
    assert [sum(case.letter == letter for case in CASES) for letter in "RWA"] == [15, 9, 13]
    for case in CASES:
        met = {each.entry for each in case.tries}
        assert met | set(case.elsewhere) == set(ENTRIES), case.name
        assert not met & set(case.elsewhere), case.name
        assert all(each.why for each in case.tries if each.letter), case.name


@pytest.mark.parametrize(
    ("case", "attempt"), TRIES, ids=[f"{case.letter}: {case.name}, {t.entry}" for case, t in TRIES]
)
def test_every_case_is_refused_warned_of_or_accepted(
    case: Case, attempt: Try, tmp_path: Path
) -> None:
    before = X.copy(), T.clone()
    letter = attempt.letter or case.letter
    if letter == "R":
        with pytest.raises(ValueError, match=f"(?s){attempt.match}"):
            attempt.action(tmp_path)
    else:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            out = attempt.action(tmp_path)
        told = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
        if letter == "W":
            assert len(told) == 1, told
            assert re.search(f"(?s){attempt.match}", told[0]), told
        else:
            assert told == []
        if not isinstance(out, str):
            assert bool(torch.as_tensor(out).isfinite().all())
    assert np.array_equal(before[0], X)
    assert torch.equal(before[1], T)


def test_one_node_is_multiplied_by_the_weights_and_nothing_else() -> None:
    conv = JLGCNConv(4, 3, options="paper").eval()
    assert torch.equal(conv(T[:1])[0], conv.lin(T[:1]))


def test_equal_rows_have_a_weight_of_1() -> None:
    x = T[::2].repeat_interleave(2, 0)
    for backend in BACKENDS:
        learner = GraphLearner(4, 2, backend=backend)
        dense = learner.calibrate(x)(x).to_dense().detach()
        # Exactly, where differences are taken; to the bound of float32, where products are.
        size = float(learner.project(x).detach().square().sum(-1).max())
        bound = 0.0 if backend == "knn" else 8 * torch.finfo(torch.float32).eps * max(1, size)
        assert float((dense.diagonal() - 1).abs().max()) <= bound
        assert float((dense.diagonal(1)[::2] - 1).abs().max()) <= bound


def test_features_far_from_0_have_the_weights_of_float64() -> None:
    x = T + 1e4
    learner = GraphLearner(4, 2)
    exact = GraphLearner(4, 2).double()
    learner.calibrate(x)
    exact.load_state_dict({k: v.double() for k, v in learner.state_dict().items()})
    error = learner(x).to_dense().double() - exact(x.double()).to_dense()
    assert float(error.detach().abs().max()) < 1e-4


@pytest.mark.parametrize("factor", [1e6, 1e-8])
def test_the_estimators_result_does_not_depend_on_the_unit_of_features(factor: float) -> None:
    assert np.allclose(learn(X), learn(factor * X), atol=1e-6)


def test_a_learner_warns_once_however_often_it_is_called() -> None:
    learner = GraphLearner(4, 2, metric_init="random")
    with pytest.warns(GraphHealthWarning, match="the learned graph is dead: its 40 nodes"):
        learner(1e6 * T)
    for _ in range(9):
        learner(1e6 * T)  # where a warning is an error


def test_a_graph_with_near_pairs_is_not_called_dead() -> None:
    # Almost all pairs are far apart, so a sample sees no weight; but every node has a neighbour.
    x = (1e3 * torch.randn(200, 4)).repeat_interleave(2, 0)
    GraphLearner(4, 4, metric_init="identity")(x)


def test_few_nodes_are_not_judged() -> None:
    GraphLearner(4, 2, metric_init="random")(1e6 * T[:15])


@pytest.mark.parametrize("scaler", ["table", "none"])
@pytest.mark.parametrize("factor", [1e155, 1e160, 1e300, 1e-160, 1e-300])
def test_extreme_units_change_nothing(scaler: Kind, factor: float) -> None:
    plain = JLGCNClassifier(scaler=scaler).fit(X, Y)
    model = JLGCNClassifier(scaler=scaler).fit(factor * X, Y)
    assert np.allclose(model.label_distributions_, plain.label_distributions_, atol=1e-6)
    assert np.allclose(model.predict_proba(factor * X), plain.predict_proba(X), atol=1e-6)


def test_numbers_that_float64_holds_with_few_digits_are_refused_or_learned_from() -> None:
    with pytest.raises(ValueError, match=r"numbers of column 0 must have inverses.*multiply them"):
        learn(1e-310 * X)
    plain = JLGCNClassifier(scaler="none").fit(X, Y).transduction_
    assert np.array_equal(JLGCNClassifier(scaler="none").fit(1e-310 * X, Y).transduction_, plain)


@pytest.mark.parametrize("scaler", ["table", "none"])
@pytest.mark.parametrize("value", [-1.7e308, 1e200, 1e155, 1e149, -1e60, 1e-320])
def test_a_row_unlike_all_others_is_named_or_has_finite_probabilities(
    scaler: Kind, value: float
) -> None:
    model = JLGCNClassifier(scaler=scaler).fit(X, Y)
    x = with_entry(value)
    if abs(value) > 1e150:
        with pytest.raises(ValueError, match=r"entry \(3, 1\) is .*row 3 is too far.*leave it out"):
            model.predict_proba(x)
    else:
        assert np.isfinite(model.predict_proba(x)).all()


def test_a_sparse_row_unlike_all_others_is_named() -> None:
    x = scipy.sparse.csr_matrix(np.maximum(X, 0))
    model = JLGCNClassifier(scaler="none").fit(x, Y)
    x.data[x.indptr[3]] = 1e200
    with pytest.raises(ValueError, match=r"entry \(3, \d\) is .*row 3 is too far"):
        model.predict_proba(x)


@pytest.mark.parametrize("scaler", ["table", "none"])
def test_rows_that_one_row_makes_equal_are_warned_of(scaler: Kind) -> None:
    x = X.copy()
    x[3] = 1e200
    with pytest.warns(
        UserWarning, match=r"most rows of X are equal after scaling.*\(3, 0\), which is 1e\+200"
    ):
        model = JLGCNClassifier(scaler=scaler).fit(x, Y)
    assert np.isfinite(model.label_distributions_).all()


def test_edges_too_heavy_to_be_added_up_are_refused() -> None:
    with pytest.raises(ValueError, match=r"weights of the graph must be at most 1e\+150.*divide"):
        learn(graph=(EDGES, np.full(4, 1e308)))


def test_probabilities_that_are_not_finite_are_never_returned() -> None:
    with pytest.raises(ValueError, match="probabilities of row 1 are not finite: its features"):
        probabilities(torch.tensor([[0.0, 1.0], [torch.inf, 1.0]]))


@pytest.mark.parametrize("x", [X[:0], [], scipy.sparse.csr_matrix(X[:0])])
def test_no_rows_to_classify_are_not_answered_with_advice_for_fit(
    x: Any,  # noqa: ANN401
) -> None:
    with pytest.raises(ValueError, match=r"^X has 0 rows, its shape is .*; pass at least one row"):
        FITTED.predict(x)


def test_advice_follows_what_is_wrong_and_not_the_words_of_an_entry() -> None:
    for entry in ("minimum of a sample", "is expecting"):
        with pytest.raises(ValueError, match=rf"entry \(3, 1\) is '{entry}'; pass a data frame"):
            learn(with_entry(entry))


def test_a_graph_of_all_pairs_is_refused_and_a_matrix_is_not() -> None:
    z = torch.from_numpy(X)
    for graph in (KernelGraph(z), KernelGraph(z) + gaussian_knn_graph(z, 3)):
        with pytest.raises(
            ValueError, match=r"matrix of 40 × 40 numbers; .*gaussian_knn_graph\(z, 20\)"
        ):
            learn(graph=graph)
    weight = gaussian_knn_graph(z, 3).to_dense()
    assert np.allclose(learn(graph=DenseGraph(weight)), learn(graph=gaussian_knn_graph(z, 3)))
    with pytest.raises(ValueError, match=r"must be one graph, but it is .*; pass one of the bat"):
        learn(graph=DenseGraph(weight.expand(2, N, N)))


def test_graphs_of_other_nodes_and_one_way_edges_have_classes_of_their_own() -> None:
    with pytest.raises(NodeCountError, match="the graph has 3 nodes but 4 are needed"):
        as_graph(torch.ones(3, 3) - torch.eye(3), 4)
    with pytest.warns(OneWayEdgesWarning, match="1 edges have one direction only"):
        as_graph(torch.tensor([[0], [1]]), 4)
    with pytest.warns(UserWarning, match="weights differ") as told:
        as_graph((torch.tensor([[0, 1], [1, 0]]), torch.tensor([1.0, 2.0])), 4)
    assert not any(issubclass(w.category, OneWayEdgesWarning) for w in told)
