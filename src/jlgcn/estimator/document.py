"""A fitted model as tensors and a JSON document, and the schema that validates both."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from jlgcn._saved import Schema
from jlgcn._schema import flag, list_of, maybe, real, record, text, word
from jlgcn._validation import check_finite
from jlgcn.closed_form import ClosedFormModel, ClosedFormOptions
from jlgcn.closed_form.inputs import num_blocks
from jlgcn.closed_form.model import ClosedFormLayer
from jlgcn.closed_form.nystroem import Landmarks
from jlgcn.closed_form.options import CHECKS, SELECTED, SelectedOptions
from jlgcn.closed_form.scaling import KINDS
from jlgcn.graphs import SparseGraph
from jlgcn.graphs.candidates import Candidates
from jlgcn.ops import SparseFeatures
from jlgcn.ops.csr import symmetric_pattern


@dataclass(frozen=True)
class TableNames:
    """Names of a table's rows and columns.

    Attributes:
        ids: ids of the rows of `fit`, (N,).
        id_column: column of the ids; None if rows are numbered.
        label_column: column of the classes.
        drop: columns that are not features.
        feature_names: columns that are features, (F,).
    """

    ids: list[str]
    id_column: str | None
    label_column: str
    drop: list[str]
    feature_names: list[str]


# Predictions repeat a class name for every row; names that need more memory are refused.
_MAX_CLASS_NAME_BYTES = 100 * 2**20

_MANY = 10**9
_AMOUNT = real(0, 1e300)
_NAME = text(100_000)


def _class_value(value: Any, where: str) -> Any:  # noqa: ANN401
    if isinstance(value, str):
        return _NAME(value, where)
    if isinstance(value, bool):
        return value
    return real(-1e308, 1e308)(value, where)


#: Names, types and ranges of all fields of a model's document.
SCHEMA = Schema(
    5,
    {
        "options": record(CHECKS),
        "unit": real(0, 1e300, above=True),
        "learned_scale": _AMOUNT,
        "losses": list_of(_AMOUNT, 1000),
        "landmark_gamma": _AMOUNT,
        "estimator": text(200),
        "parameters": record(
            CHECKS
            | {name: maybe(CHECKS[name]) for name in SELECTED}
            | {"scaler": word(*KINDS), "device": text(100), "verbose": flag}
        ),
        "classes": record(
            {
                "dtype": word(
                    *("bool", "str", "object", "float16", "float32", "float64"),
                    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
                ),
                "values": list_of(_class_value, _MANY),
            }
        ),
        "scaler": record(
            {
                "kind": word(*(kind for kind in KINDS if kind != "auto")),
                "is_count": flag,
                "power": real(0, 1, above=True),
            }
        ),
        "feature_names": maybe(list_of(_NAME, _MANY)),
        "table": maybe(
            record(
                {
                    "ids": list_of(_NAME, _MANY),
                    "id_column": maybe(_NAME),
                    "label_column": _NAME,
                    "drop": list_of(_NAME, _MANY),
                    "feature_names": list_of(_NAME, _MANY),
                }
            )
        ),
    },
)

# Shapes of tensors. A letter is the same number everywhere: N rows, F features, D components,
# C classes, K candidates, L landmarks with P inputs, I inputs of the linear classifier, M labels,
# X entries of sparse features, E entries of a graph.
_OF_CANDIDATES = {"index": ("N", "K"), "distance": ("N", "K")}
_OF_MODEL = {
    "projection": ("F", "D"),
    "diffused": ("N", "D"),
    "weight": ("I", "C"),
    "bias": ("C",),
    "train": ("M",),
    "labels": ("M",),
}
_OF_SCALER = {"scaler/shift": ("F",), "scaler/scale": ("F",)}
_INTEGERS = ("index", "train", "labels")
_INFINITE = ("distance", "given_distance")  # without a neighbour


def plain(value: Any) -> Any:  # noqa: ANN401
    """Return a parameter as JSON can store it: not as a NumPy scalar, which grid searches set."""
    return value.item() if isinstance(value, np.generic) else value


def classes_to_document(classes: np.ndarray) -> dict[str, Any]:
    """Return the names of classes as JSON."""
    dtype = "str" if classes.dtype.kind == "U" else str(classes.dtype)
    return {"dtype": dtype, "values": classes.tolist()}


def classes_from_document(document: dict[str, Any], num_rows: int) -> np.ndarray:
    """Return the names of classes; predictions will repeat them `num_rows` times."""
    dtype, values = document["dtype"], document["values"]
    kind: Any = {"bool": bool, "str": str, "object": str}.get(
        dtype, int if "int" in dtype else float
    )
    for index, value in enumerate(values):
        if type(value) is not kind:
            raise ValueError(f"classes.values[{index}] must be of {dtype}, but it is {value!r:.60}")
    if kind is int and values:
        limits = np.iinfo(dtype)
        if min(values) < limits.min or max(values) > limits.max:
            raise ValueError(f"classes.values must fit into {dtype}")
    if dtype == "str":
        needed = 4 * max(map(len, values), default=0) * max(num_rows, len(values))
        if needed > _MAX_CLASS_NAME_BYTES:
            raise ValueError(f"names of classes would take {needed:,} bytes; use shorter ones")
        return np.array(values, dtype=str)
    return np.array(values, dtype=np.dtype(dtype))


def model_to_tensors(model: ClosedFormModel) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors of a fitted model, and its other fields as JSON."""
    candidates = model.candidates
    tensors = {name: getattr(candidates, name) for name in _OF_CANDIDATES}
    tensors |= {name: getattr(model, name) for name in _OF_MODEL}
    if isinstance(candidates.x, SparseFeatures):
        x = candidates.x
        tensors |= {"x/crow": x.crow, "x/col": x.col, "x/value": x.value}
    else:
        tensors["x"] = candidates.x
    tensors |= _graph_to_tensors("graph", model.graph)
    if candidates.given is not None:
        assert candidates.given_distance is not None
        tensors |= _graph_to_tensors("given", candidates.given)
        tensors["given_distance"] = candidates.given_distance
    if model.landmarks is not None:
        tensors["landmarks"] = model.landmarks.points
        tensors["whitening"] = model.landmarks.whitening
    for index, layer in enumerate(model.layers):
        tensors |= {f"metric/{index}": layer.metric, f"logits/{index}": layer.logits}
        tensors |= _graph_to_tensors(f"learned/{index}", layer.learned)
    document = {
        "options": asdict(model.options),
        "unit": candidates.unit,
        "learned_scale": model.learned_scale,
        "losses": [layer.loss for layer in model.layers],
        "landmark_gamma": 0.0 if model.landmarks is None else model.landmarks.gamma,
    }
    return tensors, document


def model_from_tensors(tensors: dict[str, Tensor], document: dict[str, Any]) -> ClosedFormModel:
    """Return a fitted model, on the device of its tensors, after validating all of them."""
    options: SelectedOptions = ClosedFormOptions(**document["options"])
    shapes = _shapes(document, options, tensors)
    sizes = _check_tensors(tensors, shapes)
    num_nodes, num_features, num_classes = sizes["N"], sizes["F"], sizes["C"]
    num_inputs = sizes["D"] * num_blocks(options.inputs)
    found = sizes["P"] if options.kernel_gamma > 0 else sizes["I"]
    if found != num_inputs:
        raise ValueError(f"the classifier has {found} inputs, but {num_inputs} are computed")
    _check_range("index", tensors["index"], -1, num_nodes)
    _check_range("train", tensors["train"], 0, num_nodes)
    _check_range("labels", tensors["labels"], 0, num_classes)
    x: Tensor | SparseFeatures
    if "x" in tensors:
        x = tensors["x"]
    else:
        value, col, crow = (tensors[f"x/{name}"] for name in ("value", "col", "crow"))
        # SciPy's check_format takes differences, which overflow near 2**63.
        _check_range("x/crow", crow, 0, len(value) + 1)
        _check_range("x/col", col, 0, num_features)
        if int(crow[0]) != 0 or int(crow[-1]) != len(value) or bool((crow.diff() < 0).any()):
            raise ValueError("x/crow must ascend from 0 to the number of entries")
        parts = tuple(part.cpu().numpy() for part in (value, col, crow))
        matrix = scipy.sparse.csr_array(parts, shape=(num_nodes, num_features))
        x = SparseFeatures.from_scipy(matrix).to(value.device)
    given = None
    if "given/row" in tensors:
        given = _graph(tensors, "given", num_nodes)
    elif options.inputs == "unit+own+neighbors":
        raise ValueError(f"inputs={options.inputs!r} needs a given graph, but there is none")
    graph = _graph(tensors, "graph", num_nodes)
    if not bool((graph.degree() > 0).all()):
        raise ValueError("a node of graph has no edge, not even a self-loop")
    landmarks = None
    if options.kernel_gamma > 0:
        gamma = float(document["landmark_gamma"])
        landmarks = Landmarks(tensors["landmarks"], gamma, tensors["whitening"])
    layers = tuple(
        ClosedFormLayer(
            tensors[f"metric/{i}"],
            _graph(tensors, f"learned/{i}", num_nodes),
            tensors[f"logits/{i}"],
            float(loss),
        )
        for i, loss in enumerate(document["losses"])
    )
    candidates = Candidates(
        x=x,
        unit=float(document["unit"]),
        given=given,
        given_distance=tensors.get("given_distance"),
        **{name: tensors[name] for name in _OF_CANDIDATES},
    )
    return ClosedFormModel(
        options=options,
        candidates=candidates,
        layers=layers,
        graph=graph,
        learned_scale=float(document["learned_scale"]),
        landmarks=landmarks,
        **{name: tensors[name] for name in _OF_MODEL},
    )


def _shapes(
    document: dict[str, Any], options: SelectedOptions, tensors: dict[str, Tensor]
) -> dict[str, tuple[str, ...]]:
    """Return names and shapes of the tensors that the document requires."""
    shapes: dict[str, tuple[str, ...]] = _OF_CANDIDATES | _OF_MODEL | _OF_SCALER
    graphs = ["graph"]
    if "x" in tensors:
        shapes["x"] = ("N", "F")
    else:
        shapes |= {"x/crow": ("N+1",), "x/col": ("X",), "x/value": ("X",)}
    if "given/row" in tensors:
        graphs.append("given")
        shapes["given_distance"] = ("E given",)
    if options.kernel_gamma > 0:
        shapes |= {"landmarks": ("L", "P"), "whitening": ("L", "I")}
    if not document["losses"]:
        raise ValueError("it has no layer")
    for index in range(len(document["losses"])):
        shapes |= {f"metric/{index}": ("F", "C"), f"logits/{index}": ("N", "C")}
        graphs.append(f"learned/{index}")
    for name in graphs:
        shapes |= {f"{name}/{part}": (f"E {name}",) for part in ("row", "col", "weight")}
    return shapes


def _check_tensors(
    tensors: dict[str, Tensor], shapes: dict[str, tuple[str, ...]]
) -> dict[str, int]:
    """Check names, dtypes, shapes and ranges of tensors; return the size of each letter."""
    if tensors.keys() != shapes.keys():
        names = ", ".join(sorted(tensors.keys() ^ shapes.keys())[:5])
        raise ValueError(f"tensors are missing, or there are unknown ones: {names[:200]}")
    dtype = tensors["diffused"].dtype
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"diffused must be float32 or float64, but it is {dtype}")
    sizes: dict[str, int] = {}
    for name, letters in shapes.items():
        tensor = tensors[name]
        is_integer = name in _INTEGERS or name.endswith(("/row", "/col", "/crow"))
        wanted = torch.int64 if is_integer else dtype
        if tensor.dtype != wanted:
            raise ValueError(f"{name} must be {wanted}, but it is {tensor.dtype}")
        known = tuple(sizes.setdefault(k, n) for k, n in zip(letters, tensor.shape, strict=False))
        if len(letters) != tensor.dim() or known != tuple(tensor.shape):
            raise ValueError(f"{name} has the shape {tuple(tensor.shape)}, but needs {known}")
        if name not in _INFINITE:
            check_finite(tensor, name, "save the model again")
        elif not bool((tensor >= 0).all()):
            raise ValueError(f"{name} must not be negative or NaN")
    if "N+1" in sizes and sizes["N+1"] != sizes["N"] + 1:
        raise ValueError(f"x/crow has {sizes['N+1']} entries for {sizes['N']} rows")
    for letter in ("N", "F", "D", "C", "M"):
        if sizes[letter] < 1:
            raise ValueError(f"a tensor is empty: {letter} is 0")
    return sizes


def _check_range(name: str, numbers: Tensor, low: int, end: int) -> None:
    if numbers.numel() and not low <= int(numbers.min()) <= int(numbers.max()) < end:
        raise ValueError(
            f"{name} must be from {low} to {end - 1}, but it is from {int(numbers.min())} to "
            f"{int(numbers.max())}"
        )


def _graph_to_tensors(name: str, graph: SparseGraph) -> dict[str, Tensor]:
    row, col = graph.edge_index
    return {f"{name}/row": row, f"{name}/col": col, f"{name}/weight": graph.weight}


def _graph(tensors: dict[str, Tensor], name: str, num_nodes: int) -> SparseGraph:
    row, col, weight = (tensors[f"{name}/{part}"] for part in ("row", "col", "weight"))
    _check_range(f"{name}/row", row, 0, num_nodes)
    _check_range(f"{name}/col", col, 0, num_nodes)
    pattern = symmetric_pattern(row, col, num_nodes)
    if not (torch.equal(pattern.row, row) and torch.equal(pattern.col, col)):
        raise ValueError(f"edges of {name} must be sorted and in both directions")
    if not bool((weight >= 0).all()):
        raise ValueError(f"a weight of {name} is negative")
    if not torch.allclose(weight, weight[pattern.reverse], rtol=1e-4, atol=1e-7):
        raise ValueError(f"weights of {name} differ between the directions of an edge")
    return SparseGraph.from_pattern(pattern, weight)
